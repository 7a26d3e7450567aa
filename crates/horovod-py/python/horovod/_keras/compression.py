"""Gradient compression for Keras without TensorFlow, with Keras' own casts, which every backend has."""

from typing import Any, Tuple


class NoneCompressor:
    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor:
    """Sends floating-point tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        import keras

        dtype = keras.backend.standardize_dtype(tensor.dtype)
        return (keras.ops.cast(tensor, "float16") if "float" in dtype else tensor), dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        import keras

        return keras.ops.cast(tensor, ctx)


class Compression:
    """The available compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
