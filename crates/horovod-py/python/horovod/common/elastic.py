"""Elastic training: a state that is committed, and restored after a collective failure. The `elastic` modules of the
frameworks build on it. Knows no framework: functions to broadcast an object and to reset the engine are passed in.

After a failure the ranks that are left reconnect, with new ones if the job is elastic, and agree on whose state they
continue from (`state_agreement`). Host changes arrive at rank 0 (`host_updates`); all ranks then leave their training
function in the same commit.
"""

import copy
import functools
import inspect
import logging
import queue
import time
from typing import Any, Callable, Dict, List, Tuple

from horovod import _core
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.common.host_updates import (
    HOSTS_ADDED,
    HOSTS_REMOVED,
    HOSTS_UNCHANGED,
    NotificationManager,
    notification_manager,
)
from horovod.common.state_agreement import Report, choose_sender

__all__ = [
    "HOSTS_ADDED",
    "HOSTS_REMOVED",
    "HOSTS_UNCHANGED",
    "NotificationManager",
    "ObjectState",
    "State",
    "notification_manager",
    "run_fn",
]

_log = logging.getLogger("horovod.elastic")

# Seconds that a rank waits for others at the end of the training.
_END_TIMEOUT_S = 60.0
# In the engine's error when another rank has left, not died.
_SHUT_DOWN = "Horovod has been shut down"


class State:
    """State that must survive a failure: the user's variables that training changes. Subclasses implement save, restore,
    and sync_from; or, instead of the last, `sync`, and then rank 0 always is the sender."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: "queue.SimpleQueue[Tuple[float, int]]" = queue.SimpleQueue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: List[Callable[[], Any]] = []
        # Where this state is in the history of the job; see `state_agreement.Report`.
        self._lineage = 0
        self._commits = 0
        self._is_committing = False

    def register_reset_callbacks(self, callbacks: List[Callable[[], Any]]) -> None:
        """Callbacks run after every reset, in order; for example to scale a learning rate with the new size."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called after the engine was restarted."""
        with notification_manager.without_deliveries():
            while not self._host_messages.empty():
                self._host_messages.get()
        # Rank 0 may be another one now, with another clock.
        self._last_updated_timestamp = 0
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state; later failures return to it. Raises HostsUpdatedInterrupt, on all ranks, if hosts have
        changed."""
        self.save()
        self._commits += 1
        self._is_committing = True
        try:
            self.check_host_updates()
        finally:
            self._is_committing = False

    def check_host_updates(self) -> None:
        """Collective. Rank 0 decides, so that all ranks raise in the same call or none does."""
        before = latest = self._last_updated_timestamp
        update = HOSTS_UNCHANGED
        while not self._host_messages.empty():
            timestamp, update_res = self._host_messages.get()
            latest = max(latest, timestamp)
            update |= update_res
        if _core.is_initialized():
            # Imported here, since it needs cloudpickle.
            from horovod.elastic.objects import broadcast_numbers

            # One small message: this is part of every commit.
            is_new, update = broadcast_numbers([int(latest > before), update], 0, "elastic_state.update")
            self._last_updated_timestamp = latest
        else:
            before, latest, update = self._bcast_object((before, latest, update))
            is_new, self._last_updated_timestamp = int(latest > before), latest
        if is_new:
            if not self._is_committing:
                # Training continues from here, on all ranks: also on one that fails before it hears of the interrupt.
                self.save()
                self._commits += 1
            # If hosts were only removed, the remaining ranks have the same state and need no sync.
            raise HostsUpdatedInterrupt(update == HOSTS_REMOVED)

    def save(self) -> None:
        """Saves a copy in main memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Returns to the last copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Collective. Gives all ranks rank 0's state, and saves a copy."""
        self.sync_from(0)

    def sync_from(self, root_rank: int) -> None:
        """Collective. Gives all ranks the state of one of them, and saves a copy. Saves only when everything has
        arrived: after a failure in the middle the last copy still is whole."""
        raise NotImplementedError

    def accepts_any_sender(self) -> bool:
        """Whether `sync_from` works with every rank. A class with a `sync` of its own broadcasts from rank 0."""
        return type(self).sync is State.sync

    def reset(self) -> None:
        """Recreates what depends on rank and size."""


