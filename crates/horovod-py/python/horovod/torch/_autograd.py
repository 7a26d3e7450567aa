"""Autograd functions of the synchronous collectives, with upstream's names and argument order, since packages call
their `apply`. `mpi_ops` uses them for tensors with and without gradients. Gradients follow Horovod's rules, which
average over the ranks for allgather and broadcast.

Names: a backward operation is named after its forward one, so that it matches its counterparts on the other ranks;
unnamed operations stay unnamed.
"""

from typing import Any, Optional, Sequence, Tuple

import torch

from horovod.common import basics
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet
from horovod.torch._data_movement import Splits, allgather_async, alltoall_async, broadcast_async, grouped_allgather_async
from horovod.torch._handles import synchronize
from horovod.torch._reductions import (
    allreduce_async,
    grouped_allreduce_async,
    grouped_reducescatter_async,
    reducescatter_async,
)

Function = torch.autograd.Function


def backward_name(name: Optional[str]) -> Optional[str]:
    return None if name is None else f"{name}.backward"


class HorovodAllreduce(Function):
    """The gradient is reduced in the same way."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        average: Optional[bool],
        name: Optional[str],
        op: Optional[int],
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.call = (average, backward_name(name), op, prescale_factor, postscale_factor, process_set)
        return synchronize(
            allreduce_async(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
        )

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
        return (HorovodAllreduce.apply(gradient.contiguous(), *ctx.call), *(None,) * 6)


class HorovodGroupedAllreduce(Function):
    """The gradients are reduced in the same way, as a group."""

    @staticmethod
    def forward(
        ctx: Any,
        average: Optional[bool],
        name: Optional[str],
        op: Optional[int],
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> Tuple[torch.Tensor, ...]:
        ctx.call = (average, backward_name(name), op, prescale_factor, postscale_factor, process_set)
        return synchronize(
            grouped_allreduce_async(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        reduced = HorovodGroupedAllreduce.apply(*ctx.call, *(gradient.contiguous() for gradient in gradients))
        return (*(None,) * 6, *reduced)


class HorovodAllgather(Function):
    """The gradient is averaged, and each rank takes its own rows."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], process_set: ProcessSet) -> torch.Tensor:
        ctx.call = (backward_name(name), process_set)
        ctx.rows = [tensor.shape[0]]
        return synchronize(allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
        return (*_own_rows(ctx.call, ctx.rows, [gradient]), None, None)


class HorovodGroupedAllgather(Function):
    """As HorovodAllgather, for each tensor."""

    @staticmethod
    def forward(
        ctx: Any, name: Optional[str], process_set: ProcessSet, *tensors: torch.Tensor
    ) -> Tuple[torch.Tensor, ...]:
        ctx.call = (backward_name(name), process_set)
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        return synchronize(grouped_allgather_async(tensors, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        return (None, None, *_own_rows(ctx.call, ctx.rows, gradients))


class HorovodBroadcast(Function):
    """The gradient is averaged at the root; other ranks' inputs do not affect the result."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: Optional[str], process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.call = (None, backward_name(name), Average, 1.0, 1.0, process_set)
        ctx.root_rank = root_rank
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
        reduced = HorovodAllreduce.apply(gradient.contiguous(), *ctx.call)
        return reduced if basics.rank() == ctx.root_rank else torch.zeros_like(reduced), None, None, None


class HorovodAlltoall(Function):
    """The gradient is sent back to where the rows came from. Rows that were sent to nobody have none."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Splits, name: Optional[str], process_set: ProcessSet
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        output, received = synchronize(alltoall_async(tensor, splits, name, process_set))
        ctx.call = (received.cpu(), backward_name(name), process_set)
        ctx.shape = tensor.shape
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _received: Any) -> Tuple[Any, ...]:
        returned, _ = HorovodAlltoall.apply(gradient.contiguous(), *ctx.call)
        unsent = ctx.shape[0] - returned.shape[0]
        if unsent:
            returned = torch.cat([returned, returned.new_zeros((unsent, *ctx.shape[1:]))])
        return returned, None, None, None


class HorovodReducescatter(Function):
    """The gradient is gathered, and multiplied by the number of ranks for Sum."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: Optional[str],
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
    ) -> torch.Tensor:
        ctx.call = (backward_name(name), process_set)
        ctx.factor = _reducescatter_factor(op, process_set, prescale_factor, postscale_factor)
        return synchronize(reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
        gathered = HorovodAllgather.apply((gradient * ctx.factor).contiguous(), *ctx.call)
        return (gathered, *(None,) * 5)


class HorovodGroupedReducescatter(Function):
    """As HorovodReducescatter, for each tensor."""

    @staticmethod
    def forward(
        ctx: Any,
        name: Optional[str],
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        *tensors: torch.Tensor,
    ) -> Tuple[torch.Tensor, ...]:
        ctx.call = (backward_name(name), process_set)
        ctx.factor = _reducescatter_factor(op, process_set, prescale_factor, postscale_factor)
        return synchronize(
            grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        scaled = ((gradient * ctx.factor).contiguous() for gradient in gradients)
        return (*(None,) * 5, *HorovodGroupedAllgather.apply(*ctx.call, *scaled))


def _reducescatter_factor(op: int, process_set: ProcessSet, prescale: float, postscale: float) -> float:
    return prescale * postscale * ((process_set.size() or 1) if op == Sum else 1)


def _own_rows(
    call: Tuple[Optional[str], ProcessSet], rows: Sequence[int], gradients: Sequence[torch.Tensor]
) -> Tuple[torch.Tensor, ...]:
    """This rank's part of each gathered tensor's averaged gradient."""
    name, process_set = call
    averaged = HorovodGroupedAllreduce.apply(
        None, name, Average, 1.0, 1.0, process_set, *(gradient.contiguous() for gradient in gradients)
    )
    rows_name = None if name is None else f"{name}.rows"
    rows_by_rank = synchronize(allgather_async(torch.tensor([list(rows)]), rows_name, process_set))
    before = rows_by_rank[: process_set.rank()].sum(0).tolist()
    return tuple(gradient.narrow(0, start, count) for gradient, start, count in zip(averaged, before, rows))
