"""Host changes on their way to the elastic states of this process. Code that learns of one calls
`notification_manager` on rank 0; the states raise in their next commit."""

import threading
from typing import List, Protocol

# Kinds of host changes; both bits if hosts were added and removed.
HOSTS_UNCHANGED, HOSTS_REMOVED, HOSTS_ADDED = 0, 1, 2


class Listener(Protocol):
    """Receives host changes: an elastic state."""

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None: ...


class NotificationManager:
    """Distributes host changes to the states of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: List[Listener] = []

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


notification_manager = NotificationManager()
