"""Collectives in a graph as operations of TensorFlow's own, registered while it runs through its C API. Used by `requests` where it can be.

TensorFlow's functions are found in the library that is loaded, and their addresses handed to the engine's side, which registers the
operations. Their kernels are asynchronous: none keeps a thread of TensorFlow's executor while other ranks are waited for. No Python runs
in a step, and nobody waits for the GIL. HOROVOD_TENSORFLOW_OPS=callback does without.
"""

import ctypes
import functools
import itertools
import os
import struct
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

import tensorflow as tf

from horovod import _core
from horovod.tensorflow.ordering import after_all, after_joins, run_independently

if TYPE_CHECKING:
    from horovod.tensorflow.requests import Request

@functools.lru_cache(maxsize=None)
def is_available() -> bool:
    """Registers, the first time."""
    if os.environ.get("HOROVOD_TENSORFLOW_OPS", "native") == "callback":
        return False
    try:
        _core.register_tensorflow(_symbols())
    except (AttributeError, OSError, ValueError):
        # An older TensorFlow, whose C API has less, or an engine built without its side of this.
        return False
    return True


def enqueue(requests: "List[Request]") -> "List[List[tf.Tensor]]":
    """Adds operations to the graph; their outputs, as each request has them. Neighbours of one kind become one operation."""
    results: List[List[tf.Tensor]] = []
    for _, alike in itertools.groupby(requests, _kind):
        mine = list(alike)
        with after_joins():
            op = _operation(mine)
        run_independently(op)
        outputs = iter(op.outputs)
        for request in mine:
            results.append([_shaped(request, tensor, next(outputs)) for tensor in request.tensors])
            if request.kind == _core.ALLTOALL:
                results[-1].append(next(outputs))
                results[-1][-1].set_shape([None])
    return results


def join() -> tf.Tensor:
    """The rank that joined last."""
    from tensorflow.python.framework import op_def_library

    with after_all(), tf.device("/CPU:0"):
        _, _, op, _ = op_def_library._apply_op_helper("HorovodJoin", name="HorovodJoin")
    run_independently(op, is_join=True)
    op.outputs[0].set_shape([])
    return op.outputs[0]


def _operation(requests: "List[Request]") -> tf.Operation:
    from tensorflow.python.framework import op_def_library

    first = requests[0]
    inputs = {"tensors": [tensor for request in requests for tensor in request.tensors]}
    if first.kind == _core.ALLTOALL:
        inputs["splits"] = _splits(first)
    with tf.device("/CPU:0"):
        _, _, op, _ = op_def_library._apply_op_helper(
            first.op_name,
            name=first.op_name,
            requests="\n".join(f"{len(request.tensors)} {request.name}" for request in requests),
            kind=first.kind,
            grouped=first.grouped,
            reduce_op=first.op,
            prescale_bits=_bits(first.prescale),
            postscale_bits=_bits(first.postscale),
            root_rank=first.root,
            process_set_id=first.process_set,
            **inputs,
        )
    return op


def _kind(request: "Request") -> Tuple[Any, ...]:
    """What one operation cannot have twice. An alltoall is always alone."""
    alone = request.name if request.kind == _core.ALLTOALL else None
    return (*request._replace(name="", tensors=[], splits=None), alone)


def _shaped(request: "Request", tensor: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    """Of the others the operation itself knows."""
    if request.kind not in (_core.ALLREDUCE, _core.BROADCAST) and tensor.shape.rank:
        output.set_shape([None] + tensor.shape.as_list()[1:])
    return output


def _splits(request: "Request") -> tf.Tensor:
    if request.splits is None:
        # The kernel knows an empty table for splits that were not given.
        return tf.zeros([0, 0], tf.int32)
    if request.splits.dtype != tf.int32:
        raise tf.errors.InvalidArgumentError(None, None, "alltoall expects splits to contain 32-bit integer elements.")
    return request.splits


def _bits(factor: float) -> int:
    """Attributes of operations are integers or single-precision; this keeps all of a double."""
    return struct.unpack("<q", struct.pack("<d", factor))[0]


def _symbols() -> Dict[str, int]:
    """Addresses by name; what this TensorFlow does not have is left out."""
    library = ctypes.CDLL(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2"))
    functions = {name: getattr(library, name, None) for name in _core.tensorflow_symbols()}
    return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in functions.items() if function}
