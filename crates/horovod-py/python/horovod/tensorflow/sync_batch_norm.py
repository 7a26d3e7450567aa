"""Batch normalization over the batches of all ranks. A Keras layer for models that horovod.tensorflow trains."""

from typing import Any, Optional

import tensorflow as tf

from horovod.tensorflow.mpi_ops import Average, _allreduce, size


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """Mean and variance are those of all ranks' inputs together. Every rank counts alike."""

    def __init__(self, fused: Optional[bool] = False, **kwargs: Any):
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if not kwargs.get("name", None):
            kwargs["name"] = "sync_batch_normalization"
        super().__init__(**kwargs)
        # What talks to other processes cannot be compiled by XLA: model.compile(jit_compile="auto") asks for this.
        self.supports_jit = False

    def _moments(self, *args: Any, **kwargs: Any) -> Any:
        mean, variance = super()._moments(*args, **kwargs)
        if size() == 1:
            return mean, variance
        # Means of squares can be averaged, variances cannot.
        both = tf.stack([mean, variance + tf.square(mean)])
        both = _allreduce(both, name=f"{self.name}/moments", op=Average)
        return both[0], both[1] - tf.square(both[0])
