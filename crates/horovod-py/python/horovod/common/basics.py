"""Initialization, shutdown and rank information. Every framework module re-exports these functions; they know no
framework.

`init` comes first; `shutdown` is called at interpreter exit if the user has not. A forked child has no engine: it
must not touch its parent's, and starts as if `init` had never been called.
"""

import atexit
import os
from typing import Any, Optional, Sequence, Union

from horovod import _core
from horovod.common import process_sets as sets
from horovod.common.process_sets import ProcessSet

# Reduction ops, with Horovod's numbers.
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

_leaves_at_exit = False
_initial_sets: list[ProcessSet] = []

def init(
    comm: Optional[Union[Sequence[int], Any]] = None,
    process_sets: Optional[Union[str, Sequence[Union[ProcessSet, Sequence[int]]]]] = None,
) -> None:
    """Connects to the other ranks of the job and returns when all are connected. Does nothing the second time.

    comm: participating ranks; without MPI always all of them. process_sets: initial sets, or "dynamic" if sets are
    added and removed later. The launcher's variables define the rank; without any this is the only one. In an elastic job
    the launcher gives it, in every `init`, and sets of ranks that do not exist are not registered.
    """
    global _leaves_at_exit, _initial_sets
    ranks = _ranks_of(comm)
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'process_sets is "{process_sets}": give a list of hvd.ProcessSet, or "dynamic"')
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        process_sets = None
    wanted = [given if isinstance(given, ProcessSet) else ProcessSet(given) for given in process_sets or ()]
    if any(process_set.ranks is None for process_set in wanted):
        raise ValueError("Horovod initialization failed: a process set without ranks needs MPI")
    _core.init([process_set.ranks or [] for process_set in wanted])
    if not _leaves_at_exit:
        atexit.register(_core.at_exit)
        _leaves_at_exit = True
    if ranks is not None and ranks != list(range(_core.size())):
        raise ValueError(
            f"Horovod initialization failed: comm is {ranks}, but without MPI all {_core.size()} ranks of the job take part; "
            "use process_sets for operations among some of them"
        )
    _initial_sets = wanted
    if _core.is_elastic():
        _update_environment()
    sets.assign_ids(wanted)


def restart() -> None:
    """Shuts down and connects again, in an elastic job with the ranks that it has now. The process sets of `init` are made
    again."""
    shutdown()
    init(process_sets=_initial_sets)


def shutdown() -> None:
    """Shuts down the job on all ranks: pending operations of others fail. `init` may be called again. Does nothing
    without an engine."""
    _core.shutdown()
    sets.clear_ids()


def is_initialized() -> bool:
    """True between `init` and `shutdown`."""
    return _core.is_initialized()


def rank() -> int:
    """Rank of this process, from 0."""
    return _core.rank()


def size() -> int:
    """Number of processes of the job."""
    return _core.size()


def local_rank() -> int:
    """Rank of this process on its host: the number of the device to use."""
    return _core.local_rank()


def local_size() -> int:
    """Number of processes of the job on this host."""
    return _core.local_size()


def cross_rank() -> int:
    """Rank of this host among those that have this local rank."""
    return _core.cross_rank()


def cross_size() -> int:
    """Number of hosts that have this local rank."""
    return _core.cross_size()


def is_homogeneous() -> bool:
    """Whether every host has the same number of processes."""
    return _core.is_homogeneous()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts writing a timeline of all tensors, a file for chrome://tracing. Needs HOROVOD_TIMELINE=DYNAMIC at `init`."""
    _core.start_timeline(os.fspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """Stops the timeline and returns when the file is complete."""
    _core.stop_timeline()


def mpi_threads_supported() -> bool:
    """Always raises: MPI is not used."""
    raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")


def mpi_enabled() -> bool:
    """Always false: MPI is not used."""
    return False


def mpi_built() -> bool:
    """Always false: MPI is not used."""
    return False


def gloo_enabled() -> bool:
    """Always true: the engine replaces Gloo."""
    return True


def gloo_built() -> bool:
    """Always true: the engine replaces Gloo."""
    return True


def nccl_built() -> int:
    """The NCCL version: always 0."""
    return 0


def ddl_built() -> bool:
    """Always false."""
    return False


def ccl_built() -> bool:
    """Always false."""
    return False


def cuda_built() -> bool:
    """Always false: GPU tensors are copied through main memory."""
    return False


def rocm_built() -> bool:
    """Always false: GPU tensors are copied through main memory."""
    return False


class HorovodBasics:
    """Upstream's object with the functions and constants of this module. Frameworks provide one as `mpi_ops._basics`,
    which other packages use."""

    def __init__(self, pkg_path: str, *args: str) -> None:
        """pkg_path and args locate upstream's compiled module of a framework. Unused, since there is one module for
        all."""
        self.Average, self.Sum, self.Adasum = Average, Sum, Adasum
        self.Min, self.Max, self.Product = Min, Max, Product
        self.init, self.shutdown, self.is_initialized = init, shutdown, is_initialized
        self.start_timeline, self.stop_timeline = start_timeline, stop_timeline
        self.rank, self.size = rank, size
        self.local_rank, self.local_size = local_rank, local_size
        self.cross_rank, self.cross_size = cross_rank, cross_size
        self.is_homogeneous = is_homogeneous
        self.mpi_threads_supported, self.mpi_enabled, self.mpi_built = mpi_threads_supported, mpi_enabled, mpi_built
        self.gloo_enabled, self.gloo_built = gloo_enabled, gloo_built
        self.nccl_built, self.ddl_built, self.ccl_built = nccl_built, ddl_built, ccl_built
        self.cuda_built, self.rocm_built = cuda_built, rocm_built

    def _process_set_rank(self, process_set_id: int) -> int:
        members = _core.process_set_ranks(process_set_id)
        if rank() not in members:
            raise ValueError("Process is not part of provided process set.")
        return members.index(rank())

    def _process_set_size(self, process_set_id: int) -> int:
        return len(_core.process_set_ranks(process_set_id))

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        return dict(_core.process_sets())


def _update_environment() -> None:
    """The variables of the launcher say what holds now, as upstream's do after a reset."""
    current = {
        "HOROVOD_RANK": _core.rank(),
        "HOROVOD_SIZE": _core.size(),
        "HOROVOD_LOCAL_RANK": _core.local_rank(),
        "HOROVOD_LOCAL_SIZE": _core.local_size(),
        "HOROVOD_CROSS_RANK": _core.cross_rank(),
        "HOROVOD_CROSS_SIZE": _core.cross_size(),
    }
    os.environ.update({name: str(number) for name, number in current.items()})


def _ranks_of(comm: Optional[Union[Sequence[int], Any]]) -> Optional[list[int]]:
    if comm is None:
        return None
    try:
        ranks = sorted(int(rank) for rank in comm)
    except TypeError:
        raise ValueError(
            "Horovod initialization failed: comm must be a list of ranks; an mpi4py communicator needs Horovod with MPI"
        ) from None
    # Upstream treats an empty list as all ranks.
    return ranks or None


def _forget() -> None:
    _core.after_fork()
    sets.clear_ids()


os.register_at_fork(after_in_child=_forget)
