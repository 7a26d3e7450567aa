"""The order of collectives in a tf.function. TensorFlow runs operations with effects in the order of the program, each after the end of the
one before. Collectives are exempt: another rank may have them in another order, and ranks agree by name. Only a join is
after everything that was called before it, and before everything that was called after.

A graph of TensorFlow 1 has no order but that of its edges, and nothing is done here.
"""

from typing import Any, ContextManager

import tensorflow as tf

_OPERATIONS, _JOINS = "horovod_operations", "horovod_joins"


def run_independently(op: tf.Operation, is_join: bool = False) -> None:
    """`op` runs before the function returns, beside all others."""
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
