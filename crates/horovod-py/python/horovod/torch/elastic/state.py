"""Elastic state for PyTorch: models, optimizers and samplers beside plain objects. Each kind of value has a handler
that saves, restores and syncs it; users may add kinds."""

import copy
from typing import Any, Dict, List, Optional, Tuple, Type

import torch

import horovod.torch as hvd
from horovod.common.elastic import ObjectState
from horovod.elastic.objects import broadcast_object
from horovod.torch.elastic.sampler import ElasticSampler


class StateHandler:
    """Keeps a copy of one value's state. The value itself stays the same object."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        # Another copy: loading may take over the memory it is given.
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Collective: broadcasts rank 0's state, then saves it. A handler that overrides this instead of `sync_from`
        makes rank 0 the sender of the whole state."""
        self.sync_from(0)
        self.save()

    def sync_from(self, root_rank: int) -> None:
        """Collective: broadcasts one rank's state. Does not save it."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    def sync_from(self, root_rank: int) -> None:
        hvd.broadcast_parameters(self.value.state_dict(), root_rank)


class OptimizerStateHandler(StateHandler):
    def sync_from(self, root_rank: int) -> None:
        hvd.broadcast_optimizer_state(self.value, root_rank)


class SamplerStateHandler(StateHandler):
    def sync_from(self, root_rank: int) -> None:
        self.value.load_state_dict(hvd.broadcast_object(self.value.state_dict(), root_rank))


Registry = List[Tuple[type, Type[StateHandler]]]

_handler_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Kinds of values and their handlers; the first match is used."""
    return _handler_registry


def set_handler_registry(registry: Registry) -> None:
    global _handler_registry
    _handler_registry = registry


class TorchState(ObjectState):
    """A model, an optimizer, and other objects given as keywords: modules, optimizers and ElasticSamplers by their
    state, others as plain objects. All are attributes; assigning a new model, optimizer or sampler saves it."""

    _handlers: Dict[str, StateHandler]

    def __init__(
        self, model: Optional[torch.nn.Module] = None, optimizer: Optional[torch.optim.Optimizer] = None, **kwargs: Any
    ) -> None:
        if model is not None:
            kwargs["model"] = model
        if optimizer is not None:
            kwargs["optimizer"] = optimizer
        handlers = {
            name: handler for name, handler in ((name, _handler_for(kwargs[name])) for name in kwargs) if handler
        }
        object.__setattr__(self, "_handlers", handlers)
        for name, handler in handlers.items():
            object.__setattr__(self, name, handler.value)
        plain = {name: value for name, value in kwargs.items() if name not in handlers}
        super().__init__(broadcast_object, hvd.rank, **plain)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync_from(self, root_rank: int) -> None:
        for _, handler in sorted(self._handlers.items()):
            if _has_own_sync(handler):
                handler.sync()
            else:
                handler.sync_from(root_rank)
        super().sync_from(root_rank)

    def accepts_any_sender(self) -> bool:
        return super().accepts_any_sender() and not any(map(_has_own_sync, self._handlers.values()))

    def reset(self) -> None:
        # Samples are distributed over other ranks than before.
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name in self._handlers:
            self._handlers[name].set_value(value)


def _has_own_sync(handler: StateHandler) -> bool:
    return type(handler).sync is not StateHandler.sync


def _handler_for(value: Any) -> Optional[StateHandler]:
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler(value)
    return None
