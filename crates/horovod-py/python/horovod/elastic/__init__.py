"""Elastic training without a framework: plain objects that are committed and restored. The frameworks have modules of
their own for models and optimizers: horovod.torch.elastic, horovod.tensorflow.elastic, horovod.keras.elastic."""

from typing import Any, Callable

from horovod.common import basics
from horovod.common.elastic import ObjectState as _ObjectState
from horovod.common.elastic import State, notification_manager, run_fn
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.elastic.objects import broadcast_object

__all__ = [
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "notification_manager",
    "run",
    "run_fn",
]


class ObjectState(_ObjectState):
    """Python objects, as attributes named by the keywords."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(broadcast_object, basics.rank, **kwargs)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `train(state, ...)`: after a failure it restarts from the last commit."""
    return run_fn(func, reset)


def reset() -> None:
    """Restarts the engine. All ranks must take part."""
    basics.restart()
