"""Process sets: operations among a subset of the ranks. Knows no framework.

Ids are assigned by the engine. A set has one from its registration until it is removed or the job ends.
"""

import weakref
from typing import Any, Iterable, Optional, Sequence, Union

from horovod import _core


class ProcessSet:
    """A subset of the job's ranks. Usable after registration by `hvd.init(process_sets=[...])` or
    `hvd.add_process_set(...)`."""

    process_set_id: Optional[int] = None
    ranks: Optional[list[int]] = None
    mpi_comm: Optional[Any] = None

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        if _is_communicator(ranks_or_comm):
            raise ValueError("A process set of an mpi4py communicator needs Horovod with MPI; give a list of ranks.")
        try:
            self.ranks = sorted(int(rank) for rank in ranks_or_comm)
        except (TypeError, ValueError):
            raise ValueError(
                "ProcessSet should be initialized with a list of process ranks or an mpi4py Comm object"
            ) from None

    def size(self) -> Optional[int]:
        """Number of ranks; None before registration."""
        if self.process_set_id is None:
            return None
        return len(_core.process_set_ranks(self.process_set_id))

    def rank(self) -> Optional[int]:
        """Rank of this process within the set; None before registration."""
        if self.process_set_id is None:
            return None
        members = _core.process_set_ranks(self.process_set_id)
        own = _core.rank()
        if own not in members:
            raise ValueError("Process is not part of provided process set.")
        return members.index(own)

    def included(self) -> Optional[bool]:
        """Whether this process is a member; works without registration."""
        if self.ranks is None:
            return None
        return _core.rank() in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"

    __repr__ = __str__


class _GlobalProcessSet(ProcessSet):
    def __init__(self) -> None:
        self.process_set_id = 0


global_process_set: ProcessSet = _GlobalProcessSet()

# Sets with an id, which is cleared when the job ends.
_registered: "weakref.WeakSet[ProcessSet]" = weakref.WeakSet()


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Registers a set. Collective over all ranks, members or not. Needs HOROVOD_DYNAMIC_PROCESS_SETS=1, or
    init(process_sets="dynamic")."""
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.ranks is None:
        raise ValueError("A process set without ranks cannot be added.")
    added.process_set_id = _core.add_process_set(added.ranks)
    _registered.add(added)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Collective over all ranks. False if the set cannot be removed: the global set, or one that is not registered."""
    if process_set.process_set_id is None or process_set.process_set_id == 0:
        return False
    removed = _core.remove_process_set(process_set.process_set_id)
    if removed:
        process_set.process_set_id = None
        _registered.discard(process_set)
    return removed


def process_set_id(process_set: ProcessSet) -> int:
    """The id of a set for an operation."""
    if process_set.process_set_id is None:
        raise ValueError(
            f"{process_set} is not registered: pass it to hvd.init(process_sets=[...]), or to hvd.add_process_set(...) with "
            "HOROVOD_DYNAMIC_PROCESS_SETS=1"
        )
    return process_set.process_set_id


def assign_ids(wanted: Sequence[ProcessSet]) -> None:
    """Assigns ids after init. ValueError for a duplicate; the sets before it are registered nevertheless. In an elastic job,
    whose size changes, a set of all ranks is the global set for now, and one with ranks that do not exist gets no id."""
    ids = {tuple(ranks): number for number, ranks in _core.process_sets()}
    everyone = global_process_set.ranks = _core.process_set_ranks(0)
    seen = set() if _core.is_elastic() else {tuple(everyone)}
    for position, process_set in enumerate(wanted):
        ranks = tuple(process_set.ranks or ())
        if ranks in seen:
            raise ValueError(
                f"Horovod could not be initialized because process_sets entry number {position} is a duplicate: {process_set}"
            )
        seen.add(ranks)
        process_set.process_set_id = ids.get(ranks)
        _registered.add(process_set)


def clear_ids() -> None:
    """Clears all ids, since the job has ended."""
    global_process_set.ranks = None
    for process_set in list(_registered):
        process_set.process_set_id = None
    _registered.clear()


def _is_communicator(given: object) -> bool:
    return hasattr(given, "Get_rank") and hasattr(given, "Get_size")
