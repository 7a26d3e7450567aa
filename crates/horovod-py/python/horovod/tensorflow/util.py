"""Utilities of this package: eager execution, variables as keys, ids of process sets.

Knows nothing of collectives.
"""

import functools
import os
from typing import Any, Callable, Iterable, List

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util

from horovod import _core
from horovod.common.process_sets import process_set_id

_cache = functools.lru_cache(maxsize=None)


def _executing_eagerly() -> bool:
    """Whether operations run immediately: not in a tf.function or a TensorFlow 1 graph."""
    return tf.executing_eagerly()


def in_elastic_graph() -> bool:
    """Whether the code being traced makes a graph of an elastic job, which may outlive a change of the number of ranks."""
    return os.environ.get("HOROVOD_ELASTIC") == "1" and not tf.executing_eagerly()


def _make_subgraph(f: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(f)


def compiled_by_xla() -> bool:
    """Whether the code being traced will be compiled by XLA, which cannot compile communication with other processes."""
    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph())


def vars_to_refs(variables: Any) -> Any:
    """References of variables, since variables themselves are not hashable."""
    if isinstance(variables, (list, tuple)):
        return tuple(vars_to_refs(v) for v in variables)
    return variables.ref()


def refs_to_vars(refs: Any) -> Any:
    if isinstance(refs, (list, tuple)):
        return [refs_to_vars(r) for r in refs]
    return refs.deref()


def native_variable(variable: Any) -> Any:
    """The tf.Variable inside of a Keras 3 variable; others unchanged."""
    inner = getattr(variable, "value", None)
    return inner if hasattr(inner, "assign") else variable


def key(variable: Any) -> int:
    """Identity key, equal for a Keras variable and its tf.Variable."""
    return id(native_variable(variable))


def keys(variables: Iterable[Any]) -> List[int]:
    return [key(variable) for variable in variables]


def vars_to_refs(vars: Any) -> Any:
    """Hashable keys for variables; a list becomes a tuple. Upstream's name."""
    return tuple(vars_to_refs(v) for v in vars) if isinstance(vars, (list, tuple)) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables of `vars_to_refs`."""
    return [refs_to_vars(r) for r in refs] if isinstance(refs, (list, tuple)) else refs.deref()


def registered_id(process_set: Any) -> int:
    """The id of a participating set. ValueError if it was not added or its id is invalid."""
    number = process_set_id(process_set)
    if number:
        _core.process_set_ranks(number)
    return number
