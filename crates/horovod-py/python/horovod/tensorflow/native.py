"""Collectives in a graph as native TensorFlow ops, registered at run time through TensorFlow's C API. Used by
`requests` if available.

TensorFlow's functions are resolved in the loaded library, and their addresses are passed to the engine, which
registers the ops. Their kernels are asynchronous: none blocks a thread of TensorFlow's executor while it waits for
other ranks. No Python runs in a step, and no thread waits for the GIL. HOROVOD_TENSORFLOW_OPS=callback disables it.

HOROVOD_TENSORFLOW_OPS=gpu leaves ops on TensorFlow's GPU, so that GPU tensors are not copied to main memory. That has
never run on a GPU.
"""

import contextlib
import ctypes
import functools
import itertools
import logging
import os
import struct
from typing import TYPE_CHECKING, Any, ContextManager, Dict, List, Optional, Tuple

import tensorflow as tf

from horovod import _core
from horovod.tensorflow.ordering import after_all, after_joins, run_independently

if TYPE_CHECKING:
    from horovod.tensorflow.requests import Request

log = logging.getLogger("horovod")


@functools.lru_cache(maxsize=None)
def is_available() -> bool:
    """Whether native ops can be used; registers them on the first call."""
    if os.environ.get("HOROVOD_TENSORFLOW_OPS", "native") == "callback":
        return False
    try:
        _core.register_tensorflow(_symbols())
    except (AttributeError, OSError, ValueError):
        # An older TensorFlow with a smaller C API, or an engine built without TensorFlow support.
        return False
    return True


@functools.lru_cache(maxsize=None)
def uses_gpu() -> bool:
    """Whether ops may run on TensorFlow's GPU. Says once in the log why GPU tensors pass through main memory."""
    # Logical devices would initialize TensorFlow, after which it refuses settings of the script.
    if not tf.config.list_physical_devices("GPU"):
        return False
    reason = gpu_obstacle()
    if reason is None:
        log.info("TensorFlow: the engine accesses tensors in the memory of the GPU.")
    else:
        log.warning("TensorFlow: GPU tensors pass through main memory: %s.", reason)
    return reason is None


def gpu_obstacle() -> Optional[str]:
    """Why ops cannot run on a GPU; None if they can."""
    if os.environ.get("HOROVOD_TENSORFLOW_OPS", "native") != "gpu":
        return "HOROVOD_TENSORFLOW_OPS=gpu is not set"
    if not is_available():
        return "the ops cannot be registered with this TensorFlow"
    return _core.context_events_obstacle()


def at_once(requests: "List[Request]") -> "List[List[tf.Tensor]]":
    """Executes ops on eager tensors and returns their outputs, grouped by request."""
    from tensorflow.python.eager import context, execute

    results: List[List[tf.Tensor]] = []
    for _, alike in itertools.groupby(requests, _kind):
        mine = list(alike)
        tensors = [tensor for request in mine for tensor in request.tensors]
        attributes = {"T": [tensor.dtype.as_datatype_enum for tensor in tensors], **_attributes(mine)}
        is_alltoall = mine[0].kind == _core.ALLTOALL
        with _placement(mine):
            outputs = execute.execute(
                mine[0].op_name.encode(),
                len(tensors) + is_alltoall,
                inputs=tensors + ([_splits(mine[0])] if is_alltoall else []),
                attrs=tuple(item for pair in attributes.items() for item in pair),
                ctx=context.context(),
            )
        numbered = iter(outputs)
        results += [[next(numbered) for _ in request.tensors] for request in mine]
        results[-1] += numbered
    return results


def enqueue(requests: "List[Request]") -> "List[List[tf.Tensor]]":
    """Adds ops to the graph and returns their outputs, grouped by request. Adjacent requests of one kind share an op."""
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
    """Returns the rank that joined last."""
    from tensorflow.python.framework import op_def_library

    with after_all(), tf.device("/CPU:0"):
        _, _, op, _ = op_def_library._apply_op_helper("HorovodJoin", name="HorovodJoin")
    run_independently(op, is_join=True)
    op.outputs[0].set_shape([])
    return op.outputs[0]


def _operation(requests: "List[Request]") -> tf.Operation:
    from tensorflow.python.framework import op_def_library

    first = requests[0]
    inputs: Dict[str, Any] = {"tensors": [tensor for request in requests for tensor in request.tensors]}
    if first.kind == _core.ALLTOALL:
        inputs["splits"] = _splits(first)
    with _placement(requests):
        _, _, op, _ = op_def_library._apply_op_helper(first.op_name, name=first.op_name, **_attributes(requests), **inputs)
    return op


def _attributes(requests: "List[Request]") -> Dict[str, Any]:
    first = requests[0]
    return {
        "requests": "\n".join(f"{len(request.tensors)} {request.name}" for request in requests),
        "kind": first.kind,
        "grouped": first.grouped,
        "reduce_op": first.op,
        "prescale_bits": _bits(first.prescale),
        "postscale_bits": _bits(first.postscale),
        "root_rank": first.root,
        "process_set_id": first.process_set,
    }


def _placement(requests: "List[Request]") -> ContextManager[Any]:
    """The device of an op: chosen by TensorFlow, or by the caller, where ops may run on a GPU; the CPU otherwise, and for
    int32, which TensorFlow has in main memory."""
    dtypes = {tensor.dtype for request in requests for tensor in request.tensors}
    return contextlib.nullcontext() if uses_gpu() and tf.int32 not in dtypes else tf.device("/CPU:0")


def _kind(request: "Request") -> Tuple[Any, ...]:
    """The attributes that requests of one op must share. An alltoall always has an op of its own."""
    alone = request.name if request.kind == _core.ALLTOALL else None
    return (*request._replace(name="", tensors=[], splits=None), alone)


def _shaped(request: "Request", tensor: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    """Sets the static shape where the op cannot infer it."""
    if request.kind not in (_core.ALLREDUCE, _core.BROADCAST) and tensor.shape.rank:
        output.set_shape([None] + tensor.shape.as_list()[1:])
    return output


def _splits(request: "Request") -> tf.Tensor:
    if request.splits is None:
        # The kernel treats an empty 2-D tensor as missing splits.
        return tf.zeros([0, 0], tf.int32)
    if request.splits.dtype != tf.int32:
        raise tf.errors.InvalidArgumentError(None, None, "alltoall expects splits to contain 32-bit integer elements.")
    return request.splits


def _bits(factor: float) -> int:
    """The bits of a double as an integer, since op attributes are integers or single-precision."""
    return struct.unpack("<q", struct.pack("<d", factor))[0]


def _symbols() -> Dict[str, int]:
    """Addresses by name, without those that this TensorFlow lacks."""
    library = ctypes.CDLL(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2"))
    functions = {name: getattr(library, name, None) for name in _core.tensorflow_symbols()}
    return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in functions.items() if function}
