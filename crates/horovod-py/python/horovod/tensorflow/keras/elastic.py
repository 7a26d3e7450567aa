"""Elastic training with `tf.keras`, implemented and documented in `horovod._keras.elastic`."""

from typing import Any

import tensorflow as tf

from horovod._keras import elastic as _impl
from horovod.tensorflow.elastic import TensorFlowKerasState, run

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]


class KerasState(TensorFlowKerasState):
    __doc__ = _impl.KerasState.__doc__

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class CommitStateCallback(_impl.CommitStateCallbackImpl, tf.keras.callbacks.Callback):
    __doc__ = _impl.CommitStateCallbackImpl.__doc__


class UpdateBatchStateCallback(_impl.UpdateBatchStateCallbackImpl, tf.keras.callbacks.Callback):
    __doc__ = _impl.UpdateBatchStateCallbackImpl.__doc__


class UpdateEpochStateCallback(_impl.UpdateEpochStateCallbackImpl, tf.keras.callbacks.Callback):
    __doc__ = _impl.UpdateEpochStateCallbackImpl.__doc__
