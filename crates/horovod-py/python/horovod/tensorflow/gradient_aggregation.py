"""Gradients added up locally over several backward passes, and reduced at the last of them. Used by the optimizer wrappers.

Sums live in variables, so that they work eagerly, inside a tf.function and in graphs of TensorFlow 1.
"""

from typing import Any, Callable, List, Optional

import tensorflow as tf


class LocalGradientAggregationHelper:
    """Adds gradients up. `allreduce_func(gradients, variables)` is asked on every n-th pass."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[List[Any], List[Any]], List[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
    ):
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_func = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.counter: Optional[tf.Variable] = None
        self._n_passes: Optional[tf.Tensor] = None
        self.sums: List[Optional[tf.Variable]] = []

    def aggregate(self, gradients: List[Any]) -> List[Any]:
        """Adds this pass's gradients, counts it, and gives the sums so far; None where a gradient is None."""
        gradients = [self._densed(gradient) for gradient in gradients]
        self._ensure_variables(gradients)
        added = [
            None if gradient is None else total.assign_add(gradient, read_value=True)
            for gradient, total in zip(gradients, self.sums)
        ]
        added = [None if total is None else tf.convert_to_tensor(total) for total in added]
        # As tensors, each needs the one before it: graphs of TensorFlow 1 run nothing that nobody needs.
        with tf.control_dependencies([total for total in added if total is not None]):
            self._n_passes = tf.convert_to_tensor(self.counter.assign_add(1, read_value=True))
        return added

    def is_last_pass(self) -> Any:
        """Of a step; after `aggregate`."""
        return tf.equal(self._n_passes % self.backward_passes_per_step, 0)

    def reduced(self, sums: List[Any], variables: List[Any]) -> List[Any]:
        """What the optimizer is given on the last pass; the sums begin anew."""
        if self.average_aggregated_gradients:
            sums = [None if total is None else total / self.backward_passes_per_step for total in sums]
        gradients = self.allreduce_func([None if total is None else tf.identity(total) for total in sums], variables)
        with tf.control_dependencies([gradient for gradient in gradients if gradient is not None]):
            cleared = [total.assign(tf.zeros_like(total)) for total in self.sums if total is not None]
        with tf.control_dependencies([tf.convert_to_tensor(total) for total in cleared]):
            return [None if gradient is None else tf.identity(gradient) for gradient in gradients]

    def apply(self, gradients: List[Any], variables: List[Any], update: Callable[[List[Any]], Any], skip: Callable[[], Any]) -> None:
        """One backward pass: `update` with the reduced gradients on the last of a step, else `skip`."""
        sums = self.aggregate(gradients)

        def last() -> tf.Tensor:
            update(self.reduced(sums, variables))
            return tf.constant(True)

        def between() -> tf.Tensor:
            skip()
            return tf.constant(False)

        tf.cond(self.is_last_pass(), last, between)

    def _densed(self, gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if not self.sparse_as_dense:
            raise ValueError(
                "IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is False. "
                "Please set sparse_as_dense=True."
            )
        return tf.convert_to_tensor(gradient)

    def _ensure_variables(self, gradients: List[Any]) -> None:
        if self.counter is not None:
            return
        # Outside of the function being traced: they live longer than it.
        with tf.init_scope():
            self.counter = tf.Variable(0, trainable=False, dtype=tf.int64, name="aggregation_counter")
            self.sums = [
                None if g is None else tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False, name=f"aggregated_{number}")
                for number, g in enumerate(gradients)
            ]
