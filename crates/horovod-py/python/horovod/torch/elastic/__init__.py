"""Elastic training with PyTorch: `hvd.elastic.run`, `TorchState`, `ElasticSampler`, from `state` and `sampler`."""

from typing import Any, Callable

from horovod.common.elastic import run_fn
from horovod.elastic import reset
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `train(state, ...)`: after a failure it restarts from the last commit.

        state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)
    """
    return run_fn(func, reset)
