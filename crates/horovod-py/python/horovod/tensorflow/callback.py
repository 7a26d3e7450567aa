"""Collectives in a tf.function by one Python callback. Fallback for TensorFlow versions that do not allow ops to be
registered at run time.

A callback handles a whole list: it submits all requests, then waits for all. TensorFlow runs the callbacks of a
tf.function in program order, so ranks cannot deadlock. It runs those of a TensorFlow 1 graph in any order on the few
threads of its executor, where ranks could wait for different operations forever. Callbacks are therefore rejected
there.
"""

from typing import TYPE_CHECKING, Any, List

import numpy as np
import tensorflow as tf

from horovod import _core

if TYPE_CHECKING:
    from horovod.tensorflow.requests import Request


def enqueue(requests: "List[Request]") -> "List[List[tf.Tensor]]":
    """Adds the callback to the graph and returns its outputs, grouped by request."""
    _check_order(requests[0].op_name)
    inputs, dtypes = [], []
    for request in requests:
        inputs += request.tensors + ([] if request.splits is None else [request.splits])
        dtypes += [tensor.dtype for tensor in request.tensors]
        if request.kind == _core.ALLTOALL:
            dtypes.append(tf.int32)

    def run(*arrays: Any) -> List[Any]:
        left = list(arrays)
        pending = []
        for request in requests:
            mine = [left.pop(0) for _ in request.tensors]
            pending.append(request.submit(mine, None if request.splits is None else left.pop(0)))
        results = [request.wait(each) for request, each in zip(requests, pending)]
        return [array for arrays in results for array in arrays]

    with tf.device("/CPU:0"):
        flat = tf.numpy_function(run, inputs, dtypes, name=requests[0].op_name)
    flat = list(flat) if isinstance(flat, (list, tuple)) else [flat]
    return [_shaped(request, flat) for request in requests]


def join() -> tf.Tensor:
    """Returns the rank that joined last."""
    _check_order("HorovodJoin")
    return value(lambda: np.int32(_core.join()), tf.int32, "HorovodJoin")


def value(compute: Any, dtype: tf.DType, name: str) -> tf.Tensor:
    """A number computed when the graph runs."""
    result = tf.numpy_function(compute, [], dtype, name=name)
    result.set_shape([])
    return result


def _check_order(op_name: str) -> None:
    if not tf.compat.v1.get_default_graph().building_function:
        raise RuntimeError(
            f"{op_name} in a graph of TensorFlow 1 needs native ops, which "
            "cannot be registered with this TensorFlow or are disabled by HOROVOD_TENSORFLOW_OPS=callback. Use tf.function, or a "
            "TensorFlow for Linux from 2.7 on."
        )


def _shaped(request: "Request", flat: "List[tf.Tensor]") -> "List[tf.Tensor]":
    mine = []
    for tensor in request.tensors:
        result = flat.pop(0)
        if request.kind in (_core.ALLREDUCE, _core.BROADCAST):
            result.set_shape(tensor.shape)
        elif tensor.shape.rank:
            result.set_shape([None] + tensor.shape.as_list()[1:])
        mine.append(result)
    if request.kind == _core.ALLTOALL:
        received = flat.pop(0)
        received.set_shape([None])
        mine.append(received)
    return mine
