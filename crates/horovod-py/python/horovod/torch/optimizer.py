"""`hvd.DistributedOptimizer`: wraps a PyTorch optimizer so that gradients are reduced over the ranks before each step.
The result is an optimizer of the same class that shares parameters, options and state with it."""

import os
import warnings
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Type

import torch

from horovod.common import basics
from horovod.common.basics import Adasum, Average
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.torch._buckets import ReducerState
from horovod.torch._delta_optimizer import DeltaOptimizer
from horovod.torch._gradients import GradientReducer, Groups
from horovod.torch._naming import checked_groups, named_by_group, named_by_user
from horovod.torch._wrapping import Named, Wrapped, wrap
from horovod.torch.compression import Compression, Compressor


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Sequence[Named]] = None,
    compression: Type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Wraps an optimizer: each gradient is reduced as soon as backward has computed it, and `step` waits for all of
    them.

    named_parameters: usually `model.named_parameters()`. The names must be the same on all ranks.
    backward_passes_per_step: number of passes whose gradients are accumulated locally before one reduction.
    op: Average, Sum, Min, Max, Product; Adasum combines the parameter changes of the ranks' steps.
    gradient_predivide_factor: with Average, gradients are divided by this factor before the sum and by size / factor
    after it.
    groups: number of groups of parameters, or lists of parameters, to reduce together. num_groups is its deprecated
    name.
    sparse_as_dense: sparse gradients are made dense and reduced instead of gathered; the optimizer gets sparse ones.
    process_set: the ranks among which gradients are reduced. On other ranks the optimizer is unchanged.
    """
    if isinstance(optimizer, (_DistributedOptimizer, DeltaOptimizer)):
        raise ValueError("The optimizer is distributed already: its gradients would be reduced twice.")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn("num_groups is deprecated: use groups.", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    groups = checked_groups(groups)
    named = named_by_group(optimizer) if named_parameters is None else named_by_user(optimizer, named_parameters)
    process_set_id(process_set)
    if op == Adasum and basics.size() > 1:
        wrapped = wrap(optimizer, DeltaOptimizer)
        wrapped._hvd_distribute(named, compression, backward_passes_per_step, process_set)
        return wrapped
    wrapped = wrap(optimizer, _DistributedOptimizer)
    shared = ReducerState(compression, op, gradient_predivide_factor, sparse_as_dense, process_set, backward_passes_per_step)
    wrapped._hvd_distribute(named, groups, shared)
    return wrapped


class _DistributedOptimizer(Wrapped):
    """Behaviour of a wrapped optimizer, before the optimizer's own class in the MRO."""

    def _hvd_distribute(self, named: List[Named], groups: Groups, shared: ReducerState) -> None:
        self._hvd_synchronized = False
        self._hvd_should_synchronize = True
        self._hvd_names = {id(parameter): name for name, parameter in named}
        self._hvd_shared = shared
        # A single rank has no peers; in an elastic job that may change.
        is_alone = basics.size() == 1 and os.environ.get("HOROVOD_ELASTIC") != "1"
        takes_part = shared.process_set.included() and not is_alone
        self._hvd_reducer = GradientReducer(shared, named, groups) if takes_part else None

    @property
    def process_set(self) -> ProcessSet:
        return self._hvd_shared.process_set

    @property
    def op(self) -> int:
        return self._hvd_shared.op

    @property
    def backward_passes_per_step(self) -> int:
        return self._hvd_shared.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Takes effect in the next step. Must not be called between backward and step."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self._hvd_shared.passes = passes
        if self._hvd_reducer is not None:
            self._hvd_reducer.reset_pass_counts()

    def synchronize(self) -> None:
        """Waits until all gradients are reduced. For inspecting or clipping them before the step, which is then called
        within `skip_synchronize()`."""
        if self._hvd_reducer is not None:
            self._hvd_reducer.wait()
        self._hvd_synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within this context `step` does not synchronize, because `synchronize` was called before."""
        self._hvd_should_synchronize = False
        try:
            yield
        finally:
            self._hvd_should_synchronize = True

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Waits for the reduced gradients, then takes the step of the wrapped optimizer."""
        reducer = self._hvd_reducer
        if self._hvd_should_synchronize and reducer is not None:
            if self._hvd_synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize()"
                    ": the gradients are reduced a second time. Call step() within optimizer.skip_synchronize().",
                    stacklevel=2,
                )
            if closure is None or reducer.shared.has_gradients:
                self.synchronize()
            if closure is not None:
                closure = self._hvd_reducing(closure)
        self._hvd_synchronized = False
        return super().step(closure)  # type: ignore[misc]

    # PyTorch wraps `step` of every optimizer class to run the user's hooks. The base class already has that; once is
    # enough.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the wrapped optimizer's. AssertionError while gradients are in flight."""
        if self._hvd_reducer is not None and self._hvd_reducer.shared.has_gradients:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). The gradients are being reduced at this moment, and must not change."
            )
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """As the wrapped optimizer's. Drops gradients in flight."""
        self._hvd_synchronized = False
        self._hvd_should_synchronize = True
        if self._hvd_reducer is not None:
            self._hvd_reducer.reset()
        super().load_state_dict(state_dict)  # type: ignore[misc]

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """As the wrapped optimizer's. The new parameters are reduced one by one."""
        super().add_param_group(param_group)  # type: ignore[misc]
        new = [(name, parameter) for name, parameter in named_by_group(self) if id(parameter) not in self._hvd_names]
        self._hvd_names.update((id(parameter), name) for name, parameter in new)
        if self._hvd_reducer is not None:
            self._hvd_reducer.add(new)

    def _hvd_reducing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure, with its gradients reduced before the optimizer uses them."""

        def reduced() -> Any:
            loss = closure()
            self.synchronize()
            self._hvd_synchronized = False
            return loss

        return reduced

    def _hvd_distribute_like(self, other: Any, named: List[Named], twins: Dict[int, torch.Tensor]) -> None:
        groups = None
        if other._hvd_reducer is not None:
            # The actual groups, not the requested ones: a copy may be made on one rank alone, without communication.
            groups = [[twins[id(original)] for original in group] for group in other._hvd_reducer.groups()]
        self._hvd_distribute(named, groups, other._hvd_shared.clone_idle())
