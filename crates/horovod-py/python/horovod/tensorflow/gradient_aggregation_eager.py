"""Where code written for upstream looks for the eager form of local gradient aggregation. There is one form for both here."""

from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper


class LocalGradientAggregationHelperEager(LocalGradientAggregationHelper):
    """See `gradient_aggregation`."""
