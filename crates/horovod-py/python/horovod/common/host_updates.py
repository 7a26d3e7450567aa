"""Host changes on their way to the elastic states of this process. Code that learns of one calls
`notification_manager` on rank 0; the states raise in their next commit. In an elastic job a thread of rank 0 asks the
launcher."""

import threading
import time
from typing import ContextManager, List, Optional, Protocol

from horovod import _core

# Kinds of host changes; both bits if hosts were added and removed.
HOSTS_UNCHANGED, HOSTS_REMOVED, HOSTS_ADDED = 0, 1, 2

# Seconds of one long poll of the launcher. A thread may ask for a generation that is over for so long.
_POLL_S = 5.0


class Listener(Protocol):
    """Receives host changes: an elastic state."""

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None: ...


class NotificationManager:
    """Distributes host changes to the states of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: List[Listener] = []
        self._delivery = threading.RLock()
        self._watched: Optional[int] = None

    def register_listener(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = [other for other in self._listeners if other is not listener]

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Reports a host change. Any thread may call it, on rank 0, which decides for all."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)

    def without_deliveries(self) -> ContextManager[bool]:
        """Within this context the launcher's announcements do not arrive. Those of an earlier generation do not arrive
        afterwards, either."""
        return self._delivery

    def watch_launcher(self) -> None:
        """In an elastic job: lets a thread wait for the announcement that the hosts of this generation change. To be called
        in every generation; only rank 0 watches."""
        if not _core.is_elastic() or not _core.is_initialized() or _core.rank() != 0:
            return
        generation = _core.generation()
        with self._lock:
            if self._watched == generation:
                return
            self._watched = generation
        threading.Thread(target=self._watch, args=(generation,), name="horovod-host-updates", daemon=True).start()

    def _watch(self, generation: int) -> None:
        while _core.generation() == generation:
            change = _core.elastic_update(_POLL_S)
            if change == HOSTS_UNCHANGED:
                continue
            with self._delivery:
                if _core.generation() == generation:
                    self.handle_hosts_updated(time.time(), change)
            break
        with self._lock:
            if self._watched == generation:
                self._watched = None


notification_manager = NotificationManager()
