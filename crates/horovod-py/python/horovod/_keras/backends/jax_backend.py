"""Keras on JAX: one call per step inside of the compiled function. On a GPU it is one of XLA's foreign functions, which get
the arrays in the GPU's memory (`jax_ffi`), otherwise an ordered callback on the host.

The call submits all gradients of the step before it waits for them, and callbacks are ordered, so ranks cannot
deadlock. No tracing state is kept.
"""

from typing import Any, Callable, List, Tuple

import jax
import numpy as np
from jax.experimental import io_callback

from horovod import _core, _numpy
from horovod._keras.backends import jax_ffi
from horovod._keras.compression import Compression  # noqa: F401
from horovod._keras.grouping import group_indices
from horovod.common.process_sets import process_set_id


class Reduction:
    def __init__(self, name: str, compression: Any, sparse_as_dense: bool, op: int, predivide: float, groups: Any, process_set: Any):
        self._name, self._compression, self._op, self._process_set = name, compression, op, process_set
        self._prescale, self._postscale, self._groups = 1.0 / predivide, predivide, groups

    def __call__(self, gradients: List[Any], variables: List[Any]) -> List[Any]:
        numbers = [number for number, gradient in enumerate(gradients) if gradient is not None]
        if not numbers:
            return gradients
        members = group_indices(numbers, self._groups, variables)
        order = [number for group in members for number in group]
        short, contexts = zip(*[self._compression.compress(gradients[number]) for number in order])
        sizes = [len(group) for group in members]
        if jax_ffi.is_used():
            outputs = self._by_ffi(sizes, short)
        elif any(isinstance(gradient, jax.core.Tracer) for gradient in short):
            shapes = [jax.ShapeDtypeStruct(gradient.shape, gradient.dtype) for gradient in short]
            outputs = io_callback(lambda *arrays: self._on_host(sizes, arrays), shapes, *short, ordered=True)
        else:
            outputs = [jax.numpy.asarray(array) for array in self._on_host(sizes, short)]
        results: List[Any] = [None] * len(gradients)
        for number, output, context in zip(order, outputs, contexts):
            results[number] = self._compression.decompress(output, context)
        return results

    def _by_ffi(self, sizes: List[int], arrays: Tuple[Any, ...]) -> List[Any]:
        requests = [(n_members, self._request_name(number)) for number, n_members in enumerate(sizes)]
        return jax_ffi.call(
            _core.ALLREDUCE,
            arrays,
            requests,
            op=self._op,
            prescale=self._prescale,
            postscale=self._postscale,
            process_set=process_set_id(self._process_set),
        )

    def _request_name(self, number: int) -> str:
        return f"{self._name}_Allreduce/grad_{number}"

    def _on_host(self, sizes: List[int], arrays: Tuple[Any, ...]) -> List[np.ndarray]:
        left, under_way = [np.asarray(array) for array in arrays], []
        for number, n_members in enumerate(sizes):
            mine, left = left[:n_members], left[n_members:]
            under_way.append(
                _numpy.submit(
                    _core.ALLREDUCE,
                    self._request_name(number),
                    mine,
                    op=self._op,
                    prescale=self._prescale,
                    postscale=self._postscale,
                    process_set=process_set_id(self._process_set),
                    grouped=n_members > 1,
                )
            )
        return [array for pending in under_way for array in _numpy.wait(pending)]


class Aggregation:
    """Not supported: Keras itself accumulates gradients under JAX."""

    def __init__(self, backward_passes_per_step: int, allreduce_func: Any, sparse_as_dense: bool, average_aggregated_gradients: bool):
        raise NotImplementedError(
            "backward_passes_per_step > 1 is not supported with Keras on JAX. Give the optimizer gradient_accumulation_steps="
            f"{backward_passes_per_step} instead, before it is wrapped."
        )

    def step(self, optimizer: Any, gradients: List[Any], variables: List[Any], update: Callable[[List[Any]], Any]) -> None:
        raise NotImplementedError


def scale_local(gradient: Any, n_members: int) -> Any:
    return None if gradient is None else gradient / n_members


def member_count(process_set: Any) -> int:
    return len(_core.process_set_ranks(process_set_id(process_set)))
