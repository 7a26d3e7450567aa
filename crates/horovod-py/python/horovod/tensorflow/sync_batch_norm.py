"""Batch normalization over the batches of all ranks, a Keras layer for horovod.tensorflow."""

from typing import Any, Optional

import tensorflow as tf

from horovod.tensorflow.mpi_ops import Average, _allreduce, size
from horovod.tensorflow.util import in_elastic_graph


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """Uses mean and variance of all ranks' inputs. Every rank has the same weight."""

    def __init__(self, fused: Optional[bool] = False, **kwargs: Any):
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if not kwargs.get("name", None):
            kwargs["name"] = "sync_batch_normalization"
        super().__init__(**kwargs)
        # XLA cannot compile communication with other processes: model.compile(jit_compile="auto") checks this.
        self.supports_jit = False

    def _moments(self, *args: Any, **kwargs: Any) -> Any:
        mean, variance = super()._moments(*args, **kwargs)
        if size() == 1 and not in_elastic_graph():
            return mean, variance
        # Means of squares can be averaged; variances cannot.
        both = tf.stack([mean, variance + tf.square(mean)])
        both = _allreduce(both, name=f"{self.name}/moments", op=Average)
        return both[0], both[1] - tf.square(both[0])
