"""Collectives on single values such as metrics: numbers, arrays or tensors of any backend. For horovod.keras and its
callbacks.

Values pass through NumPy, since most are small and it works for all backends, except those that the engine can access in
the memory of a device (`device_values`).
"""

import sys
from typing import Any, List, Optional

import numpy as np

from horovod import _numpy
from horovod._keras import device_values
from horovod.common.basics import Average, Sum


def allreduce(
    value: Any,
    name: Optional[str],
    average: Optional[bool],
    prescale_factor: float,
    postscale_factor: float,
    op: Optional[int],
    compression: Any,
) -> Any:
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is None:
        op = Sum if average is False else Average
    short, context = (value, None) if compression is None else compression.compress(as_tensor(value))
    name = name or "HorovodAllreduce"
    reduced = device_values.allreduce(short, name, op, prescale_factor, postscale_factor)
    if reduced is None:
        reduced = _numpy.allreduce(as_array(short), name, op, prescale_factor, postscale_factor)
    return as_tensor(reduced) if compression is None else compression.decompress(as_tensor(reduced), context)


def allgather(value: Any, name: Optional[str]) -> Any:
    name = name or "HorovodAllgather"
    gathered = device_values.allgather(value, name)
    return as_tensor(_numpy.allgather(as_array(value), name)) if gathered is None else gathered


def broadcast(value: Any, root_rank: int, name: Optional[str]) -> Any:
    name = name or "HorovodBroadcast"
    results = device_values.broadcast([value], name, root_rank)
    return as_tensor(_numpy.broadcast([as_array(value)], name, root_rank)[0]) if results is None else results[0]


def reducescatter(value: Any, name: Optional[str], op: int) -> Any:
    name = name or "HorovodReducescatter"
    part = device_values.reducescatter(value, name, op)
    return as_tensor(_numpy.reducescatter(as_array(value), name, op)) if part is None else part


def broadcast_variables(variables: List[Any], root_rank: int) -> None:
    """Named by position in the list: Keras numbers layers, and ranks may have created different numbers of them."""
    name = "HorovodBroadcast_variables"
    values = device_values.broadcast(variables, name, root_rank)
    if values is None:
        values = _numpy.broadcast([as_array(variable) for variable in variables], name, root_rank)
    for variable, value in zip(variables, values):
        assign(variable, value)


def assign(variable: Any, value: Any) -> None:
    """Assigns immediately, also in a graph of TensorFlow 1."""
    session = _session_of(variable)
    if session is None:
        variable.assign(value)
    else:
        variable.load(value, session)


def as_array(value: Any) -> np.ndarray:
    """Converts any value to an array in main memory."""
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    session = _session_of(value)
    if session is not None:
        return np.asarray(session.run(value))
    if hasattr(value, "numpy"):
        return np.asarray(value.numpy())
    if isinstance(value, float):
        # Keras' default precision is float32.
        return np.asarray(value, dtype=np.float32)
    return np.asarray(value)


def as_tensor(value: Any) -> Any:
    """A tensor of the current backend."""
    import keras

    return keras.ops.convert_to_tensor(value)


def _session_of(value: Any) -> Any:
    """Keras' session, if the value is a tensor or variable of a TensorFlow 1 graph; otherwise None."""
    tf = sys.modules.get("tensorflow")
    if tf is None or tf.executing_eagerly() or not isinstance(value, (tf.Tensor, tf.Variable)):
        return None
    return tf.compat.v1.keras.backend.get_session()
