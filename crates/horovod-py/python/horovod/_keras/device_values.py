"""Collectives on values that a framework has in the memory of a device: JAX arrays that the engine accesses by
`backends.jax_ffi`, and PyTorch tensors on a GPU. Every function returns None for other values, which pass through NumPy.

A result of JAX must have a shape that is known before, so allgather and reducescatter of JAX arrays pass through NumPy.
"""

import sys
from typing import Any, List, Optional, Sequence, Tuple

from horovod import _core


def allreduce(value: Any, name: str, op: int, prescale: float, postscale: float) -> Optional[Any]:
    framework, tensors = _tensors([value])
    if framework == "jax":
        from horovod._keras.backends import jax_ffi

        options = {"op": op, "prescale": prescale, "postscale": postscale}
        return jax_ffi.call(_core.ALLREDUCE, tensors, [(1, name)], **options)[0]
    if framework == "torch":
        import horovod.torch as hvd

        return hvd.allreduce(tensors[0], name=name, op=op, prescale_factor=prescale, postscale_factor=postscale)
    return None


def broadcast(values: Sequence[Any], name: str, root: int) -> Optional[List[Any]]:
    """Broadcasts all values at once, named `<name>.<number>`."""
    framework, tensors = _tensors(values)
    names = [f"{name}.{number}" for number in range(len(tensors))]
    if framework == "jax":
        from horovod._keras.backends import jax_ffi

        return jax_ffi.call(_core.BROADCAST, tensors, [(1, name) for name in names], root=root)
    if framework == "torch":
        import horovod.torch as hvd

        handles = [hvd.broadcast_async(tensor, root, name=name) for tensor, name in zip(tensors, names)]
        return [hvd.synchronize(handle) for handle in handles]
    return None


def allgather(value: Any, name: str) -> Optional[Any]:
    framework, tensors = _tensors([value])
    if framework != "torch":
        return None
    import horovod.torch as hvd

    return hvd.allgather(tensors[0], name=name)


def reducescatter(value: Any, name: str, op: int) -> Optional[Any]:
    framework, tensors = _tensors([value])
    if framework != "torch":
        return None
    import horovod.torch as hvd

    return hvd.reducescatter(tensors[0], name=name, op=op)


def _tensors(values: Sequence[Any]) -> Tuple[Optional[str], List[Any]]:
    """The framework of the values, and the values of variables; None unless all are in the memory of its device."""
    inner = [_inner(value) for value in values]
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if not inner:
        return None, []
    if jax is not None and all(isinstance(tensor, jax.Array) and _is_whole(jax, tensor) for tensor in inner):
        from horovod._keras.backends import jax_ffi

        return ("jax", inner) if jax_ffi.is_used() else (None, [])
    if torch is not None and all(isinstance(tensor, torch.Tensor) and tensor.is_cuda for tensor in inner):
        return "torch", [tensor.detach().contiguous() for tensor in inner]
    return None, []


def _inner(value: Any) -> Any:
    """The array of a Keras variable; other values unchanged."""
    inner = getattr(value, "value", None)
    return value if inner is None or callable(inner) else inner


def _is_whole(jax: Any, array: Any) -> bool:
    """Whether the array is in the memory of one device, the default one."""
    return not isinstance(array, jax.core.Tracer) and array.devices() == {jax.local_devices()[0]}
