"""Elastic training with TensorFlow: states made of variables or of a Keras model, and `run`. Available as
`hvd.elastic`."""

import contextlib
import functools
from typing import Any, Callable, Iterator, List, Optional

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod._keras.elastic import KerasState as _KerasState
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.elastic import reset
from horovod.elastic.objects import broadcast_object

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]

# Names of our ops in TensorFlow's error messages.
_OP_NAMES = (
    "HorovodAllreduce",
    "HorovodAllgather",
    "HorovodBroadcast",
    "HorovodGrouped",
    "HorovodReducescatter",
    "HorovodAlltoall",
)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `train(state, ...)`: after a failure it restarts from the last commit."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _translate_errors():
            return func(*args, **kwargs)

    return run_fn(call, reset)


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Translates TensorFlow errors caused by failed collectives to HorovodInternalError."""
    try:
        yield
    except (tf.errors.UnknownError, tf.errors.AbortedError) as error:
        if any(operation in error.message for operation in _OP_NAMES):
            raise HorovodInternalError(error.message) from error
        raise


class TensorFlowKerasState(_KerasState):
    """A Keras model, its optimizer (by default the one it was compiled with), and other objects given as keywords."""


class TensorFlowState(ObjectState):
    """TensorFlow variables, and other objects given as keywords. Without `variables`, all variables of a TensorFlow 1
    graph, which needs its session."""

    def __init__(
        self, variables: Optional[List[tf.Variable]] = None, session: Optional[Any] = None, **kwargs: Any
    ) -> None:
        if variables is None:
            variables = tf.compat.v1.global_variables()
            if not variables:
                raise ValueError("variables is missing: TensorFlow keeps no list of them when it runs eagerly")
        self.variables = list(variables)
        self.session = session
        self._saved_values: List[Any] = []
        super().__init__(broadcast_object, hvd.rank, **kwargs)
        self.save()

    def save(self) -> None:
        self._saved_values = self._values()
        super().save()

    def restore(self) -> None:
        self._assign(self._saved_values)
        super().restore()

    def sync_from(self, root_rank: int) -> None:
        with _translate_errors():
            if self.session is None:
                hvd.broadcast_variables(self.variables, root_rank)
            else:
                self._assign(broadcast_object(self._values(), root_rank, "elastic_variables"))
            super().sync_from(root_rank)

    def _values(self) -> List[Any]:
        if self.session is not None:
            return list(self.session.run(self.variables))
        return [variable.numpy().copy() for variable in self.variables]

    def _assign(self, values: List[Any]) -> None:
        for variable, value in zip(self.variables, values):
            if self.session is None:
                variable.assign(value)
            else:
                variable.load(value, self.session)
