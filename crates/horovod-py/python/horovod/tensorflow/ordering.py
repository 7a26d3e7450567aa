"""Order of collectives in a tf.function. TensorFlow runs stateful operations in program order, each after the end of
the one before. Collectives are exempt: another rank may have them in another order, and ranks match them by name.
Only a join runs after everything called before it, and before everything called after it.

A TensorFlow 1 graph has no order except its edges, so nothing is done there.
"""

from typing import Any, ContextManager

import tensorflow as tf

_OPERATIONS, _JOINS = "horovod_operations", "horovod_joins"


def run_independently(op: tf.Operation, is_join: bool = False) -> None:
    """Makes `op` run before the function returns, independent of all others."""
    manager = getattr(op.graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(op)
        op.graph.add_to_collection(_JOINS if is_join else _OPERATIONS, op)


def after_joins() -> ContextManager[Any]:
    """For collectives."""
    return tf.control_dependencies(_called(_JOINS))


def after_all() -> ContextManager[Any]:
    """For a join."""
    return tf.control_dependencies(_called(_OPERATIONS) + _called(_JOINS))


def _called(collection: str) -> Any:
    return tf.compat.v1.get_default_graph().get_collection(collection)
