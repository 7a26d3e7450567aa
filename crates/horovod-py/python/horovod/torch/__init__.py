"""Horovod for PyTorch: `import horovod.torch as hvd`.

Reading order: `mpi_ops` (the collectives) over `_reductions`, `_data_movement`, `_autograd`, `_handles`, `_tensors`;
`optimizer` over `_gradients` and `_buckets`; `functions` (equal state on all ranks); `sync_batch_norm`.
"""

from importlib import import_module
from typing import Any

from horovod.common.basics import (  # noqa: F401
    Adasum,
    Average,
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
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401
from horovod.common.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.common.util import check_extension  # noqa: F401
from horovod.torch.compression import Compression  # noqa: F401
from horovod.torch.functions import (  # noqa: F401
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import (  # noqa: F401
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    poll,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
    synchronize,
)
from horovod.torch.optimizer import DistributedOptimizer  # noqa: F401
from horovod.torch.sync_batch_norm import SyncBatchNorm  # noqa: F401


def _check_has_gpu() -> bool:
    """Whether PyTorch sees a GPU. Upstream's name."""
    import torch

    return torch.cuda.is_available()


def __getattr__(name: str) -> Any:
    """Imports `hvd.elastic` on first access, since most jobs are not elastic."""
    if name == "elastic":
        return import_module("horovod.torch.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
