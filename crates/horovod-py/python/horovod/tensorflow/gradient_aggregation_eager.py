"""Upstream's module for eager local gradient aggregation. One implementation serves both modes here."""

from typing import Any, Callable, List

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper


class LocalGradientAggregationHelperEager(LocalGradientAggregationHelper):
    """See `gradient_aggregation`."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[List[Any], List[Any]], List[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ):
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
