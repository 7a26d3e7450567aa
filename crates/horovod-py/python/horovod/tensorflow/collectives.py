"""Public allreduce and reducescatter, with averaging, compression and sparse tensors. Built on `mpi_ops`."""

from typing import Any, List, Optional

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import (
    Adasum,
    Average,
    Sum,
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    check_num_rank_power_of_2,
    handle_average_backwards_compatibility,
    member_count,
    size,
)


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over all members; averages unless `op` is given. tf.IndexedSlices are gathered instead."""
    op = handle_average_backwards_compatibility(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        with tf.device(device_sparse):
            return _sparse_allreduce(tensor, op, prescale_factor, postscale_factor, name, process_set, ignore_name_scope)
    _check_adasum(op, process_set)
    with tf.device(device_dense):
        short, context = compression.compress(tf.convert_to_tensor(tensor))
        reduced = _allreduce(short, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)
        return compression.decompress(reduced, context)


def grouped_allreduce(
    tensors: List[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> List[Any]:
    """Reduces a group of tensors, all or none."""
    if not tensors:
        return tensors
    op = handle_average_backwards_compatibility(op, average)
    if any(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
        with tf.device(device_sparse):
            return [
                allreduce(
                    tensor,
                    compression=compression,
                    op=op,
                    prescale_factor=prescale_factor,
                    postscale_factor=postscale_factor,
                    name=name and f"{name}_{number}",
                    process_set=process_set,
                    ignore_name_scope=ignore_name_scope,
                )
                for number, tensor in enumerate(tensors)
            ]
    _check_adasum(op, process_set)
    with tf.device(device_dense):
        short, contexts = zip(*[compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors])
        reduced = _grouped_allreduce(
            list(short), name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )
        return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Returns this rank's part, along the first dimension, of the reduction."""
    with tf.device(device_dense):
        short, context = compression.compress(tf.convert_to_tensor(tensor))
        part = _reducescatter(short, name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor)
        return compression.decompress(part, context)


def grouped_reducescatter(
    tensors: List[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[tf.Tensor]:
    if not tensors:
        return tensors
    with tf.device(device_dense):
        short, contexts = zip(*[compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors])
        parts = _grouped_reducescatter(
            list(short), None, op, False, process_set, prescale_factor, postscale_factor
        )
        return [compression.decompress(part, context) for part, context in zip(parts, contexts)]


def _sparse_allreduce(
    tensor: tf.IndexedSlices,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    name: Optional[str],
    process_set: ProcessSet,
    ignore_name_scope: bool,
) -> tf.IndexedSlices:
    """Concatenates the slices of all ranks. An index of several ranks appears several times; its values are added up
    when used."""
    check_sparse(op, prescale_factor, postscale_factor)
    values = allgather(tensor.values, name and f"{name}.values", ignore_name_scope, process_set)
    indices = allgather(tensor.indices, name and f"{name}.indices", ignore_name_scope, process_set)
    if op == Average:
        values = values / tf.cast(member_count(process_set), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=tensor.dense_shape)


def check_sparse(op: int, prescale_factor: float, postscale_factor: float) -> None:
    """Rejects reductions that have no meaning for slices, which are gathered, not added."""
    if op == Adasum:
        raise NotImplementedError(
            "The Adasum reduction does not currently support sparse tensors. As a workaround please pass sparse_as_dense=True to "
            "DistributedOptimizer"
        )
    if op not in (Average, Sum):
        raise NotImplementedError("Sparse tensors (tf.IndexedSlices) can only be reduced with op=Average or op=Sum.")
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError(
            "prescale_factor and postscale_factor are not supported for sparse tensors (tf.IndexedSlices). As a workaround please "
            "make them dense with tf.convert_to_tensor."
        )


def _check_adasum(op: int, process_set: ProcessSet) -> None:
    if op != Adasum:
        return
    if process_set is not global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    check_num_rank_power_of_2(size())
