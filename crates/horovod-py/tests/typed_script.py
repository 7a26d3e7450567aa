"""A small user script for the type checker only: it must find the package typed, and the script correct. Never run."""

from typing import Optional

from horovod import __version__
from horovod.common import basics as hvd
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set


def main() -> Optional[int]:
    evens = ProcessSet(range(0, 4, 2))
    hvd.init(process_sets=[evens])
    place: tuple[int, int] = (hvd.rank(), hvd.size())
    added: ProcessSet = add_process_set([0, 1])
    removed: bool = remove_process_set(added)
    try:
        hvd.start_timeline("timeline.json", mark_cycles=True)
    except (HorovodInternalError, HostsUpdatedInterrupt) as error:
        print(__version__, error, place, removed, global_process_set.ranks)
    hvd.shutdown()
    return evens.rank()
