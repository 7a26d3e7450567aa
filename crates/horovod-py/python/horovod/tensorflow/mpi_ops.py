"""Collectives on TensorFlow tensors, with gradients: one function for each, eager or in a graph.

`collectives` adds compression and sparse tensors. Names are chosen here; `requests` executes the operations. Also
re-exports the basics (init, rank, ...), as users and tests expect.
"""

import re
from typing import Any, Callable, List, Optional

import tensorflow as tf
from tensorflow.python.framework import ops

from horovod import _core
from horovod.common.basics import (  # noqa: F401
    Adasum,
    Average,
    Max,
    Min,
    Product,
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
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from horovod.tensorflow import callback, native
from horovod.tensorflow.errors import as_tensorflow_errors
from horovod.tensorflow.requests import Request, execute
from horovod.tensorflow.util import in_elastic_graph, registered_id


class _ReduceOps:
    Average = Average
    Sum = Sum
    Adasum = Adasum


handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_ReduceOps)


def check_num_rank_power_of_2(num_rank: int) -> None:
    """Adasum halves the set of ranks repeatedly."""
    if not num_rank_is_power_2(num_rank):
        raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")


def wire_name(default: str, tensors: List[Any], name: Optional[str], ignore_name_scope: bool = False) -> str:
    """Name by which the ranks match the operation. In a graph it is the name of the node, with its name scope, and
    unique."""
    if tf.executing_eagerly():
        return name or default
    if not name:
        # A group is named after its first and last tensor.
        parts = [default] + [_normalized(tensor.name) for tensor in ([tensors[0]] + tensors[1:][-1:])]
        name = "_".join(parts)
    full = ops.get_default_graph().unique_name(name)
    return full.rsplit("/", 1)[-1] if ignore_name_scope else full


