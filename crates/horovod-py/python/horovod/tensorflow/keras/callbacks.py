"""Callbacks for `model.fit` of `tf.keras`, implemented and documented in `horovod._keras.callbacks`."""

import tensorflow as tf

from horovod._keras import callbacks as _impl


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariablesCallbackImpl, tf.keras.callbacks.Callback):
    __doc__ = _impl.BroadcastGlobalVariablesCallbackImpl.__doc__


class MetricAverageCallback(_impl.MetricAverageCallbackImpl, tf.keras.callbacks.Callback):
    __doc__ = _impl.MetricAverageCallbackImpl.__doc__


class LearningRateScheduleCallback(_impl.LearningRateScheduleCallbackImpl, tf.keras.callbacks.Callback):
    __doc__ = _impl.LearningRateScheduleCallbackImpl.__doc__


class LearningRateWarmupCallback(_impl.LearningRateWarmupCallbackImpl, tf.keras.callbacks.Callback):
    __doc__ = _impl.LearningRateWarmupCallbackImpl.__doc__


class BestModelCheckpoint(_impl.BestModelCheckpointImpl, tf.keras.callbacks.ModelCheckpoint):
    __doc__ = _impl.BestModelCheckpointImpl.__doc__