class ObjectState(State):
    """Python objects, as attributes named by the keywords. Copies are deep: a list that grew after the commit is short
    again after a restore."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state: Dict[str, Any] = dict.fromkeys(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        ObjectState.save(self)

    def save(self) -> None:
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}
        # A user may save without a commit.
        self._commits += 1

    def restore(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))

    def sync_from(self, root_rank: int) -> None:
        if self._saved_state:
            mine = {name: getattr(self, name) for name in self._saved_state}
            theirs = self._bcast_object(mine, **({"root_rank": root_rank} if root_rank else {}))
            if self._rank() != root_rank:
                for name, value in theirs.items():
                    setattr(self, name, value)
        self.save()

    def accepts_any_sender(self) -> bool:
        return super().accepts_any_sender() and _takes_root(self._bcast_object)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Wraps `func(state, ...)`: restarts it from the last commit after a collective failure, and from the current state
    after host changes. `reset` restarts the engine; a collective failure while the ranks reconnect and synchronize leads to
    another reset, and any other exception ends the training: SystemExit in a process that is not part of the job any more."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.register_listener(state)
        needs_reset = skip_sync = False
        try:
            if isinstance(state, State):
                # What a user changed since the state was made, such as a loaded checkpoint, survives a failure of the
                # first synchronization.
                state.save()
            while True:
                try:
                    if needs_reset:
                        reset()
                        state.on_reset()
                    notification_manager.watch_launcher()
                    _synchronize(state, skip_sync)
                    result = func(state, *args, **kwargs)
                    if _core.is_elastic() and _core.is_initialized():
                        _await_end()
                    return result
                except HorovodInternalError as failure:
                    _log.warning("Training goes back to its last commit: %s", failure)
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                needs_reset = True
        finally:
            notification_manager.remove_listener(state)

    return wrapper


def _synchronize(state: State, skip_sync: bool) -> None:
    """Collective. Gives all ranks the state of the one that is ahead; does nothing if all have the same."""
    if not isinstance(state, State) or not _core.is_initialized():
        if not skip_sync:
            state.sync()
        return
    # Imported here, since it needs cloudpickle.
    from horovod.elastic.objects import allgather_numbers

    own = Report(state._lineage, state._commits, int(state.accepts_any_sender()), int(skip_sync))
    reports = [Report(*numbers) for numbers in allgather_numbers(own, "elastic_state.report")]
    sender = choose_sender(reports)
    if sender is None:
        return
    if sender == 0:
        state.sync()
    else:
        state.sync_from(sender)
    state._lineage = 1 + max(report.lineage for report in reports)
    state._commits = reports[sender].commits


def _await_end() -> None:
    """Collective. Waits until all ranks have completed the training: one that left alone would end the job for those that a
    failure sent back to the last commit. Raises HorovodInternalError if a rank died, and the training is repeated from its
    last commit. Does not wait for ranks that have left, and not for ever for those that do not come."""
    # Imported here, since it needs cloudpickle.
    from horovod.elastic.objects import start_barrier

    deadline = time.monotonic() + _END_TIMEOUT_S
    try:
        handle, pause_s = start_barrier("elastic_state.end"), 0.0005
        while not _core.poll(handle):
            if time.monotonic() > deadline:
                _log.warning("Training has ended here, but not on all ranks.")
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)
        _core.synchronize(handle)
    except HorovodInternalError as failure:
        if _SHUT_DOWN not in str(failure):
            raise


def _takes_root(bcast_object: Callable[..., Any]) -> bool:
    try:
        return "root_rank" in inspect.signature(bcast_object).parameters
    except (TypeError, ValueError):
        return False
