"""The border between tensors and addresses. The collectives and the optimizer enter here, with tensors of any device;
the engine sees main memory only. Never decides what is computed, and never lets go of memory that the engine still
uses.
"""

import ctypes
from typing import Dict, List, Optional, Sequence, Tuple

import torch

from horovod import _core

try:
    import numpy
except ImportError:  # PyTorch works without it; results are then copied once more.
    numpy = None  # type: ignore[assignment]

Entry = Tuple[int, int, int, Tuple[int, ...]]
"""A tensor as the engine takes it: address of the input, address of the output, dtype, shape."""

CPU = -1
"""The engine's number for main memory, where others have the number of their GPU."""

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
    """The engine's number. ValueError for what the engine cannot tensor_from_output: a dtype without number, elements that do not lie
    in order.
    """
    number = DTYPES.get(tensor.dtype)
    if number is None or tensor.layout is not torch.strided:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")
    return number


def in_main_memory(tensor: torch.Tensor) -> bool:
    """Whether the engine can reach it. Everything else is staged."""
    return tensor.device.type == "cpu"


def device_number(tensor: torch.Tensor) -> int:
    """As the ranks compare it: -1 for main memory."""
    if in_main_memory(tensor):
        return CPU
    index = tensor.device.index
    return index if index is not None else 0


def all_to_host(tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """The tensors' values in main memory of our own, complete when this returns.

    The copies go through the streams that are current here, thus after the kernels that compute the tensors.
    """
    hosts = [allocate_host_buffer(tensor) for tensor in tensors]
    copies = [start_copy_to_host(tensor, host) for tensor, host in zip(tensors, hosts)]
    for copy in copies:
        copy.synchronize()
    return hosts


def allocate_host_buffer(tensor: torch.Tensor) -> torch.Tensor:
    """Main memory as large as the tensor; pinned, so that copies run at full speed and beside the host."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")


class CompletedCopy:
    """The event of a copy that was over when it was started."""

    @staticmethod
    def query() -> bool:
        return True

    @staticmethod
    def synchronize() -> None:
        pass


def start_copy_to_host(tensor: torch.Tensor, host: torch.Tensor):  # type: ignore[no-untyped-def]
    """Begins the copy, and returns what can be asked (`query`) or awaited (`synchronize`)."""
    if tensor.device.type != "cuda":
        host.copy_(tensor.detach())
        return CompletedCopy
    host.copy_(tensor.detach(), non_blocking=True)
    return record_event(tensor)


def record_event(tensor: torch.Tensor):  # type: ignore[no-untyped-def]
    """Stands for what was started so far on the tensor's device, in its current stream."""
    if tensor.device.type != "cuda":
        return CompletedCopy
    with torch.cuda.device(tensor.device):
        event = torch.cuda.Event()
        event.record()
    return event


def wait_in_stream(tensor: torch.Tensor, event) -> None:  # type: ignore[no-untyped-def]
    """What is started next in the current stream of the tensor's device comes after the mark. Does not wait here."""
    if event is not CompletedCopy:
        torch.cuda.current_stream(tensor.device).wait_event(event)


def from_host(tensor: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
    """The values back in the tensor, for whoever uses it in the current stream. Pinned memory is not given away by
    PyTorch before the copy is over, so nothing waits here.
    """
    if tensor is not host:
        with torch.no_grad():
            tensor.copy_(host, non_blocking=True)
    return tensor


def tensor_from_output(output: "_core.Output", device: torch.device) -> torch.Tensor:
    """A result that the engine made room for, as a tensor. On the CPU it is the engine's memory itself."""
    dtype = _TORCH_DTYPES[output.dtype]
    shape = output.shape
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=device)
    if numpy is None:
        result = torch.empty(shape, dtype=dtype)
        ctypes.memmove(result.data_ptr(), output.address, output.nbytes)
    else:
        array = numpy.asarray(output)
        # NumPy has no bfloat16, and old PyTorch no uint16: the same two bytes under a name that both know.
        if array.dtype == numpy.uint16:
            result = torch.from_numpy(array.view(numpy.int16)).view(dtype)
        else:
            result = torch.from_numpy(array)
    return result if device.type == "cpu" else result.to(device)


def entries(inputs: Sequence[torch.Tensor], outputs: Sequence[Optional[torch.Tensor]]) -> Tuple[Entry, ...]:
    """As the engine takes them; an output of None is one that the engine makes room for."""
    return tuple(
        (tensor.data_ptr(), 0 if output is None else output.data_ptr(), checked_dtype(tensor), tuple(tensor.shape))
        for tensor, output in zip(inputs, outputs)
    )
