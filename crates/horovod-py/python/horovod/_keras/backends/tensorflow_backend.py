"""Keras on TensorFlow: uses the batched reduction of horovod.tensorflow, eager or traced."""

from typing import Any, Callable, List

import tensorflow as tf

from horovod.tensorflow.compression import Compression  # noqa: F401
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradients import _make_allreduce_grads_fn, scale_local  # noqa: F401
from horovod.tensorflow.mpi_ops import member_count  # noqa: F401


class Reduction:
    def __init__(self, name: str, compression: Any, sparse_as_dense: bool, op: int, predivide: float, groups: Any, process_set: Any):
        self._reduce = _make_allreduce_grads_fn(name, "", "", compression, sparse_as_dense, op, predivide, groups, process_set)

    def __call__(self, gradients: List[Any], variables: List[Any]) -> List[Any]:
        return self._reduce(gradients, variables)


class Aggregation(LocalGradientAggregationHelper):
    """Accumulates in variables beside the optimizer's own."""

    def __init__(self, n_passes: int, reduction: Callable[..., Any], sparse_as_dense: bool, average: bool):
        super().__init__(
            n_passes, reduction, sparse_as_dense, average, optimizer_type=LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS
        )

    def step(
        self,
        optimizer: Any,
        gradients: List[Any],
        variables: List[Any],
        update: Callable[[List[Any]], Any],
    ) -> Any:
        _ensure_built(optimizer, variables)
        sums = self.aggregate(gradients)
        return self.apply_gradients(lambda: update(self.reduced(sums, variables)), optimizer)


def _ensure_built(optimizer: Any, variables: List[Any]) -> None:
    """Variables cannot be created inside of a conditional branch."""
    if getattr(optimizer, "built", False) or getattr(optimizer, "_built", False):
        return
    with tf.init_scope():
        if hasattr(optimizer, "_create_all_weights"):
            # Legacy optimizers of Keras 2. Creates missing variables.
            optimizer._create_all_weights(variables)
        else:
            optimizer.build(variables)
