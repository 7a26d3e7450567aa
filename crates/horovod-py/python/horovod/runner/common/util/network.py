"""Addresses of this host: which host names mean this host, and at which address others reach it. Sends nothing: names
are resolved, and the kernel is asked for routes."""

import fcntl
import ipaddress
import socket
import struct
from importlib import import_module
from typing import Any, Callable, Iterable, List, Optional, Tuple

_SIOCGIFADDR = 0x8915
_PORT_ATTEMPTS = 100
# Upstream has these names here. Imported on first access, since the launcher does not need them.
_IN_RPC = {
    "AckResponse",
    "AckStreamResponse",
    "BasicClient",
    "BasicService",
    "NoValidAddressesFound",
    "PingRequest",
    "PingResponse",
    "Wire",
}


def __getattr__(name: str) -> Any:
    if name in _IN_RPC:
        return getattr(import_module("horovod.runner.common.util.rpc"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_local_intfs() -> List[Tuple[str, str]]:
    """Interfaces with an IPv4 address, and that address."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue
            found.append((name, socket.inet_ntoa(answer[20:24])))
    return found


def resolve_host_address(host_name: str) -> Optional[str]:
    """An IPv4 address; None if the name has none."""
    try:
        return socket.gethostbyname(host_name)
    except OSError:
        return None


def is_local(host_name: str) -> bool:
    """Whether the name means this host. An unresolvable name may be an ssh alias of another host, so it does not."""
    if host_name in ("localhost", socket.gethostname()):
        return True
    address = resolve_host_address(host_name)
    if address is None:
        return False
    return ipaddress.ip_address(address).is_loopback or address in (own for _, own in get_local_intfs())


def filter_local_addresses(all_host_names: Iterable[str]) -> List[str]:
    """The names that do not mean this host."""
    return [name for name in all_host_names if not is_local(name)]


def loopback_interfaces() -> List[str]:
    return [name for name, address in get_local_intfs() if ipaddress.ip_address(address).is_loopback]


def address_of_interfaces(nics: Iterable[str]) -> str:
    """The address of the first of these interfaces that has one."""
    nics = list(nics)
    addresses = dict(get_local_intfs())
    for nic in nics:
        if nic in addresses:
            return addresses[nic]
    raise ValueError(
        f"None of the network interfaces {', '.join(nics)} has an IPv4 address here; those that have one:"
        f" {', '.join(sorted(addresses))}"
    )


def address_towards(host_names: Iterable[str]) -> str:
    """The address at which these hosts can reach this one: that of the interface on the route to them."""
    for host in [*host_names, "192.0.2.1"]:  # The last one has the default route.
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                # Connecting a datagram socket sends nothing.
                sock.connect((host, 9))
                return str(sock.getsockname()[0])
        except OSError:
            continue
    return resolve_host_address(socket.gethostname()) or "127.0.0.1"


def find_port(server_factory: Callable[[Tuple[str, int]], Any]) -> Tuple[Any, int]:
    """A server on a free port, made by the factory from an address, and the port."""
    for _ in range(_PORT_ATTEMPTS):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.bind(("", 0))
            port = int(sock.getsockname()[1])
        try:
            return server_factory(("", port)), port
        except OSError:
            continue  # Another process took the port in the meantime.
    raise OSError(f"Unable to find a port to bind to: {_PORT_ATTEMPTS} free ones were taken by others")
