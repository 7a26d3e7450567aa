"""Gradient compression for transport, available as `hvd.Compression`. Only floating-point tensors are compressed:
rounding integers would change them."""

from typing import Any, Optional, Tuple, Type

import torch


class Compressor:
    """Interface of a compressor. Users may pass their own as `compression`."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """The tensor to send, and the context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The result in the original dtype."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    wire_dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
        if not tensor.dtype.is_floating_point or tensor.dtype == cls.wire_dtype:
            return tensor, None
        return tensor.to(cls.wire_dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Optional[torch.dtype]) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floats as 16-bit IEEE floats: half the traffic of float32, three decimal digits, overflows past 65504."""

    wire_dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends floats as bfloat16: half the traffic of float32, two decimal digits, the range of float32."""

    wire_dtype = torch.bfloat16


class Compression:
    """The compressors to choose from."""

    none: Type[Compressor] = NoneCompressor
    fp16: Type[Compressor] = FP16Compressor
    bf16: Type[Compressor] = BF16Compressor
