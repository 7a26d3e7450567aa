"""Distributed TensorFlow 1 optimizers, and a wrapper that also accepts those of Keras."""

from typing import Any, List, Optional

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.collectives import allreduce
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradients import _make_allreduce_grads_fn, checked_groups, scale_local
from horovod.tensorflow.mpi_ops import Adasum, Average, member_count, size
from horovod.tensorflow.util import _executing_eagerly, key

_LegacyOptimizer = tf.compat.v1.train.Optimizer


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """An optimizer that steps with the gradients of all ranks, from one of TensorFlow 1 or of Keras."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    groups = checked_groups(groups, num_groups)
    if isinstance(optimizer, _LegacyOptimizer):
        if op == Adasum:
            return _DistributedAdasumOptimizer(optimizer, name, use_locking, compression, backward_passes_per_step)
        if backward_passes_per_step > 1 and _executing_eagerly():
            raise ValueError(
                "backward_passes_per_step > 1 is not supported yet for legacy optimizers in eager mode. Please use an optimizer "
                "of tf.keras.optimizers instead."
            )
        reduction = _make_allreduce_grads_fn(
            name or f"Distributed{type(optimizer).__name__}",
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            op,
            gradient_predivide_factor,
            groups,
            process_set,
        )
        aggregation = None
        if backward_passes_per_step > 1:
            aggregation = LocalGradientAggregationHelper(
                backward_passes_per_step, reduction, sparse_as_dense, average_aggregated_gradients
            )
        return _DistributedOptimizer(
            optimizer, name, use_locking, reduction, aggregation, process_set, scale_local_gradients
        )
    if _is_keras(optimizer):
        if op == Adasum:
            raise ValueError("op == Adasum is not supported yet with Keras")
        import horovod.tensorflow.keras as hvd_keras

        return hvd_keras.DistributedOptimizer(
            optimizer=optimizer,
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    raise ValueError(
        f"Provided optimizer doesn't inherit from either legacy TensorFlow or Keras optimizer: {optimizer}"
    )


class _Wrapper(_LegacyOptimizer):
    """Delegates everything that is not overridden to the wrapped optimizer."""

    def __init__(self, optimizer: Any, name: Optional[str], use_locking: bool):
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


class _DistributedOptimizer(_Wrapper):
    """Reduces when gradients are computed, as scripts that inspect them in between expect."""

    def __init__(
        self,
        optimizer: Any,
        name: Optional[str],
        use_locking: bool,
        reduction: Any,
        aggregation: Optional[LocalGradientAggregationHelper],
        process_set: ProcessSet,
        scale_local_gradients: bool,
    ):
        super().__init__(optimizer, name, use_locking)
        self._reduction, self._aggregation = reduction, aggregation
        self._process_set, self._scale_local_gradients = process_set, scale_local_gradients
        self._local: dict = {}

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable from the reduction."""
        self._local[key(var)] = var

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Any]:
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if self._aggregation is not None:
            return pairs
        return self._reduced(pairs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        pairs = list(grads_and_vars)
        if self._aggregation is None:
            return self._optimizer.apply_gradients(pairs, global_step, name)
        variables = [variable for _, variable in pairs]
        sums = self._aggregation.aggregate([gradient for gradient, _ in pairs])

        def last() -> tf.Tensor:
            reduced = self._aggregation.reduced(sums, variables)
            with tf.control_dependencies([self._optimizer.apply_gradients(zip(reduced, variables), global_step)]):
                return tf.constant(True)

        def between() -> tf.Tensor:
            advanced = [] if global_step is None else [global_step.assign_add(1)]
            with tf.control_dependencies(advanced):
                return tf.constant(False)

        return tf.group(tf.cond(self._aggregation.is_last_pass(), last, between), name=name)

    def _reduced(self, pairs: List[Any]) -> List[Any]:
        everybodys = [(gradient, variable) for gradient, variable in pairs if key(variable) not in self._local]
        reduced = iter(self._reduction([g for g, _ in everybodys], [v for _, v in everybodys]))
        n_members = member_count(self._process_set) if self._scale_local_gradients else 1
        return [
            (scale_local(gradient, n_members) if key(variable) in self._local else next(reduced), variable)
            for gradient, variable in pairs
        ]


class _DistributedAdasumOptimizer(_Wrapper):
    """Takes a local step, then combines the changes of all ranks with Adasum."""

    def __init__(self, optimizer: Any, name: Optional[str], use_locking: bool, compression: Any, backward_passes_per_step: int):
        super().__init__(optimizer, name, use_locking)
        if backward_passes_per_step != 1:
            raise ValueError("backward_passes_per_step > 1 is not supported with op == Adasum")
        self._compression = compression

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Any]:
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        if size() == 1:
            return self._optimizer.apply_gradients(pairs, global_step, name)
        variables = [variable for _, variable in pairs]
        before = [tf.identity(variable) for variable in variables]
        with tf.control_dependencies([] if _executing_eagerly() else before):
            stepped = self._optimizer.apply_gradients(pairs, global_step)
        with tf.control_dependencies([] if _executing_eagerly() else [stepped]):
            after = [
                start + allreduce(tf.identity(variable) - start, compression=self._compression, op=Adasum, name=f"adasum_{number}")
                for number, (start, variable) in enumerate(zip(before, variables))
            ]
        return tf.group(*[variable.assign(value) for variable, value in zip(variables, after)], name=name)


def _is_keras(optimizer: Any) -> bool:
    """Whether it is an optimizer of Keras 3 or tf_keras, judged by the modules of its classes, so that no unused Keras
    is imported."""
    return any(
        kind.__name__ in ("Optimizer", "BaseOptimizer", "OptimizerV2", "_BaseOptimizer") and "keras" in kind.__module__
        for kind in type(optimizer).__mro__
    )
