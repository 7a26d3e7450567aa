"""The job and this process's place in it. Every framework module offers these functions; they know no framework.

`init` comes first, and `shutdown` is called at the interpreter's exit if the user has not. A forked child has no engine: it must not
touch its parent's, and so starts as if `init` had never been called.
"""

import atexit
import os
from typing import Any, Optional, Sequence, Union

from horovod import _core
from horovod.common import process_sets as sets
from horovod.common.process_sets import ProcessSet

# What a reduction computes. The numbers are Horovod's.
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

_leaves_at_exit = False


def init(
    comm: Optional[Union[Sequence[int], Any]] = None,
    process_sets: Optional[Union[str, Sequence[Union[ProcessSet, Sequence[int]]]]] = None,
) -> None:
    """Meets the other ranks of the job; returns when all have come. Does nothing the second time.

    comm: ranks that take part; without MPI that is all of them. process_sets: sets to begin with, or "dynamic" when sets are to be added
    and removed later. The launcher's variables say which rank this is; without any it is alone.
    """
    global _leaves_at_exit
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
    sets.assign_ids(wanted)


def shutdown() -> None:
    """Ends the job on all ranks: what others still wait for fails. `init` may be called again. Does nothing without an engine."""
    _core.shutdown()
    sets.clear_ids()


def is_initialized() -> bool:
    """Between `init` and `shutdown`."""
    return _core.is_initialized()


def rank() -> int:
    """Of this process, from 0."""
    return _core.rank()


def size() -> int:
    """Processes of the job."""
    return _core.size()


def local_rank() -> int:
    """Of this process among those of its host: the number of the device to use."""
    return _core.local_rank()


def local_size() -> int:
    """Processes of the job on this host."""
    return _core.local_size()


def cross_rank() -> int:
    """Of this host among those that have this local rank."""
    return _core.cross_rank()


def cross_size() -> int:
    """Hosts that have this local rank."""
    return _core.cross_size()


def is_homogeneous() -> bool:
    """Whether every host has as many processes."""
    return _core.is_homogeneous()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begins to write what happens to every tensor to a file that chrome://tracing shows. Needs HOROVOD_TIMELINE=DYNAMIC at `init`."""
    _core.start_timeline(os.fspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """Returns when the file is complete."""
    _core.stop_timeline()


def mpi_threads_supported() -> bool:
    """Always raises: there is no MPI."""
    raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")


def mpi_enabled() -> bool:
    """Never: no MPI is needed."""
    return False


def mpi_built() -> bool:
    """Never: no MPI is needed."""
    return False


def gloo_enabled() -> bool:
    """Always: the engine takes Gloo's place."""
    return True


def gloo_built() -> bool:
    """Always: the engine takes Gloo's place."""
    return True


def nccl_built() -> int:
    """The version of NCCL: 0, for none."""
    return 0


def ddl_built() -> bool:
    """Never."""
    return False


def ccl_built() -> bool:
    """Never."""
    return False


def cuda_built() -> bool:
    """Never: tensors of a GPU are taken through main memory."""
    return False


def rocm_built() -> bool:
    """Never: tensors of a GPU are taken through main memory."""
    return False


class HorovodBasics:
    """Upstream's object with the functions and constants of this module. Frameworks make one as `mpi_ops._basics`, and other packages
    reach the job through that.
    """

    def __init__(self, pkg_path: str, *args: str) -> None:
        """pkg_path and args: where upstream's compiled module of a framework is. There is one module for all, so they are not needed."""
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


def _ranks_of(comm: Optional[Union[Sequence[int], Any]]) -> Optional[list[int]]:
    if comm is None:
        return None
    try:
        ranks = sorted(int(rank) for rank in comm)
    except TypeError:
        raise ValueError(
            "Horovod initialization failed: comm must be a list of ranks; an mpi4py communicator needs Horovod with MPI"
        ) from None
    # Upstream reads an empty list as all ranks.
    return ranks or None


def _forget() -> None:
    _core.after_fork()
    sets.clear_ids()


os.register_at_fork(after_in_child=_forget)