def _allreduce(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Allreduce; the result is the same on every member. Its gradient is the same allreduce of the gradient."""

    def forward(x: tf.Tensor) -> List[tf.Tensor]:
        wire = wire_name("HorovodAllreduce", [x], name, ignore_name_scope)
        settings = {"op": op, "prescale": prescale_factor, "postscale": postscale_factor}
        return execute([Request(_core.ALLREDUCE, wire, [x], process_set=registered_id(process_set), **settings)])[0]

    def backward(gradients: List[tf.Tensor]) -> List[tf.Tensor]:
        return [_allreduce(gradients[0], None, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)]

    return _differentiable(forward, backward, [tensor])[0]


def _grouped_allreduce(
    tensors: List[Any],
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> List[tf.Tensor]:
    """Reduces a group of tensors, all or none, when every rank has submitted it."""

    def forward(*xs: tf.Tensor) -> List[tf.Tensor]:
        wire = wire_name("HorovodGroupedAllreduce", list(xs), name, ignore_name_scope)
        settings = {"op": op, "prescale": prescale_factor, "postscale": postscale_factor, "grouped": True}
        return execute([Request(_core.ALLREDUCE, wire, list(xs), process_set=registered_id(process_set), **settings)])[0]

    def backward(gradients: List[tf.Tensor]) -> List[tf.Tensor]:
        return _grouped_allreduce(gradients, None, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)

    return _differentiable(forward, backward, tensors) if tensors else tensors


def allgather(
    tensor: Any, name: Optional[str] = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set
) -> tf.Tensor:
    """Concatenates the members' tensors along the first dimension, which may differ between them."""

    def forward(x: tf.Tensor) -> List[tf.Tensor]:
        wire = wire_name("HorovodAllgather", [x], name, ignore_name_scope)
        return execute([Request(_core.ALLGATHER, wire, [x], process_set=registered_id(process_set))])[0]

    def backward(gradients: List[tf.Tensor]) -> List[tf.Tensor]:
        mean = _allreduce(gradients[0], None, Average, ignore_name_scope=ignore_name_scope, process_set=process_set)
        return [_own_rows(mean, tensor, process_set)]

    tensor = tf.convert_to_tensor(tensor)
    return _differentiable(forward, backward, [tensor])[0]


def grouped_allgather(
    tensors: List[Any], name: Optional[str] = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set
) -> List[tf.Tensor]:
    def forward(*xs: tf.Tensor) -> List[tf.Tensor]:
        wire = wire_name("HorovodGroupedAllgather", list(xs), name, ignore_name_scope)
        return execute([Request(_core.ALLGATHER, wire, list(xs), process_set=registered_id(process_set), grouped=True)])[0]

    def backward(gradients: List[tf.Tensor]) -> List[tf.Tensor]:
        means = _grouped_allreduce(gradients, None, Average, ignore_name_scope=ignore_name_scope, process_set=process_set)
        return [_own_rows(mean, tensor, process_set) for mean, tensor in zip(means, tensors)]

    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    return _differentiable(forward, backward, tensors) if tensors else tensors


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Returns the tensor of `root_rank`, a global rank. Other ranks pass one of the same shape and dtype."""

    def forward(x: tf.Tensor) -> List[tf.Tensor]:
        wire = wire_name("HorovodBroadcast", [x], name, ignore_name_scope)
        return execute([Request(_core.BROADCAST, wire, [x], root=root_rank, process_set=registered_id(process_set))])[0]

    def backward(gradients: List[tf.Tensor]) -> List[tf.Tensor]:
        mean = _allreduce(gradients[0], None, Average, ignore_name_scope=ignore_name_scope, process_set=process_set)
        if rank() == root_rank:
            return [mean]
        # Depends on the reduction, which would otherwise be pruned while the root waits for it. Not `0 * mean`, which
        # may be NaN.
        with tf.control_dependencies([mean]):
            return [tf.zeros_like(mean)]

    return _differentiable(forward, backward, [tensor])[0]


def alltoall(
    tensor: Any,
    splits: Optional[Any] = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends `splits[i]` rows to member i. With splits given, also returns the number of rows received from each."""
    tensor = tf.convert_to_tensor(tensor)
    given = None if splits is None else tf.convert_to_tensor(splits, dtype=None if tf.is_tensor(splits) else tf.int32)
    received: List[tf.Tensor] = []

    def forward(x: tf.Tensor) -> List[tf.Tensor]:
        wire = wire_name("HorovodAlltoall", [x], name, ignore_name_scope)
        request = Request(_core.ALLTOALL, wire, [x], splits=given, process_set=registered_id(process_set))
        rows, counts = execute([request])[0]
        received.append(counts)
        return [rows]

    def backward(gradients: List[tf.Tensor]) -> List[tf.Tensor]:
        back = alltoall(gradients[0], received[0], None, ignore_name_scope, process_set)[0]
        # Rows that were sent to nobody have no gradient.
        missing = tf.shape(tensor)[0] - tf.shape(back)[0]
        return [tf.concat([back, tf.zeros(tf.concat([[missing], tf.shape(tensor)[1:]], 0), back.dtype)], 0)]

    rows = _differentiable(forward, backward, [tensor])[0]
    return rows if splits is None else (rows, received[0])


def _reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces and returns each member's part of the first dimension."""
    return _scattered([tensor], name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor, False)[0]


def _grouped_reducescatter(
    tensors: List[Any],
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[tf.Tensor]:
    if not tensors:
        return tensors
    return _scattered(tensors, name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor, True)


def _scattered(
    tensors: List[Any],
    name: Optional[str],
    op: int,
    ignore_name_scope: bool,
    process_set: ProcessSet,
    prescale_factor: float,
    postscale_factor: float,
    grouped: bool,
) -> List[tf.Tensor]:
    def forward(*xs: tf.Tensor) -> List[tf.Tensor]:
        for x in xs:
            if x.shape.rank == 0:
                raise tf.errors.InvalidArgumentError(None, None, "Reducescatter does not support scalar inputs")
        default = "HorovodGroupedReducescatter" if grouped else "HorovodReducescatter"
        wire = wire_name(default, list(xs), name, ignore_name_scope)
        settings = {"op": op, "prescale": prescale_factor, "postscale": postscale_factor, "grouped": grouped}
        return execute([Request(_core.REDUCESCATTER, wire, list(xs), process_set=registered_id(process_set), **settings)])[0]

    def backward(gradients: List[tf.Tensor]) -> List[tf.Tensor]:
        factor = prescale_factor * postscale_factor * (process_set.size() if op == Sum else 1)
        if grouped:
            whole = grouped_allgather(gradients, None, ignore_name_scope, process_set)
        else:
            whole = [allgather(gradients[0], None, ignore_name_scope, process_set)]
        return [gradient if factor == 1 else gradient * tf.cast(factor, gradient.dtype) for gradient in whole]

    return _differentiable(forward, backward, tensors)


def join() -> tf.Tensor:
    """Waits until every rank has joined, and contributes zeros to their allreduces meanwhile. Returns the rank that
    joined last, as int32."""
    if tf.executing_eagerly():
        with as_tensorflow_errors("HorovodJoin"):
            return tf.constant(_core.join(), tf.int32)
    return native.join() if native.is_available() else callback.join()


def rank_op(name: Optional[str] = None) -> tf.Tensor:
    return _asked(rank, tf.int32, name or "HorovodRank")


def local_rank_op(name: Optional[str] = None) -> tf.Tensor:
    return _asked(local_rank, tf.int32, name or "HorovodLocalRank")


def local_size_op(name: Optional[str] = None) -> tf.Tensor:
    return _asked(local_size, tf.int32, name or "HorovodLocalSize")


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """Evaluated when the graph runs: it may change in elastic training."""
    return _asked(lambda: len(_core.process_set_ranks(process_set_id)), tf.int32, name or "HorovodSize")


def member_count(process_set: ProcessSet) -> Any:
    """Number of members: a number, or a tensor in the graph of an elastic job, where it may change."""
    return size_op(registered_id(process_set)) if in_elastic_graph() else process_set.size()


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """1 if this rank is a member, else 0."""
    return _asked(lambda: int(rank() in _core.process_set_ranks(process_set_id)), tf.int32, name or "HorovodProcessSetIncluded")


def _asked(compute: Callable[[], int], dtype: tf.DType, name: str) -> tf.Tensor:
    if tf.executing_eagerly():
        return tf.constant(compute(), dtype)
    return callback.value(_int32(compute), dtype, name)


def _int32(compute: Callable[[], int]) -> Callable[[], Any]:
    return lambda: tf.int32.as_numpy_dtype(compute())


def _differentiable(forward: Callable[..., Any], backward: Callable[..., Any], tensors: List[Any]) -> List[tf.Tensor]:
    """Runs forward; for differentiation, backward gets the gradients of all outputs."""

    @tf.custom_gradient
    def both(*xs: tf.Tensor) -> Any:
        return forward(*xs), lambda *gradients: backward([tf.convert_to_tensor(g) for g in gradients])

    results = both(*[tf.convert_to_tensor(tensor) for tensor in tensors])
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _own_rows(whole: tf.Tensor, tensor: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    """This rank's rows of a gathered tensor."""
    n_rows = tf.shape(tensor)[0]
    counts = allgather(tf.reshape(n_rows, [1]), process_set=process_set)
    first = tf.reduce_sum(counts[: process_set.rank()])
    return whole[first : first + n_rows]


def _normalized(name: str) -> str:
    return re.sub("[^a-zA-Z0-9_]", "_", name)
