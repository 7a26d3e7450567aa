"""Collectives on JAX arrays by XLA's foreign function interface: the engine gets the addresses and, on a GPU, the stream,
so GPU arrays stay on the GPU. No Python runs in a step.

Used on CUDA. Elsewhere, and where the engine cannot access the GPU, arrays pass through main memory. HOROVOD_JAX_OPS:
`ffi` uses it on the CPU, too; `callback` never uses it.
"""

import functools
import logging
import os
import re
import struct
from typing import Any, List, Optional, Sequence, Tuple

import jax

from horovod import _core

TARGET = "horovod_requests"

log = logging.getLogger("horovod")


@functools.lru_cache(maxsize=None)
def is_used() -> bool:
    """Whether arrays of JAX's default backend go to the engine directly. Says the choice once in the log."""
    wish = os.environ.get("HOROVOD_JAX_OPS", "auto")
    if wish not in ("auto", "ffi", "callback"):
        raise ValueError(f"HOROVOD_JAX_OPS must be auto, ffi or callback, and is {wish!r}")
    backend = jax.default_backend()
    if wish == "callback" or (wish == "auto" and backend == "cpu"):
        return False
    reason = _obstacle(backend)
    if reason is None:
        log.info("JAX: the engine accesses arrays in the memory of the %s.", "GPU" if backend == "gpu" else "host")
        return True
    log.warning("JAX: arrays pass through main memory: %s.", reason)
    return False


def call(kind: int, tensors: Sequence[Any], requests: Sequence[Tuple[int, str]], **options: Any) -> List[Any]:
    """Executes requests, each of a number of tensors with a name, and returns results like the tensors. In a function that
    is compiled, or at once."""
    shapes = [jax.ShapeDtypeStruct(tensor.shape, tensor.dtype) for tensor in tensors]
    function = jax.ffi.ffi_call(TARGET, shapes, has_side_effect=True)
    return list(function(*tensors, requests=encoded(kind, requests, **options)))


def encoded(
    kind: int,
    requests: Sequence[Tuple[int, str]],
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    process_set: int = 0,
) -> str:
    """The requests as the handler reads them."""
    first = [kind, op, _bits(prescale), _bits(postscale), root, process_set]
    return "\n".join([" ".join(map(str, first)), *(f"{n_tensors} {name}" for n_tensors, name in requests)])


def _obstacle(backend: str) -> Optional[str]:
    """Why the handlers cannot be used; registers them."""
    if backend not in ("cpu", "gpu"):
        return f"the engine cannot access the memory of a {backend}"
    if not hasattr(jax, "ffi"):
        return f"JAX {jax.__version__} has no jax.ffi: version 0.5 or later is needed"
    if backend == "gpu":
        reason = _core.open_device(jax.local_devices()[0].local_hardware_id)
        if reason is not None:
            return reason
    try:
        on_cpu, on_gpu = _core.xla_handlers(*_interface_version())
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(on_cpu), platform="cpu")
        if backend == "gpu":
            jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(on_gpu), platform="CUDA")
    except Exception as error:
        return f"XLA refuses the engine's functions: {error}"
    return None


def _interface_version() -> Tuple[int, int]:
    """Of the interface that this JAX has."""
    path = os.path.join(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    with open(path, encoding="utf-8") as header:
        text = header.read()
    major, minor = (re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR"))
    if major is None or minor is None:
        raise ValueError(f"{path} names no version")
    return int(major[1]), int(minor[1])


def _bits(factor: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", factor))[0]
