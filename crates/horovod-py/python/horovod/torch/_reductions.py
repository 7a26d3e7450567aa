"""Asynchronous collectives that compute: allreduce, reducescatter, and the reduction of sparse tensors. `mpi_ops`
builds the synchronous versions with gradients on them."""

from typing import Callable, List, Optional, Sequence

import torch

from horovod import _core
from horovod.common import basics
from horovod.common.basics import Adasum, Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from horovod.torch._data_movement import allgather_async, checked_group
from horovod.torch._handles import start, synchronize

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(basics)


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduces over all ranks of the set into a new tensor. Returns a handle."""
    op = checked_op(handle_average_backwards_compatibility(op, average), [tensor], process_set)
    result = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    return _allreduce([tensor], [result], "allreduce", name, op, prescale_factor, postscale_factor, process_set)


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduces over all ranks of the set, in place. Returns a handle."""
    op = checked_op(handle_average_backwards_compatibility(op, average), [tensor], process_set)
    return _allreduce([tensor], [tensor], "allreduce", name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduces a group of tensors, all or none, into new ones. Returns one handle for the group."""
    tensors = checked_group(tensors)
    op = checked_op(handle_average_backwards_compatibility(op, average), tensors, process_set)
    results = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
    return _allreduce(tensors, results, "grouped_allreduce", name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduces a group of tensors, all or none, in place. Returns one handle for the group."""
    tensors = checked_group(tensors)
    op = checked_op(handle_average_backwards_compatibility(op, average), tensors, process_set)
    return _allreduce(tensors, tensors, "grouped_allreduce", name, op, prescale_factor, postscale_factor, process_set)


def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Reduces over all ranks of the set and gives each its share of the rows. Returns a handle."""
    return _reducescatter([tensor], "reducescatter", name, op, process_set, prescale_factor, postscale_factor)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Reduces and scatters a group of tensors, all or none. Returns one handle for the group."""
    tensors = checked_group(tensors)
    return _reducescatter(tensors, "grouped_reducescatter", name, op, process_set, prescale_factor, postscale_factor)


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Sums or averages a sparse tensor by gathering indices and values. The returned callable waits for the sparse
    result; values of several ranks at the same index add up when the result is coalesced."""
    if op not in (Average, Sum):
        raise NotImplementedError(
            "Sparse tensors can only be averaged or summed. For another op make them dense: sparse_as_dense=True in "
            "DistributedOptimizer."
        )
    indices = allgather_async(tensor._indices().t().contiguous(), name=f"{name}.indices", process_set=process_set)
    values = allgather_async(tensor._values().contiguous(), name=f"{name}.values", process_set=process_set)

    def wait() -> torch.Tensor:
        all_indices, all_values = _wait_both(indices, values)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(
            all_indices.t(), all_values, tensor.size(), dtype=tensor.dtype, device=tensor.device
        )

    return wait


def check_num_rank_power_of_2(num_rank: int) -> None:
    """Adasum pairs ranks, then pairs of ranks, and so on."""
    if not num_rank_is_power_2(num_rank):
        raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")


def checked_op(op: int, tensors: Sequence[torch.Tensor], process_set: ProcessSet) -> int:
    """Validates the op for the set and the tensors."""
    if op == Adasum:
        if process_set != global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        check_num_rank_power_of_2(basics.size())
    elif op == Average:
        for tensor in tensors:
            if tensor.dtype == torch.bool:  # Booleans cannot be averaged.
                raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    return op


def _allreduce(
    inputs: List[torch.Tensor],
    results: List[torch.Tensor],
    prefix: str,
    name: Optional[str],
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> int:
    return start(
        _core.ALLREDUCE,
        prefix,
        name,
        inputs,
        results,
        process_set,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        grouped=prefix.startswith("grouped"),
    )


def _reducescatter(
    inputs: List[torch.Tensor],
    prefix: str,
    name: Optional[str],
    op: int,
    process_set: ProcessSet,
    prescale_factor: float,
    postscale_factor: float,
) -> int:
    if any(tensor.dim() == 0 for tensor in inputs):
        raise ValueError("Reducescatter does not support scalar inputs")
    return start(
        _core.REDUCESCATTER,
        prefix,
        name,
        inputs,
        [None] * len(inputs),
        process_set,
        op=checked_op(op, inputs, process_set),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        grouped=prefix.startswith("grouped"),
    )


def _wait_both(first: int, second: int) -> List[torch.Tensor]:
    """Waits for both, also if the first fails, so that no handle is leaked."""
    try:
        one = synchronize(first)
    except Exception:
        try:
            synchronize(second)
        except Exception:
            pass  # The first error is the one to report.
        raise
    return [one, synchronize(second)]
