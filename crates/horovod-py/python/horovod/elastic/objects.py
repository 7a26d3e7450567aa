"""Broadcasts Python objects without a framework, for states of every kind."""

import ctypes
import struct
from typing import Any

import cloudpickle

from horovod import _core
from horovod.common import basics

_UINT8 = 0


def broadcast_object(obj: Any, root_rank: int = 0, name: str = "elastic_object") -> Any:
    """Collective. Returns the object itself on the root, a copy elsewhere."""
    is_root = basics.rank() == root_rank
    pickled = cloudpickle.dumps(obj) if is_root else b""
    length = bytearray(struct.pack("<q", len(pickled)))
    _broadcast(length, root_rank, f"{name}.sz")
    content = bytearray(pickled if is_root else struct.unpack("<q", length)[0])
    _broadcast(content, root_rank, f"{name}.t")
    return obj if is_root else cloudpickle.loads(bytes(content))


def _broadcast(content: bytearray, root_rank: int, name: str) -> None:
    memory = (ctypes.c_ubyte * len(content)).from_buffer(content)
    address = ctypes.addressof(memory)
    tensors = [(address, address, _UINT8, (len(content),))]
    handle = _core.submit(_core.BROADCAST, "broadcast", name, tensors, root=root_rank, keep=memory)
    _core.synchronize(handle)
