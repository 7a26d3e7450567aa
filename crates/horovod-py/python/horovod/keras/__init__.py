"""Horovod for Keras 3 on the backend in use: tensorflow, torch or jax. TensorFlow is only imported if it is the
backend.

For scripts that `import keras`; scripts that use `tf.keras` import horovod.tensorflow.keras.
"""

from typing import Any, Dict, List, Optional

import keras

from horovod._keras import backends as _backends
from horovod._keras import values as _values
from horovod._keras.loading import load_model as _load_model
from horovod._keras.optimizer import create_distributed_optimizer as _create
from horovod._keras.optimizer import local_variables as _local_variables
from horovod.common.basics import (  # noqa: F401
    Adasum,
    Average,
    Sum,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.common.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.keras import callbacks  # noqa: F401

Compression = _backends.load(_backends.of_keras()).Compression


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
) -> Any:
    """An optimizer of the same class and configuration that steps with the gradients of all ranks."""
    return _create(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        groups=groups if groups is not None else num_groups or None,
    )


def PartialDistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As DistributedOptimizer, except that gradients of `local_layers` are not reduced."""
    variables = _local_variables(local_layers, keras.layers.Layer)
    new = _create(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for variable in variables:
        new.register_local_var(variable)
    return new


def broadcast_global_variables(root_rank: int) -> Any:
    """Keras 3 has no global variables."""
    raise RuntimeError(
        "hvd.broadcast_global_variables() needs a graph of TensorFlow 1. With this Keras, give model.fit the callback "
        f"hvd.callbacks.BroadcastGlobalVariablesCallback({root_rank}) instead."
    )


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces a number, an array or a tensor; averages by default."""
    # The default of `average` is overridden by op.
    average = None if op is not None and average is True else average
    return _values.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """Concatenates the ranks' values along the first dimension."""
    return _values.allgather(value, name)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """Returns the value of `root_rank`."""
    return _values.broadcast(value, root_rank, name)


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """Returns this rank's part, along the first dimension, of the reduction."""
    return _values.reducescatter(value, name, op)


def load_model(
    filepath: Any,
    custom_optimizers: Optional[List[type]] = None,
    custom_objects: Optional[Dict[str, Any]] = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a saved model with its optimizer's state, ready to continue training on all ranks."""
    return _load_model(keras, filepath, custom_optimizers, custom_objects, compression)


def __getattr__(name: str) -> Any:
    if name == "elastic":
        import importlib

        return importlib.import_module("horovod.keras.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
