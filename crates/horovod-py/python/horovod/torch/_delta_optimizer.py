"""The optimizer for Adasum: each rank takes its own step, and the changes of the parameters are combined instead of the
gradients. Created by `DistributedOptimizer`. Parameters are equal on all ranks after each step, whatever the
gradients were."""

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Type

import torch

from horovod.common import basics
from horovod.common.basics import Adasum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._handles import synchronize
from horovod.torch._reductions import allreduce_async_, check_num_rank_power_of_2
from horovod.torch._wrapping import Named, Wrapped
from horovod.torch.compression import Compressor


class DeltaOptimizer(Wrapped):
    """Behaviour of a wrapped optimizer, before the optimizer's own class in the MRO.

    The local step is taken in `step`, when all gradients are complete, so gradients may be clipped and rates changed
    until then.
    """

    def _hvd_distribute(
        self, named: List[Named], compression: Type[Compressor], passes: int, process_set: ProcessSet
    ) -> None:
        if process_set != global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        check_num_rank_power_of_2(basics.size())
        self._hvd_names = {id(parameter): name for name, parameter in named}
        self._hvd_compression = compression
        self._hvd_passes = passes

    @property
    def process_set(self) -> ProcessSet:
        return global_process_set

    @property
    def op(self) -> int:
        return Adasum

    @property
    def backward_passes_per_step(self) -> int:
        return self._hvd_passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Gradients accumulate locally until `step`, over any number of passes."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self._hvd_passes = passes

    def synchronize(self) -> None:
        """Does nothing: gradients are not reduced."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """The wrapped optimizer's step, with its changes combined over the ranks."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        trained = [(self._hvd_names[id(parameter)], parameter) for parameter in parameters if parameter.requires_grad]
        with torch.no_grad():
            before = [parameter.detach().clone(memory_format=torch.contiguous_format) for _, parameter in trained]
        loss = super().step(closure)  # type: ignore[misc]
        flights = []
        with torch.no_grad():
            for (name, parameter), start in zip(trained, before):
                sent, context = self._hvd_compression.compress((parameter.detach() - start).contiguous())
                flights.append((allreduce_async_(sent, name=name, op=Adasum), context))
            for (handle, context), (_, parameter), start in zip(flights, trained, before):
                parameter.copy_(start.add_(self._hvd_compression.decompress(synchronize(handle), context)))
        return loss

    # The base class already runs the user's hooks.
    step.hooked = True  # type: ignore[attr-defined]

    def add_param_group(self, param_group: Any) -> None:
        """As the wrapped optimizer's."""
        super().add_param_group(param_group)  # type: ignore[misc]
        group_idx = len(self.param_groups) - 1
        for parameter_idx, parameter in enumerate(self.param_groups[-1]["params"]):
            self._hvd_names.setdefault(id(parameter), f"allreduce.noname.{group_idx}.{parameter_idx}")

    def _hvd_distribute_like(self, other: Any, named: List[Named], twins: Dict[int, torch.Tensor]) -> None:
        self._hvd_distribute(named, other._hvd_compression, other._hvd_passes, global_process_set)
