"""Training with PyTorch that outlives a failure: `hvd.elastic.run`, `TorchState`, `ElasticSampler`. The front door;
the work is in `state` and `sampler`."""

from typing import Any, Callable

from horovod.common.elastic import run_fn
from horovod.elastic import reset
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `train(state, ...)`: after a failure it begins anew from the state's last commit.

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)
    """
    return run_fn(func, reset)
