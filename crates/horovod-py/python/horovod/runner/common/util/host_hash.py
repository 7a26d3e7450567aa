"""An identifier of this host, or of this container on it, by which orchestrators see which processes share a host."""

import hashlib
import os
import socket
from typing import Optional


def host_hash(salt: Optional[object] = None) -> str:
    """`<host name without domain>-<32 hex digits>`: equal for all processes of a host with the same mounts, so that two
    containers of one host differ. CONTAINER_ID, as set by resource managers, is included."""
    hostname = socket.gethostname()
    parts = [hostname, os.environ.get("CONTAINER_ID", ""), _mount_namespace(), "" if salt is None else str(salt)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
    return f"{hostname.split('.')[0]}-{digest}"


def _mount_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/mnt")
    except OSError:
        return ""
