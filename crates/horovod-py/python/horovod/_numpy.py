"""Collectives on NumPy arrays, for the TensorFlow and Keras layers, which pass arrays in main memory.

Never imports a framework. Submitting never waits, so several operations may be in flight before the first wait.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from horovod import _core

DTYPES: Dict[str, int] = {
    "uint8": 0,
    "int8": 1,
    "uint16": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bool": 9,
    "bfloat16": 10,
}
IN_PLACE_KINDS = (_core.ALLREDUCE, _core.BROADCAST)


class Pending(NamedTuple):
    """An operation in flight. The engine writes to `outputs`; it allocates those that are None."""

    handle: int
    outputs: List[Optional[np.ndarray]]
    dtypes: List[np.dtype]


def submit(
    kind: int,
    name: Optional[str],
    arrays: Sequence[Any],
    prefix: str = "",
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    splits: Optional[Sequence[int]] = None,
    process_set: int = 0,
    grouped: bool = False,
) -> Pending:
    """Submits one operation, or one group."""
    # Not ascontiguousarray, which adds a dimension to scalars.
    inputs = [np.asarray(array, order="C") for array in arrays]
    outputs = [np.empty_like(array) if kind in IN_PLACE_KINDS else None for array in inputs]
    handle = _core.submit(
        kind,
        prefix,
        name,
        [_described(before, after) for before, after in zip(inputs, outputs)],
        op=op,
        prescale=prescale,
        postscale=postscale,
        root=root,
        splits=splits,
        process_set=process_set,
        grouped=grouped,
        keep=(inputs, outputs),
    )
    return Pending(handle, outputs, [array.dtype for array in inputs])


def wait(pending: Pending) -> List[np.ndarray]:
    """Waits and returns the results, one per array."""
    return _results(pending)[0]


def wait_with_received(pending: Pending) -> Tuple[np.ndarray, np.ndarray]:
    """Waits for an alltoall: the result, and the number of rows received from each member."""
    results, made = _results(pending)
    return results[0], np.asarray(made[0].received, dtype=np.int32)


def _results(pending: Pending) -> Tuple[List[np.ndarray], List[Any]]:
    made = _core.synchronize(pending.handle)
    if made is None:
        raise ValueError(f"The operation with handle {pending.handle} was waited for twice.")
    results = [
        array if output is None else np.asarray(output).view(dtype)
        for array, output, dtype in zip(pending.outputs, made, pending.dtypes)
    ]
    return results, made


def allreduce(array: Any, name: str, op: int, prescale: float = 1.0, postscale: float = 1.0, process_set: int = 0) -> np.ndarray:
    return wait(submit(_core.ALLREDUCE, name, [array], op=op, prescale=prescale, postscale=postscale, process_set=process_set))[0]


def allgather(array: Any, name: str, process_set: int = 0) -> np.ndarray:
    return wait(submit(_core.ALLGATHER, name, [array], process_set=process_set))[0]


def broadcast(arrays: Sequence[Any], name: str, root: int, process_set: int = 0) -> List[np.ndarray]:
    """Broadcasts all arrays at once, named `<name>.<number>`."""
    pending = [
        submit(_core.BROADCAST, f"{name}.{number}", [array], root=root, process_set=process_set)
        for number, array in enumerate(arrays)
    ]
    return [wait(each)[0] for each in pending]


def reducescatter(array: Any, name: str, op: int) -> np.ndarray:
    return wait(submit(_core.REDUCESCATTER, name, [array], op=op))[0]


def _described(before: np.ndarray, after: Optional[np.ndarray]) -> Tuple[int, int, int, Tuple[int, ...]]:
    try:
        dtype = DTYPES[before.dtype.name]
    except KeyError:
        raise ValueError(f"Tensor type {before.dtype.name} is not supported.") from None
    return before.ctypes.data, 0 if after is None else after.ctypes.data, dtype, before.shape
