"""Modules that were removed from Keras and TensorFlow, with their contents from the new locations."""
import importlib
import importlib.abc
import importlib.machinery
import sys
from typing import Any, Optional

# A module of 2018, and the module that has its names today.
ALIASES = {
    "keras.layers.advanced_activations": "keras.layers",
    "keras.layers.convolutional": "keras.layers",
    "keras.layers.core": "keras.layers",
    "keras.layers.embeddings": "keras.layers",
    "keras.layers.merge": "keras.layers",
    "keras.layers.noise": "keras.layers",
    "keras.layers.normalization": "keras.layers",
    "keras.layers.pooling": "keras.layers",
    "keras.layers.recurrent": "keras.layers",
    "keras.layers.wrappers": "keras.layers",
    "keras.preprocessing.text": "keras.src.legacy.preprocessing.text",
    "keras.utils.np_utils": "keras.utils",
    "keras.utils.vis_utils": "keras.utils",
}


def alias(name: str) -> Optional[Any]:
    """How to find a module that is not there, if its names are elsewhere."""
    if name not in ALIASES:
        return None
    return importlib.machinery.ModuleSpec(name, _Alias(ALIASES[name]))


class _Alias(importlib.abc.Loader):
    def __init__(self, today: str) -> None:
        self.today = today

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        today = importlib.import_module(self.today)
        names = {name: value for name, value in vars(today).items() if not name.startswith("__")}
        vars(module).update(names)


def complete_keras(keras: Any) -> None:
    """Loading keras loads its parts, some before anybody waits for them."""
    from . import datasets, models, optimizers, sessions

    models.complete(keras.models)
    optimizers.complete(keras.optimizers)
    sessions.complete_backend(keras.backend)
    datasets.complete_cifar10(importlib.import_module("keras.datasets.cifar10"))
    complete_preprocessing(keras.preprocessing)
    complete_image(importlib.import_module("keras.preprocessing.image"))
    # `keras.utils.np_utils.to_categorical` without an import of its own.
    for name in ("keras.utils.np_utils",):
        parent, _, last = name.rpartition(".")
        if not hasattr(sys.modules[parent], last):
            setattr(sys.modules[parent], last, importlib.import_module(name))


def complete_preprocessing(preprocessing: Any) -> None:
    if not hasattr(preprocessing, "text"):
        preprocessing.text = importlib.import_module("keras.preprocessing.text")


def complete_image(image: Any) -> None:
    legacy = importlib.import_module("keras.src.legacy.preprocessing.image")
    for name in ("ImageDataGenerator", "Iterator", "NumpyArrayIterator", "DirectoryIterator"):
        if not hasattr(image, name) and hasattr(legacy, name):
            setattr(image, name, getattr(legacy, name))
