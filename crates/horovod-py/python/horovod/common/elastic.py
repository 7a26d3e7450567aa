"""Elastic training: a state that is committed, and restored after a collective failure. The `elastic` modules of the
frameworks build on it. Knows no framework: functions to broadcast an object and to reset the engine are passed in.

The size of a job is fixed for now: after a failure the same ranks reconnect. Code that learns of host changes calls
`notification_manager`; all ranks then leave their training function in the same commit.
"""

import copy
import functools
import logging
import queue
import threading
from typing import Any, Callable, Dict, List, Tuple

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

_log = logging.getLogger("horovod.elastic")

# Kinds of host changes; both bits if hosts were added and removed.
HOSTS_UNCHANGED, HOSTS_REMOVED, HOSTS_ADDED = 0, 1, 2


class NotificationManager:
    """Distributes host changes to the states of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: List["State"] = []

    def register_listener(self, listener: "State") -> None:
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: "State") -> None:
        with self._lock:
            self._listeners = [other for other in self._listeners if other is not listener]

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Reports a host change. Any thread may call it, on rank 0, which decides for all."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = NotificationManager()


class State:
    """State that must survive a failure: the user's variables that training changes. Subclasses implement save, restore
    and sync."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: "queue.SimpleQueue[Tuple[float, int]]" = queue.SimpleQueue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: List[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: List[Callable[[], Any]]) -> None:
        """Callbacks run after every reset, in order; for example to scale a learning rate with the new size."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called after the engine was restarted."""
        while not self._host_messages.empty():
            self._host_messages.get()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state; later failures return to it. Raises HostsUpdatedInterrupt, on all ranks, if hosts have
        changed."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Collective. Rank 0 decides, so that all ranks raise in the same call or none does."""
        before = latest = self._last_updated_timestamp
        update = HOSTS_UNCHANGED
        while not self._host_messages.empty():
            timestamp, update_res = self._host_messages.get()
            latest = max(latest, timestamp)
            update |= update_res
        before, self._last_updated_timestamp, update = self._bcast_object((before, latest, update))
        if self._last_updated_timestamp > before:
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
        raise NotImplementedError

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

    def restore(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        if self._saved_state:
            ObjectState.save(self)
            self._saved_state = self._bcast_object(self._saved_state)
            if self._rank() != 0:
                ObjectState.restore(self)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Wraps `func(state, ...)`: restarts it from the last commit after a collective failure, and from the current state
    after host changes. `reset` restarts the engine; exceptions from it end the training."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.register_listener(state)
        skip_sync = False
        try:
            while True:
                try:
                    if not skip_sync:
                        state.sync()
                    return func(state, *args, **kwargs)
                except HorovodInternalError as failure:
                    _log.warning("Training goes back to its last commit: %s", failure)
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                reset()
                state.on_reset()
        finally:
            notification_manager.remove_listener(state)

    return wrapper
