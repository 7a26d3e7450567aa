"""XLA-compiled training steps of Keras on TensorFlow. XLA cannot compile communication with other processes, so the
step is split: forward and backward pass are compiled, then gradients are reduced and applied outside.

Only models with a distributed optimizer are affected, and only if there are other ranks. Models without jit do not
use this module.
"""

import contextlib
import functools
import logging
import threading
from typing import Any, Iterator, List, NamedTuple, Optional

log = logging.getLogger("horovod")


class ApplyCall(NamedTuple):
    """A call of `apply` inside of the compiled part, to be made outside."""

    optimizer: Any
    gradients: List[Any]
    variables: Optional[List[Any]]


class _Place(threading.local):
    calls: Optional[List[ApplyCall]] = None


_place = _Place()


def capture(optimizer: Any, gradients: List[Any], variables: Any) -> bool:
    """Records the call and returns true while a compiled part is being traced."""
    if _place.calls is None:
        return False
    _place.calls.append(ApplyCall(optimizer, gradients, None if variables is None else list(variables)))
    return True


def ensure_split_steps() -> None:
    """Patches Keras' trainer to split steps. Idempotent."""
    try:
        from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
    except ImportError:
        # Keras 2 compiles with XLA only on request, and then the collective raises an error with advice.
        return
    original = TensorFlowTrainer.make_train_function
    if getattr(original, "splits_for_horovod", False):
        return

    @functools.wraps(original)
    def make_train_function(self: Any, force: bool = False) -> Any:
        if (self.train_function is not None and not force) or not _is_wanted(self):
            return original(self, force)
        _tell_once()
        # Bypasses Keras' attribute tracking: this is not part of the model.
        self.__dict__["train_step"] = _split(type(self).train_step.__get__(self))
        self._jit_compile = False
        try:
            return original(self, force)
        finally:
            self._jit_compile = True

    make_train_function.splits_for_horovod = True  # type: ignore[attr-defined]
    TensorFlowTrainer.make_train_function = make_train_function


def _is_wanted(model: Any) -> bool:
    distribution = getattr(model.optimizer, "_horovod", None)
    return bool(distribution and distribution.is_needed() and model.jit_compile and not model.run_eagerly)


def _split(step: Any) -> Any:
    import tensorflow as tf

    # From the last trace; every trace of a step makes the same calls.
    recorded: List[ApplyCall] = []

    @functools.partial(tf.function, jit_compile=True, reduce_retracing=True)
    @tf.autograph.experimental.do_not_convert
    def compiled(data: Any) -> Any:
        with _capturing() as calls:
            logs = step(data)
        recorded[:] = calls
        return logs, [call.gradients for call in calls]

    @tf.autograph.experimental.do_not_convert
    def train_step(data: Any) -> Any:
        logs, gradients = compiled(data)
        for call, mine in zip(list(recorded), gradients):
            call.optimizer.apply(mine, call.variables)
        return logs

    return train_step


@contextlib.contextmanager
def _capturing() -> Iterator[List[ApplyCall]]:
    before, _place.calls = _place.calls, []
    try:
        yield _place.calls
    finally:
        _place.calls = before


@functools.lru_cache(maxsize=None)
def _tell_once() -> None:
    log.info("XLA compiles forward and backward of the training step; gradients are reduced and applied outside of it.")
