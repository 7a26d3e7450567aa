"""GPU tensors that the engine accesses in place. The engine uses one GPU of the process: that of the first tensor.
Tensors of other GPUs are copied there and back."""

from typing import Dict, Optional

import torch

from horovod import _core

_engine_index: Optional[int] = None
_reasons: Dict[int, str] = {}
"""Why the engine cannot access a GPU."""

# Ten times faster than the public function; PyTorch's own compiler uses it.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def engine_device(tensor: torch.Tensor) -> Optional[torch.device]:
    """The GPU where the engine expects this tensor; None if the tensor must pass through main memory."""
    global _engine_index
    if tensor.device.type != "cuda" or torch.version.cuda is None:
        return None
    if _engine_index is None:
        index = tensor.device.index or 0
        if index in _reasons:
            return None
        reason = _core.open_device(index)
        if reason is not None:
            _reasons[index] = reason
            return None
        _engine_index = index
    return torch.device("cuda", _engine_index)


def in_engine_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is in the memory of the engine's GPU."""
    device = engine_device(tensor)
    return device is not None and tensor.device.index == device.index


def current_stream(index: int) -> int:
    """The current stream of a GPU, as the engine takes it."""
    if _raw_stream is not None:
        return int(_raw_stream(index))
    return int(torch.cuda.current_stream(index).cuda_stream)
