"""What scripts of 2018 expect of Keras 2 and TensorFlow 1, on top of today's Keras 3 and TensorFlow 2.

`sitecustomize` enters. Nothing is imported until the script does: a finder waits for the modules that have lost names and
hands each, freshly loaded, to the function that gives them back. Names that still exist are never replaced, but for
those whose arguments changed. Reading order: `modules`, `optimizers`, `models`, `sessions`, `datasets`.
"""
import importlib
import importlib.abc
import sys
from typing import Any, Callable, Dict, Optional

from . import modules

# The module that is waited for, and the function (of a module here) that completes it.
COMPLETED: Dict[str, str] = {
    "keras": "modules.complete_keras",
    "keras.backend": "sessions.complete_backend",
    "keras.datasets.cifar10": "datasets.complete_cifar10",
    "keras.models": "models.complete",
    "keras.optimizers": "optimizers.complete",
    "keras.preprocessing": "modules.complete_preprocessing",
    "keras.preprocessing.image": "modules.complete_image",
    "tensorflow": "sessions.complete_tensorflow",
}


def begin() -> None:
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


class Finder(importlib.abc.MetaPathFinder):
    """Finds what the other finders find, and has it completed when it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        if name not in COMPLETED and name not in modules.ALIASES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None:
            return modules.alias(name)
        if name in COMPLETED and spec.loader is not None:
            spec.loader = Completing(spec.loader, _function(COMPLETED[name]))
        return spec


class Completing(importlib.abc.Loader):
    def __init__(self, loader: Any, complete: Callable[[Any], None]) -> None:
        self.loader, self.complete = loader, complete

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loader.exec_module(module)
        self.complete(module)

    def __getattr__(self, name: str) -> Any:
        # Others ask a loader for sources and resources.
        return getattr(self.loader, name)


def _function(place: str) -> Callable[[Any], None]:
    def complete(module: Any) -> None:
        room, name = place.split(".")
        getattr(importlib.import_module("." + room, __name__), name)(module)

    return complete
