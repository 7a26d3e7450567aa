"""How gradients may travel shorter than they are. Given to the collectives and wrappers of this package as `compression=`."""

from typing import Any, Tuple

import tensorflow as tf


class Compressor:
    """What a compression has to offer. The context that compress returns comes back to decompress."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        raise NotImplementedError


class NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Floating-point tensors travel as float16; others as they are."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        dtype = tensor.dtype
        return (tf.cast(tensor, tf.float16) if dtype.is_floating else tensor), dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tf.cast(tensor, ctx) if ctx.is_floating else tensor


class Compression:
    """The ones there are."""

    none = NoneCompressor
    fp16 = FP16Compressor
