"""Keras on PyTorch: gradients are eager tensors, reduced asynchronously by horovod.torch."""

from typing import Any, Callable, List, Optional

import horovod.torch as hvd
from horovod.torch.compression import Compression  # noqa: F401


class Reduction:
    def __init__(self, name: str, compression: Any, sparse_as_dense: bool, op: int, predivide: float, groups: Any, process_set: Any):
        self._name, self._compression, self._op, self._process_set = name, compression, op, process_set
        self._groups = groups
        self._scales = {"prescale_factor": 1.0 / predivide, "postscale_factor": predivide}

    def __call__(self, gradients: List[Any], variables: List[Any]) -> List[Any]:
        from horovod._keras.grouping import group_indices

        results: List[Optional[Any]] = [None] * len(gradients)
        under_way = []
        numbers = [number for number, gradient in enumerate(gradients) if gradient is not None]
        for members in group_indices(numbers, self._groups, variables):
            short, contexts = zip(*[self._compression.compress(_dense(gradients[number])) for number in members])
            common = {"name": f"{self._name}.grad_{members[0]}", "op": self._op, "process_set": self._process_set}
            if len(members) == 1:
                handle = hvd.allreduce_async(short[0], **common, **self._scales)
            else:
                handle = hvd.grouped_allreduce_async(list(short), **common, **self._scales)
            under_way.append((members, contexts, handle))
        for members, contexts, handle in under_way:
            outputs = hvd.synchronize(handle)
            outputs = outputs if len(members) > 1 else [outputs]
            for number, output, context in zip(members, outputs, contexts):
                results[number] = self._compression.decompress(output, context)
        return results


class Aggregation:
    """Accumulates in tensors and counts passes in Python, since nothing is traced."""

    def __init__(self, backward_passes_per_step: int, allreduce_func: Any, sparse_as_dense: bool, average_aggregated_gradients: bool):
        self._n_passes, self._reduce = backward_passes_per_step, allreduce_func
        self._average = average_aggregated_gradients
        self._n_done = 0
        self._sums: List[Optional[Any]] = []

    def step(self, optimizer: Any, gradients: List[Any], variables: List[Any], update: Callable[[List[Any]], Any]) -> None:
        dense = [None if gradient is None else _dense(gradient) for gradient in gradients]
        if self._n_done % self._n_passes == 0:
            self._sums = [None if gradient is None else gradient.clone() for gradient in dense]
        else:
            for total, gradient in zip(self._sums, dense):
                if total is not None and gradient is not None:
                    total += gradient
        self._n_done += 1
        if self._n_done % self._n_passes:
            optimizer.iterations.assign_add(1)
            return
        factor = 1.0 / self._n_passes if self._average else 1.0
        update(self._reduce([None if total is None else total * factor for total in self._sums], variables))


def scale_local(gradient: Any, n_members: int) -> Any:
    return None if gradient is None else gradient / n_members


def _dense(gradient: Any) -> Any:
    return (gradient.to_dense() if gradient.is_sparse else gradient).contiguous()


def member_count(process_set: Any) -> int:
    return process_set.size() or 1
