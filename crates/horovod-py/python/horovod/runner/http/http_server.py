"""Rendezvous server: a key-value store over HTTP with the paths of Horovod's launcher, one per job. Works with our
engine and upstream's. Never interprets a value.

`PUT`, `GET` and `DELETE` on `/<scope>/<key>`. As an extension, `GET ...?wait=SECONDS` responds as soon as the key
exists, so that ranks need not poll.
"""

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, List, Optional, Set, Tuple
from urllib.parse import parse_qs, urlsplit

from horovod.runner.common.util.hosts import SlotInfo

_MAX_WAIT_S = 30.0
_MAX_BODY_BYTES = 1 << 30
_BODY_TIMEOUT_S = 3.0
# Timeout of an idle keep-alive connection.
_IDLE_TIMEOUT_S = 60.0


class Store:
    """Scopes, keys and values, with Horovod's rule for the end of a scope."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._scopes: Dict[str, Dict[str, bytes]] = {}
        self._expected: Dict[str, int] = {}
        self._finished: Dict[str, Set[str]] = {}

    def expect_scopes(self, scopes: Dict[str, int]) -> None:
        """Sets the number of ranks of each predefined scope, and clears those scopes."""
        with self._changed:
            self._expected = dict(scopes)
            for scope in scopes:
                self._scopes.pop(scope, None)
            self._finished.clear()

    def put(self, scope: str, key: str, value: bytes) -> None:
        with self._changed:
            self._scopes.setdefault(scope, {})[key] = value
            self._changed.notify_all()

    def get(self, scope: str, key: str, wait_s: float = 0.0) -> Optional[bytes]:
        """Returns None if the key does not exist in time."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            while True:
                value = self._scopes.get(scope, {}).get(key)
                left = deadline - time.monotonic()
                if value is not None or left <= 0:
                    return value
                self._changed.wait(left)

    def clear(self, scope: str) -> None:
        """Removes a scope, whoever may still read it."""
        with self._changed:
            self._scopes.pop(scope, None)

    def delete(self, scope: str, key: str) -> None:
        """Rank `key` has finished with the scope. A predefined scope is cleared when its last rank has finished, since
        others may still be reading; in any other scope only the key is deleted."""
        with self._changed:
            if scope not in self._expected:
                values = self._scopes.get(scope, {})
                values.pop(key, None)
                if not values:
                    self._scopes.pop(scope, None)
                return
            # A set, because a client that missed the response repeats its request.
            finished = self._finished.setdefault(scope, set())
            finished.add(key)
            if len(finished) >= self._expected[scope]:
                self._scopes.pop(scope, None)
                del self._finished[scope]


class KVStoreHandler(BaseHTTPRequestHandler):
    """Handler of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_TIMEOUT_S
    # Header and body are sent in one write: in two, a small response would wait for a delayed acknowledgement.
    wbufsize = 64 * 1024
    disable_nagle_algorithm = True
    server: "_Listener"

    def do_GET(self) -> None:
        parsed = self._parse_path()
        if parsed is not None:
            scope, key, wait_s = parsed
            value = self.server.store.get(scope, key, wait_s)
            self._reply(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        body = self._body()
        if body is None:
            return
        parsed = self._parse_path()
        if parsed is not None:
            self.server.store.put(parsed[0], parsed[1], body)
            self._reply(200)

    def do_DELETE(self) -> None:
        parsed = self._parse_path()
        if parsed is not None:
            self.server.store.delete(parsed[0], parsed[1])
            self._reply(200)

    def _parse_path(self) -> Optional[Tuple[str, str, float]]:
        """Scope, key and wait time; None after an error response."""
        url = urlsplit(self.path)
        scope, _, key = url.path.lstrip("/").partition("/")
        try:
            wait_s = float(parse_qs(url.query).get("wait", ["0"])[0])
        except ValueError:
            scope = ""
        if not scope or not key:
            self._reply(400)
            return None
        return scope, key, min(wait_s, _MAX_WAIT_S)

    def _body(self) -> Optional[bytes]:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        if not 0 <= length <= _MAX_BODY_BYTES:
            self.close_connection = True
            self._reply(411 if length < 0 else 413)
            return None
        self.connection.settimeout(_BODY_TIMEOUT_S)
        try:
            body = self.rfile.read(length)
        except socket.timeout:
            body = b""
        self.connection.settimeout(_IDLE_TIMEOUT_S)
        if len(body) < length:
            self.close_connection = True
            self._reply(408)
            return None
        return body

    def _reply(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """No log output: stderr belongs to the ranks."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    # Threads end with their clients, or with the launcher.
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, address: Tuple[str, int], handler: type, store: Store) -> None:
        self.store = store
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that disconnect in the middle of a request."""


class KVStoreServer:
    """A running store. Listens on `address`; the default is only reachable from this host."""

    def __init__(self, verbose: int = 0, address: str = "127.0.0.1") -> None:
        self._verbose = verbose
        self._address = address
        self._listener: Optional[_Listener] = None
        self.store = Store()

    def start(self, handler_cls: type = KVStoreHandler) -> int:
        """Starts the server and returns its port."""
        self._listener = _Listener((self._address, 0), handler_cls, self.store)
        threading.Thread(target=self._listener.serve_forever, args=(0.1,), daemon=True).start()
        port = int(self._listener.server_address[1])
        if self._verbose >= 2:
            print(f"The key-value server listens on {self._address}:{port}")
        return port

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.shutdown()
            self._listener.server_close()
            self._listener = None


class RendezvousServer(KVStoreServer):
    """The store for the rendezvous of ranks."""

    def init(self, host_assignments: List[SlotInfo]) -> None:
        """Defines the scopes: all ranks, those of each host, and those with each local rank."""
        scopes: Dict[str, int] = {}
        for slot in host_assignments:
            for scope in ("global", f"local_{slot.hostname}", f"cross_{slot.local_rank}"):
                scopes[scope] = scopes.get(scope, 0) + 1
        self.store.expect_scopes(scopes)
