"""Which of a job's hosts are others, and where they reach this one. The launcher enters here."""

from typing import Iterable, List

from horovod.runner.common.util.network import (
    address_of_interfaces,
    address_towards,
    filter_local_addresses,
    get_local_intfs,
    is_local,
    loopback_interfaces,
    resolve_host_address,
)

__all__ = [
    "filter_local_addresses",
    "get_driver_ip",
    "get_local_intfs",
    "is_local",
    "job_interfaces",
    "resolve_host_address",
]


def job_interfaces(nics: Iterable[str], remote_hosts: List[str]) -> List[str]:
    """For traffic between ranks: those asked for, or the loopback when all are here. Otherwise none is named, and
    each engine takes the way that leads to its peer."""
    return list(nics) or ([] if remote_hosts else loopback_interfaces())


def get_driver_ip(nics: Iterable[str], remote_hosts: List[str]) -> str:
    """The address at which the ranks reach the launcher."""
    nics = list(nics)
    if nics:
        return address_of_interfaces(nics)
    return address_towards(remote_hosts) if remote_hosts else "127.0.0.1"
