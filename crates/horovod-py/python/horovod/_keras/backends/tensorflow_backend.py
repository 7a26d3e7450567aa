"""Keras on TensorFlow: the batch of horovod.tensorflow, eager or traced."""

from typing import Any, Callable, List

import tensorflow as tf

from horovod.tensorflow.compression import Compression  # noqa: F401
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradients import _make_allreduce_grads_fn, scale_local  # noqa: F401


class Reduction:
    def __init__(self, name: str, compression: Any, sparse_as_dense: bool, op: int, predivide: float, groups: Any, process_set: Any):
        self._reduce = _make_allreduce_grads_fn(name, "", "", compression, sparse_as_dense, op, predivide, groups, process_set)

    def __call__(self, gradients: List[Any], variables: List[Any]) -> List[Any]:
        return self._reduce(gradients, variables)


class Aggregation(LocalGradientAggregationHelper):
    """Sums in variables beside the optimizer's own."""

    def step(
        self,
        optimizer: Any,
        gradients: List[Any],
        variables: List[Any],
        update: Callable[[List[Any]], Any],
    ) -> None:
        # Its variables cannot be made inside of a branch.
        if not optimizer.built:
            with tf.init_scope():
                optimizer.build(variables)
        self.apply(gradients, variables, update, lambda: optimizer.iterations.assign_add(1))
