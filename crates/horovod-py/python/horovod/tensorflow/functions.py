"""Broadcasts variables and Python objects from one rank to the others, before or during the first step."""

import io
from typing import Any, Callable, Iterable, List, Optional

import numpy as np
import tensorflow as tf

from horovod import _core, _numpy
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.mpi_ops import wire_name
from horovod.tensorflow.requests import Request, execute
from horovod.tensorflow.util import _executing_eagerly, native_variable, registered_id


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Gives all ranks the values of `root_rank`. In a TensorFlow 1 graph, returns the operation that does."""
    return _broadcast_and_assign(list(variables), root_rank, None, process_set)


def broadcast_(variables: Iterable[Any], root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> List[Any]:
    """Broadcasts in place and returns the variables, with the values of `root_rank`."""
    variables = list(variables)
    kinds = {_is_resource(variable) for variable in variables}
    if len(kinds) > 1:
        raise ValueError("All variables passed to broadcast_() should be of the same kind, resource or reference.")
    done = _broadcast_and_assign(variables, root_rank, name, process_set)
    if done is None:
        return variables
    with tf.control_dependencies([done]):
        return [tf.identity(variable) for variable in variables]


def broadcast_global_variables(root_rank: int) -> Any:
    """Only for TensorFlow 1 graphs."""
    if _executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def broadcast_object(
    obj: Any, root_rank: int = 0, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Broadcasts a Python object with pickle. `session` is unused, since no graph is involved."""
    import cloudpickle

    name = name or type(obj).__name__
    members, is_root = registered_id(process_set), _core.rank() == root_rank
    if is_root:
        payload = np.frombuffer(cloudpickle.dumps(obj), dtype=np.uint8)
    length = np.array([payload.size if is_root else 0], dtype=np.int64)
    length = _numpy.broadcast([length], f"{name}.sz", root_rank, members)[0]
    if not is_root:
        payload = np.zeros(int(length[0]), dtype=np.uint8)
    payload = _numpy.broadcast([payload], f"{name}.t", root_rank, members)[0]
    return obj if is_root else cloudpickle.load(io.BytesIO(payload.tobytes()))


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """As `broadcast_object`, as a function of the object."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[Any]:
    """Gathers the objects of all members, in order of rank."""
    import cloudpickle

    name = name or type(obj).__name__
    members = registered_id(process_set)
    payload = np.frombuffer(cloudpickle.dumps(obj), dtype=np.uint8)
    lengths = _numpy.allgather(np.array([payload.size], dtype=np.int64), f"{name}.sz", members)
    whole = _numpy.allgather(payload, f"{name}.t", members).tobytes()
    ends = np.cumsum(lengths)
    return [cloudpickle.loads(whole[end - length : end]) for length, end in zip(lengths, ends)]


def _broadcast_and_assign(variables: List[Any], root_rank: int, name: Optional[str], process_set: ProcessSet) -> Any:
    """Broadcasts all variables in one batch. Named by position: the variables' own names may be numbered differently on
    ranks that built more models."""
    requests = []
    for number, variable in enumerate(variables):
        value = tf.convert_to_tensor(native_variable(variable))
        wire = wire_name("HorovodBroadcast", [value], f"{name or 'HorovodBroadcast_variables'}_{number}")
        requests.append(
            Request(_core.BROADCAST, wire, [value], root=root_rank, process_set=registered_id(process_set))
        )
    values = [results[0] for results in execute(requests)]
    return tf.group(*[native_variable(variable).assign(value) for variable, value in zip(variables, values)])


def _is_resource(variable: Any) -> bool:
    return getattr(native_variable(variable), "dtype", None) is not None and not getattr(
        native_variable(variable).dtype, "_is_ref_dtype", False
    )
