"""Local gradient aggregation over several backward passes, with a reduction in the last one. Used by the optimizer
wrappers.

Sums are kept in variables, so it works eagerly, in a tf.function and in TensorFlow 1 graphs.
"""

from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.mpi_ops import member_count
from horovod.tensorflow.util import key, native_variable


class LocalGradientAggregationHelper:
    """Accumulates gradients. `allreduce_func(gradients, variables)` is called on every n-th pass. `counter` has the
    number of passes since then.

    A Keras optimizer (`optimizer_type`) in a TensorFlow 1 graph uses Keras' session, in which the variables are
    initialized here. For other optimizers the caller initializes them with all global variables.
    """

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[List[Any], List[Any]], List[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
        rank: int = 0,
        optimizer_type: str = _OPTIMIZER_TYPE_LEGACY,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ):
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_func = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.rank, self.optimizer_type, self.name = rank, optimizer_type, name
        self.process_set, self.scale_local_gradients = process_set, scale_local_gradients
        self.counter: Optional[tf.Variable] = None
        self._n_passes: Optional[tf.Tensor] = None
        self.sums: List[Optional[tf.Variable]] = []
        # Holds references, so that no other variable can get the same key.
        self._local: dict = {}

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable from the reduction."""
        self._local[key(var)] = var

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> List[Any]:
        """One backward pass. Returns the reduced gradients in the last pass of a step, otherwise the sums so far. For
        `apply_gradients`."""
        sums, variables = self.aggregate(list(grads)), list(vars)
        there = [number for number, total in enumerate(sums) if total is not None]

        def last() -> List[tf.Tensor]:
            reduced = self.reduced(sums, variables)
            return [tf.convert_to_tensor(reduced[number]) for number in there]

        def between() -> List[tf.Tensor]:
            return [tf.identity(sums[number]) for number in there]

        results: List[Any] = [None] * len(sums)
        if there:
            chosen = tf.cond(self.is_last_pass(), last, between)
            chosen = list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]
            for number, gradient in zip(there, chosen):
                results[number] = gradient
        return results

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the closure in the last pass of a step; otherwise only counts the optimizer's iterations. After
        `compute_gradients`."""

        def last() -> tf.Tensor:
            done = apply_grads_closure()
            with tf.control_dependencies([done] if isinstance(done, (tf.Operation, tf.Tensor)) else []):
                return tf.constant(True)

        def between() -> tf.Tensor:
            step = kwargs.get("global_step", getattr(optimizer, "iterations", None))
            advanced = [] if step is None else [tf.convert_to_tensor(native_variable(step).assign_add(1, read_value=True))]
            with tf.control_dependencies(advanced):
                return tf.constant(False)

        return tf.group(tf.cond(self.is_last_pass(), last, between))

    def aggregate(self, gradients: List[Any]) -> List[Any]:
        """Adds this pass's gradients, counts it, and returns the sums so far; None for gradients that are None."""
        gradients = [self._densed(gradient) for gradient in gradients]
        self._ensure_variables(gradients)
        added = [
            None if gradient is None else total.assign_add(gradient, read_value=True)
            for gradient, total in zip(gradients, self.sums)
        ]
        added = [None if total is None else tf.convert_to_tensor(total) for total in added]
        # With explicit dependencies, since a TensorFlow 1 graph only runs operations that others need.
        with tf.control_dependencies([total for total in added if total is not None]):
            n_passes = (self.counter + 1) % self.backward_passes_per_step
            self._n_passes = tf.convert_to_tensor(self.counter.assign(n_passes, read_value=True))
        return added

    def is_last_pass(self) -> Any:
        """Whether this is the last pass of a step. After `aggregate`."""
        return tf.equal(self._n_passes, 0)

    def reduced(self, sums: List[Any], variables: List[Any]) -> List[Any]:
        """The reduced gradients for the optimizer in the last pass; resets the sums."""
        if self.average_aggregated_gradients:
            sums = [None if total is None else total / self.backward_passes_per_step for total in sums]
        gradients = self._reduced_but_local([None if total is None else tf.identity(total) for total in sums], variables)
        with tf.control_dependencies([gradient for gradient in gradients if gradient is not None]):
            cleared = [total.assign(tf.zeros_like(total)) for total in self.sums if total is not None]
        with tf.control_dependencies([tf.convert_to_tensor(total) for total in cleared]):
            return [None if gradient is None else tf.identity(gradient) for gradient in gradients]

    def _reduced_but_local(self, gradients: List[Any], variables: List[Any]) -> List[Any]:
        if not self._local:
            return list(self.allreduce_func(gradients, variables))
        from horovod.tensorflow.gradients import scale_local

        everybodys = [number for number, variable in enumerate(variables) if key(variable) not in self._local]
        reduced = self.allreduce_func([gradients[n] for n in everybodys], [variables[n] for n in everybodys])
        n_members = member_count(self.process_set) if self.scale_local_gradients else 1
        results = [scale_local(gradient, n_members) for gradient in gradients]
        for number, gradient in zip(everybodys, reduced):
            results[number] = gradient
        return results

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
        # Created outside of the function being traced, since they outlive it.
        with tf.init_scope():
            self.counter = tf.Variable(0, trainable=False, dtype=tf.int32, name="aggregation_counter")
            self.sums = [
                None if g is None else tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False, name=f"aggregated_{number}")
                for number, g in enumerate(gradients)
            ]
        if self.optimizer_type == self._OPTIMIZER_TYPE_KERAS and not tf.compat.v1.executing_eagerly_outside_functions():
            made = [self.counter, *[total for total in self.sums if total is not None]]
            tf.compat.v1.keras.backend.get_session().run(tf.compat.v1.variables_initializer(made))
