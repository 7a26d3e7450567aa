"""Utilities for scripts and the framework modules. Knows no framework and never starts the engine."""

import functools
import importlib.util
import os
import re
import sysconfig
import warnings
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Sequence, TypeVar

from horovod.common.exceptions import HorovodVersionMismatchError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_MODULES = {"tensorflow": "tensorflow", "torch": "torch", "keras": "keras", "jax": "jax", "mxnet": "mxnet"}


@contextmanager
def env(**kwargs: Optional[str]) -> Iterator[None]:
    """Sets environment variables (None: unchanged), and restores all of them afterwards."""
    before = dict(os.environ)
    os.environ.update({name: value for name, value in kwargs.items() if value is not None})
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def split_list(l: Sequence[T], n: int) -> list[Sequence[T]]:  # noqa: E741 (Horovod's name)
    """Splits a list into n nearly equal parts; the first ones get one more."""
    each, more = divmod(len(l), n)
    starts = [part * each + min(part, more) for part in range(n + 1)]
    return [l[start:end] for start, end in zip(starts, starts[1:])]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether the number is 1, 2, 4, 8, ..."""
    return num_rank != 0 and num_rank & (num_rank - 1) == 0


def is_iterable(x: object) -> bool:
    """Whether the object is iterable."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compares versions number by number, ignoring what follows the third. target: exactly major.minor.patch."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions are strings such as '2.4.0', but got {ver!r} and {target!r}")
    parts = target.split(".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise ValueError(f"the target version must be major.minor.patch, but is {target!r}")
    return _numbers(ver) >= tuple(int(part) for part in parts)


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Optional[int], Optional[bool]], int]:
    """reduce_ops has Average and Sum. Returns a function that derives the op from `op` and the deprecated `average`."""

    def which_op(op: Optional[int], average: Optional[bool]) -> int:
        if op is not None:
            if average is not None:
                raise ValueError("The op parameter supersedes average. Please provide only one of them.")
            return op
        if average is not None:
            warnings.warn(
                "Parameter `average` has been replaced with `op` and will be removed", DeprecationWarning, stacklevel=3
            )
        chosen: int = reduce_ops.Sum if average is False else reduce_ops.Average
        return chosen

    return which_op


def check_installed_version(name: str, version: str, exception: Optional[BaseException] = None) -> None:
    """Raises HorovodVersionMismatchError, caused by `exception`, if the installed package has another version."""
    from importlib import metadata

    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return
    if installed != version:
        raise HorovodVersionMismatchError(name, version, installed) from exception


def gloo_built(verbose: bool = False) -> bool:
    """Always true: the engine replaces Gloo."""
    return True


def mpi_built(verbose: bool = False) -> bool:
    """Always false: MPI is not used."""
    return False


def nccl_built(verbose: bool = False) -> bool:
    """Always false."""
    return False


def ddl_built(verbose: bool = False) -> bool:
    """Always false."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Always false."""
    return False


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework ("torch", "tensorflow") sees a GPU."""
    if not extension_available(ext_base_name, verbose):
        return False
    if ext_base_name == "torch":
        import torch  # type: ignore[import-not-found,unused-ignore]

        return bool(torch.cuda.is_available())
    if ext_base_name == "tensorflow":
        import tensorflow  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return bool(tensorflow.config.list_physical_devices("GPU"))
    return False


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework ("torch", "tensorflow", "keras") is installed; horovod then supports it."""
    supported = ext_base_name in _MODULES and _has_module(f"horovod.{ext_base_name}")
    available = supported and _has_module(_MODULES[ext_base_name])
    if verbose and not available:
        print(f"horovod.{ext_base_name}: {'not part of this package' if not supported else 'the framework is not installed'}")
    return available


def check_extension(ext_name: str, ext_env_var: str = "", pkg_path: str = "", *args: Any) -> None:
    """ImportError if horovod does not support the framework ("horovod.torch"). The other arguments locate upstream's
    compiled module; they are unused, since there is one module for all frameworks."""
    base_name = ext_name.rsplit(".", 1)[-1]
    if not extension_available(base_name):
        reason = f"install {_MODULES[base_name]} first" if _has_module(f"horovod.{base_name}") else "it is not part of this package"
        raise ImportError(f"Extension {ext_name} has not been built: {reason}.")


def get_ext_suffix() -> str:
    """File suffix of compiled modules, such as .cpython-311-x86_64-linux-gnu.so."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Path of the package's compiled module: one for all frameworks."""
    from horovod import _core

    return str(_core.__file__)


def _cache(f: F) -> F:
    """Caches results by arguments."""
    return functools.lru_cache(maxsize=None)(f)  # type: ignore[return-value]


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _numbers(version: str) -> tuple[int, ...]:
    parts = [re.match(r"\d*", part) for part in version.split(".")[:3]]
    numbers = [int(part.group() or 0) if part else 0 for part in parts]
    return tuple(numbers + [0] * (3 - len(numbers)))
