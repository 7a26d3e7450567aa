"""Corro's Horovod: distributed training by ring allreduce. `import horovod.torch as hvd`, or horovod.tensorflow,
horovod.keras."""

__version__ = "0.29.0"

from horovod.runner import run  # After the version, which the launcher imports.

__all__ = ["__version__", "run"]
