"""Reduces the gradients of an optimizer's parameters while backward computes the earlier ones. Hooks on the parameters
start the reductions. Waits only in `wait`."""

import weakref
from typing import Any, Callable, Dict, List, Sequence, Union

import torch

from horovod import _core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import split_list
from horovod.torch._buckets import Bucket, BucketParameter, ReducerState
from horovod.torch._single_bucket import SingleBucket
from horovod.torch._wrapping import Named
from horovod.torch.functions import broadcast_object

Groups = Union[None, int, Sequence[Sequence[torch.Tensor]]]


class GradientReducer:
    """The buckets of one optimizer."""

    def __init__(self, shared: ReducerState, named: Sequence[Named], groups: Groups) -> None:
        self.shared = shared
        self.buckets: List[Bucket] = []
        self._abandoned: List[int] = []
        self._hooks: List[Any] = []
        # Hooks reference parameters and buckets, never the optimizer, so that they are removed with it.
        weakref.finalize(self, _remove_hooks, self._hooks).atexit = False
        trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self._frozen = [(name, parameter) for name, parameter in named if not parameter.requires_grad]
        self._fill_buckets(trained, groups)

    def add(self, named: Sequence[Named]) -> None:
        """Adds parameters, each in a bucket of its own."""
        for name, parameter in named:
            if parameter.requires_grad:
                self._add_bucket([(name, parameter)], grouped=False)
            else:
                self._frozen.append((name, parameter))

    def groups(self) -> List[List[torch.Tensor]]:
        """The parameters that are reduced as groups."""
        return [[member.parameter for member in bucket.members] for bucket in self.buckets if bucket.grouped]

    def wait(self) -> None:
        """Starts what no hook has started, waits for everything and stores the results. If something failed, the first
        error is raised after everything has ended; the next step starts cleanly."""
        self._add_unfrozen()
        shared = self.shared
        failures: List[Exception] = []
        for bucket in self.buckets:
            if not bucket.is_launched:
                # Other ranks wait for every gradient, also for those after one that fails here.
                try:
                    bucket.launch()
                except Exception as cause:
                    failures.append(cause)
        shared.submit_batch()
        while shared.copying:
            try:
                shared.submit_copied()
            except Exception as cause:
                failures.append(cause)
        # The last first: on a GPU, what waits for it has waited for all.
        for bucket in reversed(shared.launched):
            try:
                bucket.finish()
            except Exception as cause:
                failures.append(cause)
        self.reset()
        if failures:
            raise failures[0]

    def reset_pass_counts(self) -> None:
        """Restarts the count of passes for gradients that are not in flight."""
        for bucket in self.buckets:
            if not bucket.is_launched:
                bucket.reset()

    def reset(self) -> None:
        """Starts cleanly without waiting. Operations in flight keep their memory until they end."""
        # Other ranks may wait for what is queued.
        self.shared.submit_batch()
        in_flight = [*self.shared.launched, *self.shared.batches]
        self._abandoned += [entry.handle for entry in in_flight if entry.handle is not None]
        self._abandoned = [handle for handle in self._abandoned if not _release_if_finished(handle)]
        self.shared.reset()
        for bucket in self.buckets:
            bucket.reset()

    def _add_unfrozen(self) -> None:
        if self._frozen:
            frozen, self._frozen = self._frozen, []
            self.add(frozen)

    def _fill_buckets(self, named: List[Named], groups: Groups) -> None:
        if isinstance(groups, int):
            if groups > 0:
                for part in split_list(self._in_common_order(named), groups):
                    if part:
                        self._add_bucket(part, grouped=True)
                return
            groups = None
        by_id: Dict[int, Named] = {id(parameter): (name, parameter) for name, parameter in named}
        for group in groups or ():
            # Parameters that this optimizer does not train have no gradient to wait for.
            members = [by_id.pop(id(parameter)) for parameter in group if id(parameter) in by_id]
            if members:
                self._add_bucket(members, grouped=True)
        for single in by_id.values():
            self._add_bucket([single], grouped=False)

    def _in_common_order(self, named: List[Named]) -> List[Named]:
        """The first member's order: groups must be the same on all ranks."""
        process_set = self.shared.process_set
        by_name = dict(named)
        assert process_set.ranks, "a registered set has members"
        order = broadcast_object(list(by_name), process_set.ranks[0], "DistributedOptimizer.groups", process_set)
        if set(order) != set(by_name):
            odd = sorted(set(order) ^ set(by_name))
            raise ValueError(
                f"The ranks do not train the same parameters: {odd} on some only. Groups need the same names "
                "everywhere."
            )
        return [(name, by_name[name]) for name in order]

    def _add_bucket(self, named: Sequence[Named], grouped: bool) -> None:
        members = [BucketParameter(parameter, name) for name, parameter in named]
        if self.shared.is_uncompressed and not grouped:
            single = SingleBucket(self.shared, members[0])
            self.buckets.append(single)
            self._hooks += _add_hook(members[0].parameter, single.on_gradient)
            return
        self.buckets.append(Bucket(self.shared, members, grouped))
        for member in members:
            self._hooks += _add_hook(member.parameter, member.on_gradient)


def _add_hook(parameter: torch.Tensor, called: Callable[..., None]) -> List[Any]:
    """Calls `called` after each accumulation into the parameter's gradient. Returns objects that must live as long as
    the hook; the first one can remove it."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return [parameter.register_post_accumulate_grad_hook(called)]
    # Before PyTorch 2.1 the accumulation node can only be reached through the graph of a view.
    with torch.enable_grad():
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return [accumulator.register_hook(called), accumulator]


def _release_if_finished(handle: int) -> bool:
    """Releases an abandoned operation if it has ended; returns whether it has."""
    try:
        if not _core.poll(handle):
            return False
        _core.synchronize(handle)
        return True
    except (ValueError, HorovodInternalError):
        return True


def _remove_hooks(hooks: List[Any]) -> None:
    for hook in hooks:
        if hasattr(hook, "remove"):
            hook.remove()
    hooks.clear()
