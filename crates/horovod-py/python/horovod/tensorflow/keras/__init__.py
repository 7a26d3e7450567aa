"""Horovod for `tf.keras`, for scripts that use Keras through TensorFlow. Implemented in horovod._keras."""

from typing import Any, Dict, List, Optional

import tensorflow as tf

import horovod.tensorflow as _hvd
from horovod._keras.loading import load_model as _load_model
from horovod._keras.optimizer import create_distributed_optimizer as _create
from horovod.common.basics import (  # noqa: F401
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
from horovod.tensorflow import Compression
from horovod.tensorflow.keras import callbacks  # noqa: F401


def DistributedOptimizer(
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
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """An optimizer of the same class and configuration that steps with the gradients of all ranks."""
    return _create(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups if groups is not None else num_groups or None,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def broadcast_global_variables(root_rank: int) -> Any:
    """For TensorFlow 1 graphs; RuntimeError with advice if TensorFlow runs eagerly."""
    return _hvd.broadcast_global_variables(root_rank)


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> tf.Tensor:
    """Reduces a number, an array or a tensor; averages by default."""
    return _hvd.allreduce(
        tf.convert_to_tensor(value),
        average=average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )


def allgather(value: Any, name: Optional[str] = None) -> tf.Tensor:
    """Concatenates the ranks' values along the first dimension."""
    return _hvd.allgather(tf.convert_to_tensor(value), name=name)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> tf.Tensor:
    """Returns the value of `root_rank`."""
    return _hvd.broadcast(tf.convert_to_tensor(value), root_rank, name=name)


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> tf.Tensor:
    """Returns this rank's part, along the first dimension, of the reduction."""
    return _hvd.reducescatter(tf.convert_to_tensor(value), name=name, op=op)


def load_model(
    filepath: Any,
    custom_optimizers: Optional[List[type]] = None,
    custom_objects: Optional[Dict[str, Any]] = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a saved model with its optimizer's state, ready to continue training on all ranks."""
    return _load_model(tf.keras, filepath, custom_optimizers, custom_objects, compression)


def __getattr__(name: str) -> Any:
    if name == "elastic":
        import importlib

        return importlib.import_module("horovod.tensorflow.keras.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
