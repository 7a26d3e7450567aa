"""Which hosts of a job are remote, and the address at which they reach this one. Also has upstream's functions for
other packages."""

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
    """The loopback interfaces; only `nic` of them, if given."""
    return {name for name in loopback_interfaces() if nic is None or name == nic}


def job_interfaces(nics: Iterable[str], remote_hosts: List[str]) -> List[str]:
    """Interfaces for traffic between ranks: the requested ones, or the loopback if all ranks are local. Otherwise none,
    and each engine uses the route to its peer."""
    return list(nics) or ([] if remote_hosts else loopback_interfaces())


def get_driver_ip(nics: Iterable[str], remote_hosts: Sequence[str] = ()) -> str:
    """The address at which the ranks reach the launcher."""
    nics = list(nics)
    if nics:
        return address_of_interfaces(nics)
    return address_towards(remote_hosts) if remote_hosts else "127.0.0.1"
