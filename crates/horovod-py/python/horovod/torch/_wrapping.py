"""Turns an optimizer into another one of the same class. `DistributedOptimizer` passes the user's optimizer and one of
two behaviours. Attributes of the wrapping start with `_hvd_`; everything else is shared with the plain optimizer."""

import copy
from typing import Any, Dict, List, Tuple

import torch

Named = Tuple[str, torch.Tensor]

_OWN = "_hvd_"
# PyTorch's schedulers set these on the instance, which would hide the methods of the class.
_METHODS_ON_INSTANCE = ("step", "zero_grad")


def wrap(optimizer: torch.optim.Optimizer, behaviour: type) -> Any:
    """An optimizer of a derived class with the same name, sharing parameters, options and state."""
    plain = type(optimizer)
    members = {"__module__": behaviour.__module__, "__doc__": plain.__doc__}
    wrapped: Any = object.__new__(type(plain.__name__, (behaviour, plain), members))
    wrapped.__dict__.update(optimizer.__dict__)
    for method in _METHODS_ON_INSTANCE:
        wrapped.__dict__.pop(method, None)
    wrapped._hvd_class = plain
    wrapped._hvd_behaviour = behaviour
    return wrapped


class Wrapped:
    """Common behaviour, before the optimizer's own class in the MRO."""

    _hvd_class: type
    _hvd_behaviour: type
    _hvd_names: Dict[int, str]
    param_groups: List[Dict[str, Any]]

    @property
    def _parameter_names(self) -> Dict[torch.Tensor, str]:
        """Upstream's attribute: the wire name of each parameter, as given or by position."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        return {parameter: self._hvd_names[id(parameter)] for parameter in parameters}

    def _hvd_plain(self) -> Any:
        """The optimizer without Horovod, sharing everything."""
        plain: Any = object.__new__(self._hvd_class)
        theirs = {key: value for key, value in self.__dict__.items() if not key.startswith(_OWN)}
        plain.__dict__.update(theirs)
        for method in _METHODS_ON_INSTANCE:
            plain.__dict__.pop(method, None)
        return plain

    def _hvd_distribute_like(self, other: Any, named: List[Named], twins: Dict[int, torch.Tensor]) -> None:
        """Takes over the options of another optimizer for copies of its parameters (`twins`, by the id of the
        original)."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A file outlives the job, so the plain optimizer is saved. Protocol 1, since later ones require the object's
        # own class.
        return self._hvd_plain().__reduce_ex__(1)

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        """A distributed optimizer for the copied parameters."""
        plain = copy.deepcopy(self._hvd_plain(), memo)
        old = [parameter for group in self.param_groups for parameter in group["params"]]
        new = [parameter for group in plain.param_groups for parameter in group["params"]]
        wrapped = wrap(plain, self._hvd_behaviour)
        named = [(self._hvd_names[id(parameter)], twin) for parameter, twin in zip(old, new)]
        wrapped._hvd_distribute_like(self, named, {id(parameter): twin for parameter, twin in zip(old, new)})
        return wrapped
