"""Elastic training with Keras 3, implemented and documented in `horovod._keras.elastic`."""

import functools
from typing import Any, Callable

import keras

from horovod._keras import elastic as _impl
from horovod.common.elastic import run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.elastic import reset

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]


class KerasState(_impl.KerasState):
    __doc__ = _impl.KerasState.__doc__

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class CommitStateCallback(_impl.CommitStateCallbackImpl, keras.callbacks.Callback):
    __doc__ = _impl.CommitStateCallbackImpl.__doc__


class UpdateBatchStateCallback(_impl.UpdateBatchStateCallbackImpl, keras.callbacks.Callback):
    __doc__ = _impl.UpdateBatchStateCallbackImpl.__doc__


class UpdateEpochStateCallback(_impl.UpdateEpochStateCallbackImpl, keras.callbacks.Callback):
    __doc__ = _impl.UpdateEpochStateCallbackImpl.__doc__


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `train(state, ...)`: after a failure it restarts from the last commit."""
    if keras.backend.backend() == "tensorflow":
        # Imported here, since other backends do not need TensorFlow.
        from horovod.tensorflow.elastic import run as run_tensorflow

        return run_tensorflow(func)
    return run_fn(_translate_jax_errors(func), reset)


def _translate_jax_errors(func: Callable[..., Any]) -> Callable[..., Any]:
    """Translates errors: JAX wraps an exception of a callback into its own error and keeps only the text."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if type(error).__name__ in ("XlaRuntimeError", "JaxRuntimeError") and "HorovodInternalError" in str(error):
                raise HorovodInternalError(str(error)) from error
            raise

    return call
