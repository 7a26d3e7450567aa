"""Grouping of gradients for backends that have no batching of their own."""

from typing import Any, List

from horovod.common.util import split_list


def group_indices(numbers: List[int], groups: Any, variables: List[Any]) -> List[List[int]]:
    """`groups`: None, a number of groups, or lists of variables. Remaining gradients are sent one by one."""
    if isinstance(groups, int) and groups > 0:
        return [part for part in split_list(numbers, min(groups, len(numbers))) if part]
    if isinstance(groups, (list, tuple)):
        place = {id(variables[number]): number for number in numbers}
        parts = [[place[id(v)] for v in group if id(v) in place] for group in groups]
        taken = {number for part in parts for number in part}
        return [part for part in parts if part] + [[number] for number in numbers if number not in taken]
    return [[number] for number in numbers]
