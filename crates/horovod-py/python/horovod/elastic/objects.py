"""Collectives on Python objects without a framework, for states of every kind. Large parts of an object - the memory of
NumPy arrays and of PyTorch tensors - are sent as tensors of their own and never copied into a pickle; only the
structure around them is pickled."""

import ctypes
import io
import pickle
import struct
import sys
from typing import Any, List, Sequence

import cloudpickle

from horovod import _core
from horovod.common import basics

_UINT8, _INT64 = 0, 5


def broadcast_object(obj: Any, root_rank: int = 0, name: str = "elastic_object") -> Any:
    """Collective. Returns the object itself on the root, a copy elsewhere."""
    is_root = basics.rank() == root_rank
    structure, parts = _split(obj) if is_root else (b"", [])
    lengths = broadcast_numbers([len(structure), len(parts)], root_rank, f"{name}.sz")
    sizes = [part.nbytes for part in parts] if is_root else [0] * lengths[1]
    sizes = broadcast_numbers(sizes, root_rank, f"{name}.parts")
    received: List[Any] = [bytearray(structure) if is_root else bytearray(lengths[0])]
    received += parts if is_root else [bytearray(size) for size in sizes]
    # All in flight at once, for the engine to pipeline.
    handles = [_start(content, root_rank, f"{name}.t.{number}") for number, content in enumerate(received)]
    for handle in handles:
        _core.synchronize(handle)
    return obj if is_root else pickle.loads(bytes(received[0]), buffers=received[1:])


def broadcast_numbers(numbers: Sequence[int], root_rank: int, name: str) -> List[int]:
    """Collective. The root's integers; every rank gives as many."""
    if not numbers:
        return []
    memory = (ctypes.c_int64 * len(numbers))(*numbers)
    address = ctypes.addressof(memory)
    tensors = [(address, address, _INT64, (len(numbers),))]
    _core.synchronize(_core.submit(_core.BROADCAST, "broadcast", name, tensors, root=root_rank, keep=memory))
    return list(memory)


def allgather_numbers(numbers: Sequence[int], name: str) -> List[List[int]]:
    """Collective. The integers of every rank, by rank; every rank gives as many."""
    memory = (ctypes.c_int64 * len(numbers))(*numbers)
    tensors = [(ctypes.addressof(memory), 0, _INT64, (1, len(numbers)))]
    outputs = _core.synchronize(_core.submit(_core.ALLGATHER, "allgather", name, tensors, keep=memory))
    assert outputs is not None and outputs[0] is not None, "the engine allocates the result of an allgather"
    gathered = struct.unpack(f"={outputs[0].nbytes // 8}q", ctypes.string_at(outputs[0].address, outputs[0].nbytes))
    return [list(gathered[start : start + len(numbers)]) for start in range(0, len(gathered), len(numbers))]


def start_barrier(name: str) -> int:
    """Starts an operation that ends when all ranks have started it. Returns its handle, which can be polled."""
    memory = (ctypes.c_int64 * 1)(0)
    address = ctypes.addressof(memory)
    return _core.submit(_core.ALLREDUCE, "allreduce", name, [(address, address, _INT64, (1,))], keep=memory)


class _Pickler(cloudpickle.CloudPickler):
    """Pickles PyTorch tensors as NumPy pickles arrays: their memory out of band. Tensors that are more than that memory
    (on a device, sparse, with a gradient) are left to PyTorch."""

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and type(obj) is torch.Tensor and _is_plain(torch, obj):
            memory = (ctypes.c_ubyte * (obj.numel() * obj.element_size())).from_address(obj.data_ptr())
            # The pickle buffer keeps the array, and the array its tensor.
            memory.tensor = obj  # type: ignore[attr-defined]
            return _tensor_from, (pickle.PickleBuffer(memory), str(obj.dtype).rpartition(".")[2], tuple(obj.shape))
        return super().reducer_override(obj)


def _split(obj: Any) -> "tuple[bytes, List[memoryview]]":
    """The pickled structure of an object, and the memory of its large parts in order."""
    parts: List[memoryview] = []
    buffer = io.BytesIO()
    # Parts are never smaller than what a message costs: those are cheaper in the pickle.
    _Pickler(buffer, protocol=5, buffer_callback=lambda part: _keep_in_band(part, parts)).dump(obj)
    return buffer.getvalue(), parts


_SMALLEST_PART_BYTES = 4096


def _keep_in_band(part: pickle.PickleBuffer, parts: List[memoryview]) -> bool:
    memory = part.raw()
    if memory.nbytes < _SMALLEST_PART_BYTES:
        return True
    parts.append(memory)
    return False


def _is_plain(torch: Any, tensor: Any) -> bool:
    return bool(
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.numel() > 0
    )


def _tensor_from(memory: Any, dtype: str, shape: Sequence[int]) -> Any:
    import torch

    if memoryview(memory).readonly:
        memory = bytearray(memory)
    return torch.frombuffer(memory, dtype=getattr(torch, dtype)).reshape(shape)


def _start(content: Any, root_rank: int, name: str) -> int:
    """Starts the broadcast of a block of memory in place. The root's may be read-only, since it is only read."""
    view = memoryview(content).cast("B")
    if view.readonly:
        memory: Any = ctypes.create_string_buffer(view.tobytes(), view.nbytes)
    else:
        memory = (ctypes.c_ubyte * view.nbytes).from_buffer(view)
    address = ctypes.addressof(memory)
    tensors = [(address, address, _UINT8, (view.nbytes,))]
    return _core.submit(_core.BROADCAST, "broadcast", name, tensors, root=root_rank, keep=memory)
