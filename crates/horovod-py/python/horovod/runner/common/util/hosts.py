"""Hosts of a job and assignment of ranks to them. Pure, except for reading a host file: starts nothing, resolves no
names.

Ranks are numbered host by host, slot by slot, in the order in which the hosts are listed.
"""

import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

_HOST_AND_SLOTS = re.compile(r"[\w.-]+:[0-9]+")


@dataclass(frozen=True)
class HostInfo:
    """A host and its number of slots."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> "HostInfo":
        """Parses `worker-0:2`."""
        if not _HOST_AND_SLOTS.fullmatch(host_string):
            raise ValueError(
                "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2."
                f" (this was given: {host_string!r})"
            )
        hostname, slots = host_string.rsplit(":", 1)
        return HostInfo(hostname, int(slots))


@dataclass
class SlotInfo:
    """Rank of one process. Sizes are filled in when all ranks are assigned."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: Optional[int] = None
    local_size: Optional[int] = None
    cross_size: Optional[int] = None

    def to_response_string(self) -> str:
        """`rank,size,local_rank,local_size,cross_rank,cross_size`, the format in which workers get a new rank."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(str(number) for number in numbers)


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> List[HostInfo]:
    """Parses `worker-0:2,worker-1:4`."""
    return [HostInfo.from_string(host.strip()) for host in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> Tuple[List[str], Dict[str, int]]:
    """The names in order, and the slots of each."""
    infos = parse_hosts(hosts)
    return [info.hostname for info in infos], {info.hostname: info.slots for info in infos}


def parse_host_files(filename: str) -> str:
    """Parses a file with lines `<host> slots=<n>` to `h1:2,h2:4`. Empty lines and comments (#) are ignored; a host
    without `slots=` has one slot."""
    hosts = []
    with open(filename) as lines:
        for number, line in enumerate(lines, 1):
            words = line.split("#", 1)[0].split()
            if not words:
                continue
            slots = "1"
            for word in words[1:]:
                name, _, value = word.partition("=")
                if name == "slots":
                    slots = value
            try:
                info = HostInfo.from_string(f"{words[0]}:{slots}")
            except ValueError:
                raise ValueError(
                    f"Invalid host file {filename}, line {number}: {line.strip()!r}. Write one host per line, such as:"
                    " worker-0 slots=2"
                ) from None
            hosts.append(f"{info.hostname}:{info.slots}")
    if not hosts:
        raise ValueError(f"The host file {filename} names no host. Write one host per line, such as: worker-0 slots=2")
    return ",".join(hosts)


def get_host_assignments(
    hosts: List[HostInfo], min_num_proc: int, max_num_proc: Optional[int] = None
) -> List[SlotInfo]:
    """The rank of every process. All slots are used, up to `max_num_proc`."""
    slots: List[SlotInfo] = []
    n_local: Dict[str, int] = {}
    n_cross: Dict[int, int] = {}
    for host in hosts:
        for _ in range(host.slots):
            if max_num_proc is not None and len(slots) == max_num_proc:
                break
            # A host that is listed twice is one host.
            local_rank = n_local.get(host.hostname, 0)
            cross_rank = n_cross.get(local_rank, 0)
            slots.append(SlotInfo(host.hostname, len(slots), local_rank, cross_rank))
            n_local[host.hostname] = local_rank + 1
            n_cross[local_rank] = cross_rank + 1
    if len(slots) < min_num_proc:
        raise ValueError(f"Requested more processes ({min_num_proc}) than there are available slots ({len(slots)})")
    for slot in slots:
        slot.size, slot.local_size, slot.cross_size = len(slots), n_local[slot.hostname], n_cross[slot.local_rank]
    return slots
