"""Which of a job's hosts are others, and where they reach this one. The launcher enters here, and packages that know
upstream's functions."""

from typing import Iterable, List, Optional, Sequence, Set

from horovod.runner.common.util import network
from horovod.runner.common.util.network import (
    address_of_interfaces,
    address_towards,
    filter_local_addresses,
    find_port,
    is_local,
    loopback_interfaces,
    resolve_host_address,
)

__all__ = [
    "filter_local_addresses",
    "find_port",
    "get_driver_ip",
    "get_local_host_addresses",
    "get_local_intfs",
    "is_local",
    "job_interfaces",
    "resolve_host_address",
]


def get_local_host_addresses() -> Set[str]:
    """The IPv4 addresses of this host."""
    return {address for _, address in network.get_local_intfs()}


def get_local_intfs(nic: Optional[str] = None) -> Set[str]:
    """The loopback interfaces; of these only `nic`, when that is given."""
    return {name for name in loopback_interfaces() if nic is None or name == nic}


def job_interfaces(nics: Iterable[str], remote_hosts: List[str]) -> List[str]:
    """For traffic between ranks: those asked for, or the loopback when all are here. Otherwise none is named, and
    each engine takes the way that leads to its peer."""
    return list(nics) or ([] if remote_hosts else loopback_interfaces())


def get_driver_ip(nics: Iterable[str], remote_hosts: Sequence[str] = ()) -> str:
    """The address at which the ranks reach the launcher."""
    nics = list(nics)
    if nics:
        return address_of_interfaces(nics)
    return address_towards(remote_hosts) if remote_hosts else "127.0.0.1"
