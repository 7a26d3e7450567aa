"""Corro's Horovod: distributed training by ring allreduce. `import horovod.torch as hvd`, or horovod.tensorflow, horovod.keras."""

__version__ = "0.29.0"
