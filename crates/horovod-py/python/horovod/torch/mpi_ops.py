"""The collectives of `horovod.torch`. Synchronous functions that return a new tensor have gradients. Re-exported by
`horovod.torch`; the module name is upstream's."""

from typing import Any, List, Optional, Sequence, Tuple, Type, Union

import torch

from horovod import _core
from horovod.common.basics import (  # noqa: F401
    Adasum,
    Average,
    HorovodBasics,
    Max,
    Min,
    Product,
    Sum,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.common.exceptions import HorovodInternalError  # noqa: F401
from horovod.common.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    process_set_id,
    remove_process_set,
)
from horovod.common.util import gpu_available, num_rank_is_power_2  # noqa: F401
from horovod.torch._autograd import (
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)
from horovod.torch._data_movement import (  # noqa: F401
    Splits,
    allgather_async,
    alltoall_async,
    broadcast_async,
    broadcast_async_,
    checked_group,
    grouped_allgather_async,
)
from horovod.torch._handles import poll, synchronize  # noqa: F401
from horovod.torch._reductions import (  # noqa: F401
    allreduce_async,
    allreduce_async_,
    check_num_rank_power_of_2,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    handle_average_backwards_compatibility,
    reducescatter_async,
    sparse_allreduce_async,
)
from horovod.torch.compression import Compression, Compressor

# Upstream's name, which other packages use.
_basics = HorovodBasics(__file__, "mpi_lib_v2")


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces the tensor over all ranks of the set; averages unless an op is given. Its gradient is reduced in the same
    way."""
    op = handle_average_backwards_compatibility(op, average)
    sent, context = compression.compress(tensor)
    reduced = HorovodAllreduce.apply(sent, None, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(reduced, context)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces the tensor in place. Has no gradient."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:
    """Reduces a group of tensors over all ranks of the set, all or none."""
    op = handle_average_backwards_compatibility(op, average)
    sent, contexts = _compress(compression, tensors)
    reduced = HorovodGroupedAllreduce.apply(None, name, op, prescale_factor, postscale_factor, process_set, *sent)
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, ...]:
    """Reduces a group of tensors in place, all or none. Has no gradient."""
    return synchronize(
        grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
    )


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Gathers the rows of all ranks of the set in order. Ranks may have different numbers of rows."""
    return HorovodAllgather.apply(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tuple[torch.Tensor, ...]:
    """Gathers a group of tensors, all or none."""
    return HorovodGroupedAllgather.apply(name, process_set, *checked_group(tensors))


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Returns the root's tensor on every rank of the set. The root is a global rank."""
    return HorovodBroadcast.apply(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Broadcasts the root's values in place. Has no gradient."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Sends `splits[i]` rows to rank i of the set, equally many to each without splits. Returns the received rows,
    ordered by sender; with splits also their number per sender."""
    output, received = HorovodAlltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Returns this rank's share of the rows of the reduced tensor. If they do not divide evenly, the first ranks get
    one row more."""
    sent, context = compression.compress(tensor)
    reduced = HorovodReducescatter.apply(sent, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(reduced, context)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """Returns this rank's share of the rows of each reduced tensor, all or none."""
    sent, contexts = _compress(compression, tensors)
    reduced = HorovodGroupedReducescatter.apply(name, op, process_set, prescale_factor, postscale_factor, *sent)
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]


def join(device: int = -1) -> int:
    """This rank has no more data: it contributes zeros to the others' allreduces until all have joined. Returns the
    rank that joined last."""
    return _core.join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits for all ranks of the set."""
    _core.barrier(process_set_id(process_set))


def _compress(compression: Type[Compressor], tensors: Sequence[torch.Tensor]) -> Tuple[List[torch.Tensor], List[Any]]:
    pairs = [compression.compress(tensor) for tensor in checked_group(tensors)]
    return [sent for sent, _ in pairs], [context for _, context in pairs]
