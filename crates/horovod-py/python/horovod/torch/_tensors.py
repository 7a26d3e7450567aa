"""Conversion between tensors and addresses. The engine accesses main memory and one GPU; tensors elsewhere are copied.
Memory that the engine still uses is never released."""

import ctypes
from typing import Dict, List, Optional, Sequence, Tuple

import torch

from horovod import _core
from horovod.torch import _device

try:
    import numpy
except ImportError:  # Optional; results are copied once more without it.
    numpy = None  # type: ignore[assignment]

Entry = Tuple[int, int, int, Tuple[int, ...]]
"""A tensor in the engine's format: address of the input, address of the output, dtype, shape."""

CPU = -1
"""The engine's device number for main memory; others have the number of their GPU."""

DTYPES: Dict[torch.dtype, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bool: 9,
    torch.bfloat16: 10,
}
if hasattr(torch, "uint16"):
    DTYPES[torch.uint16] = 2

_TORCH_DTYPES = {number: dtype for dtype, number in DTYPES.items()}


def checked_dtype(tensor: torch.Tensor) -> int:
    """The engine's dtype number. ValueError for unsupported tensors: a dtype without a number, or noncontiguous
    elements."""
    number = DTYPES.get(tensor.dtype)
    if number is None or tensor.layout is not torch.strided:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")
    return number


def in_main_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is in main memory."""
    return tensor.device.type == "cpu"


def device_number(tensor: torch.Tensor) -> int:
    """The device number that the ranks compare: -1 for main memory."""
    if in_main_memory(tensor):
        return CPU
    index = tensor.device.index
    return index if index is not None else 0


def stream_of(tensor: torch.Tensor) -> Optional[int]:
    """The current stream of a tensor in the memory of the engine's GPU; None for main memory."""
    return _device.current_stream(tensor.device.index) if tensor.device.type == "cuda" else None


def staged(tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """The tensors where the engine can access them: on its GPU, else copied there, else copied to main memory. Copies to
    main memory are complete on return.

    The copies use the current streams, so they run after the kernels that compute the tensors.
    """
    device = _device.engine_device(tensors[0])
    if device is not None:
        return [tensor if tensor.device == device else tensor.detach().to(device) for tensor in tensors]
    hosts = [allocate_buffer(tensor) for tensor in tensors]
    copies = [start_copy_to_host(tensor, host) for tensor, host in zip(tensors, hosts)]
    for copy in copies:
        copy.synchronize()
    return hosts


def allocate_buffer(tensor: torch.Tensor) -> torch.Tensor:
    """A buffer as large as the tensor that the engine can access: on its GPU, else in main memory; pinned, so that copies
    are fast and asynchronous."""
    device = _device.engine_device(tensor)
    if device is not None:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")


class CompletedCopy:
    """Event of a copy that was complete when it was started."""

    @staticmethod
    def query() -> bool:
        return True

    @staticmethod
    def synchronize() -> None:
        pass


def start_copy_to_host(tensor: torch.Tensor, host: torch.Tensor):  # type: ignore[no-untyped-def]
    """Starts the copy and returns an event with `query` and `synchronize`."""
    if tensor.device.type != "cuda":
        host.copy_(tensor.detach())
        return CompletedCopy
    host.copy_(tensor.detach(), non_blocking=True)
    return record_event(tensor)


def record_event(tensor: torch.Tensor):  # type: ignore[no-untyped-def]
    """Event after all work submitted so far to the current stream of the tensor's device."""
    if tensor.device.type != "cuda":
        return CompletedCopy
    with torch.cuda.device(tensor.device):
        event = torch.cuda.Event()
        event.record()
    return event


def wait_in_stream(tensor: torch.Tensor, event) -> None:  # type: ignore[no-untyped-def]
    """Makes later work in the current stream of the tensor's device wait for the event. Does not block."""
    if event is not CompletedCopy:
        torch.cuda.current_stream(tensor.device).wait_event(event)


def from_host(tensor: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
    """Copies the values back to the tensor, ordered with the current stream. PyTorch does not reuse pinned memory
    before the copy is complete, so this does not wait."""
    if tensor is not host:
        with torch.no_grad():
            tensor.copy_(host, non_blocking=True)
    return tensor


def tensor_from_output(output: "_core.Output", device: torch.device) -> torch.Tensor:
    """A result allocated by the engine, as a tensor. On the CPU and on the engine's GPU it shares the engine's memory."""
    dtype = _TORCH_DTYPES[output.dtype]
    shape = output.shape
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=device)
    if hasattr(output, "__cuda_array_interface__"):
        return torch.as_tensor(output, device="cuda").view(dtype).to(device)
    if numpy is None:
        result = torch.empty(shape, dtype=dtype)
        ctypes.memmove(result.data_ptr(), output.address, output.nbytes)
    else:
        array = numpy.asarray(output)
        # NumPy has no bfloat16, and old PyTorch no uint16: use a two-byte dtype that both know.
        if array.dtype == numpy.uint16:
            result = torch.from_numpy(array.view(numpy.int16)).view(dtype)
        else:
            result = torch.from_numpy(array)
    return result if device.type == "cpu" else result.to(device)


def entries(inputs: Sequence[torch.Tensor], outputs: Sequence[Optional[torch.Tensor]]) -> Tuple[Entry, ...]:
    """Tensors in the engine's format; an output of None is allocated by the engine."""
    made = []
    for tensor, output in zip(inputs, outputs):
        number = DTYPES.get(tensor.dtype)
        if number is None or tensor.layout is not torch.strided or not tensor.is_contiguous():
            checked_dtype(tensor)  # Raises the error.
            raise AssertionError("unreachable")
        address = tensor.data_ptr()
        written = address if output is tensor else 0 if output is None else output.data_ptr()
        made.append((address, written, number, tensor.shape))
    return tuple(made)
