"""Executes collectives on TensorFlow tensors. Every collective of this package is a list of requests passed to
`execute`.

Requests of one list are in flight together. Eager tensors go directly to the engine, those on a GPU by a native op. In a graph they become ops:
native ones, registered by `native` if this TensorFlow allows it, otherwise one Python callback for the whole list
(`callback`). Native ops do not block TensorFlow's threads, so ranks may run them in different orders without a
deadlock.
"""

from typing import Any, List, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from horovod import _core, _numpy
from horovod.tensorflow import callback, native
from horovod.tensorflow.errors import as_tensorflow_errors
from horovod.tensorflow.util import compiled_by_xla

OP_NAMES = {
    _core.ALLREDUCE: "HorovodAllreduce",
    _core.ALLGATHER: "HorovodAllgather",
    _core.BROADCAST: "HorovodBroadcast",
    _core.ALLTOALL: "HorovodAlltoall",
    _core.REDUCESCATTER: "HorovodReducescatter",
}


class Request(NamedTuple):
    """A collective on one tensor or on a group. `name` is the name by which the ranks match it."""

    kind: int
    name: str
    tensors: List[Any]
    op: int = 1
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    splits: Optional[Any] = None
    process_set: int = 0
    grouped: bool = False

    @property
    def op_name(self) -> str:
        plain = OP_NAMES[self.kind]
        return plain.replace("Horovod", "HorovodGrouped") if self.grouped else plain

    def submit(self, arrays: List[Any], splits: Optional[Any]) -> "_numpy.Pending":
        return _numpy.submit(
            self.kind,
            self.name,
            arrays,
            op=self.op,
            prescale=self.prescale,
            postscale=self.postscale,
            root=self.root,
            splits=_as_splits(splits),
            process_set=self.process_set,
            grouped=self.grouped,
        )

    def wait(self, pending: "_numpy.Pending") -> List[np.ndarray]:
        """Waits for the results. An alltoall has two: the rows, and the number received from each rank."""
        return list(_numpy.wait_with_received(pending)) if self.kind == _core.ALLTOALL else _numpy.wait(pending)


def execute(requests: List[Request]) -> List[List[tf.Tensor]]:
    """Executes the requests and returns the results of each."""
    if not requests:
        return []
    if tf.executing_eagerly():
        return native.at_once(requests) if _all_on_gpu(requests) else _at_once(requests)
    if compiled_by_xla():
        raise ValueError(
            f"{requests[0].op_name} cannot be compiled by XLA: it talks to other processes. Call it outside of functions with "
            "jit_compile=True, or set jit_compile=False for this one (in Keras: model.compile(..., jit_compile=False))."
        )
    return native.enqueue(requests) if native.is_available() else callback.enqueue(requests)


def _all_on_gpu(requests: List[Request]) -> bool:
    tensors = [tensor for request in requests for tensor in request.tensors]
    return all("GPU" in tensor.device for tensor in tensors) and bool(tensors) and native.uses_gpu()


def _at_once(requests: List[Request]) -> List[List[tf.Tensor]]:
    pending, results, failure = [], [], None
    for request in requests:
        try:
            with as_tensorflow_errors(request.op_name):
                pending.append(request.submit([t.numpy() for t in request.tensors], request.splits))
        except tf.errors.OpError as error:
            failure = error
            break
    # All submitted requests are waited for even if one fails, since their memory is in use until then.
    for request, each in zip(requests, pending):
        try:
            with as_tensorflow_errors(request.op_name):
                arrays = request.wait(each)
            results.append([tf.convert_to_tensor(array) for array in arrays])
        except tf.errors.OpError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return results


def _as_splits(splits: Optional[Any]) -> Optional[List[int]]:
    if splits is None:
        return None
    splits = np.asarray(splits)
    if splits.ndim != 1:
        raise ValueError("alltoall expects a 1D splits tensor")
    if splits.dtype != np.int32:
        raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
    return splits.tolist()
