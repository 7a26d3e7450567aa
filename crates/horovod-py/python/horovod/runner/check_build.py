"""Output of `horovodrun --check-build`: available frameworks, controllers and tensor operations. Imports no framework."""

import importlib.util
from typing import List, Tuple

from horovod import __version__

# Available if both our module and the framework are installed.
_FRAMEWORKS = [("TensorFlow", "tensorflow"), ("PyTorch", "torch"), ("MXNet", "mxnet")]


def report(verbose: bool = False) -> str:
    frameworks = [(title, _is_there(name) and _is_there(f"horovod.{name}")) for title, name in _FRAMEWORKS]
    # The engine's own transport is reported as Gloo.
    controllers = [("MPI", False), ("Gloo", True)]
    operations = [("NCCL", False), ("DDL", False), ("CCL", False), ("MPI", False), ("Gloo", True)]
    return "\n\n".join(
        [
            f"Horovod v{__version__}:",
            _list("Available Frameworks", frameworks),
            _list("Available Controllers", controllers),
            _list("Available Tensor Operations", operations),
        ]
    )


def _list(title: str, entries: List[Tuple[str, bool]]) -> str:
    lines = [f"    [{'X' if there else ' '}] {name}" for name, there in entries]
    return "\n".join([f"{title}:", *lines])


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
