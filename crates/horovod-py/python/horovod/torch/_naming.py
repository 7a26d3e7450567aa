"""Wire names and groups of an optimizer's parameters. Every mistake that one rank can detect is rejected here, before
the ranks wait for each other."""

from collections import Counter
from typing import Any, List, Sequence, Set

import torch

from horovod.torch._gradients import Groups
from horovod.torch._wrapping import Named


def named_by_group(optimizer: Any) -> List[Named]:
    """Names by position in the optimizer, if the user gives none."""
    return [
        (f"allreduce.noname.{group_idx}.{parameter_idx}", parameter)
        for group_idx, group in enumerate(optimizer.param_groups)
        for parameter_idx, parameter in enumerate(group["params"])
    ]


def named_by_user(optimizer: Any, named_parameters: Sequence[Named]) -> List[Named]:
    """The optimizer's parameters, in its order, with the given names."""
    given = list(named_parameters)
    if any(not isinstance(entry, tuple) or len(entry) != 2 for entry in given):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    counts = Counter(name for name, _ in given)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(map(str, twice))}"
        )
    names = {id(parameter): str(name) for name, parameter in given}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    unnamed = [tuple(parameter.shape) for parameter in parameters if id(parameter) not in names]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named: those of the shapes "
            f"{', '.join(map(str, unnamed))}. Name all parameters of the optimizer, or leave out named_parameters."
        )
    return [(names[id(parameter)], parameter) for parameter in parameters]


def checked_groups(groups: Groups) -> Groups:
    """Validates the groups."""
    if groups is None:
        return None
    if isinstance(groups, int) and groups >= 0:
        return groups
    if not isinstance(groups, list) or not all(isinstance(group, (list, tuple)) for group in groups):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    seen: Set[int] = set()
    for group in groups:
        for parameter in group:
            if not isinstance(parameter, torch.Tensor):
                raise ValueError("groups must consist of torch.Tensor.")
            if id(parameter) in seen:
                raise ValueError("A parameter can only appear once in groups.")
            seen.add(id(parameter))
    return groups
