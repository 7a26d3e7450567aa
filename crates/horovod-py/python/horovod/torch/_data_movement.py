"""Asynchronous collectives that move data: allgather, broadcast and alltoall. `mpi_ops` builds the synchronous versions
with gradients on them."""

from typing import List, Optional, Sequence, Tuple, Union

import torch

from horovod import _core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._handles import start

Splits = Union[None, Sequence[int], torch.Tensor]


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Gathers the rows of all ranks of the set, in order. Returns a handle."""
    return start(_core.ALLGATHER, "allgather", name, [tensor], [None], process_set)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Gathers a group of tensors, all or none. Returns one handle for the group."""
    tensors = checked_group(tensors)
    return start(_core.ALLGATHER, "grouped_allgather", name, tensors, [None] * len(tensors), process_set, grouped=True)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Broadcasts the root's values to a new tensor. The root is a global rank. Returns a handle."""
    result = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    return start(_core.BROADCAST, "broadcast", name, [tensor], [result], process_set, root_rank=root_rank)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Broadcasts the root's values in place. The root is a global rank. Returns a handle."""
    return start(_core.BROADCAST, "broadcast", name, [tensor], [tensor], process_set, root_rank=root_rank)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Sends `splits[i]` rows to rank i of the set, equally many to each without splits. Returns a handle; the result is
    the pair of the received rows, by sender, and their number per sender."""
    counts, home = _checked_splits(splits)

    def pair(results: List[torch.Tensor], outputs: List[Optional["_core.Output"]]) -> Tuple[torch.Tensor, torch.Tensor]:
        output = outputs[0]
        assert output is not None, "the engine allocates received data"
        return results[0], torch.tensor(output.received, dtype=torch.int32, device=home)

    return start(_core.ALLTOALL, "alltoall", name, [tensor], [None], process_set, finish=pair, splits=counts)


def checked_group(tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """A copy of the list, since the caller may change it afterwards."""
    tensors = list(tensors)
    if not tensors:
        raise ValueError("A grouped operation needs at least one tensor: the list is empty.")
    return tensors


def _checked_splits(splits: Splits) -> Tuple[Optional[List[int]], torch.device]:
    """The splits as integers, and the device for the received splits."""
    if splits is None:
        return None, torch.device("cpu")
    if not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    if splits.dtype != torch.int32:
        raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
    if splits.dim() != 1:
        raise ValueError("alltoall expects a 1D splits tensor")
    return splits.tolist(), splits.device
