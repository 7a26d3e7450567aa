"""Client of the launcher's key-value server, for workers that run a function. Failed connections and unexpected
responses are retried three times, half a second apart."""

import http.client
import time
from typing import Optional

_ATTEMPTS = 3
_BETWEEN_ATTEMPTS_S = 0.5
_REQUEST_TIMEOUT_S = 40.0
# Below the usual timeouts of proxies.
_MAX_WAIT_S = 10.0


def read_data_from_kvstore(addr: str, port: int, scope: str, key: str, timeout_s: float = 60.0) -> bytes:
    """Returns the value; waits for it."""
    deadline = time.monotonic() + timeout_s
    while True:
        wait_s = max(0.0, min(deadline - time.monotonic(), _MAX_WAIT_S))
        value = _request(addr, port, "GET", f"/{scope}/{key}?wait={wait_s:.3f}")
        if value is not None:
            return value
        if time.monotonic() >= deadline:
            raise RuntimeError(f"/{scope}/{key} was not set on the launcher's server {addr}:{port} within {timeout_s:g} s")


def put_data_into_kvstore(addr: str, port: int, scope: str, key: str, value: bytes) -> None:
    _request(addr, port, "PUT", f"/{scope}/{key}", value)


def delete_data_from_kvstore(addr: str, port: int, scope: str, key: str) -> None:
    _request(addr, port, "DELETE", f"/{scope}/{key}")


def _request(addr: str, port: int, method: str, path: str, body: bytes = b"") -> Optional[bytes]:
    """The body of a 200 response; None for a 404."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_BETWEEN_ATTEMPTS_S)
        connection = http.client.HTTPConnection(addr, port, timeout=_REQUEST_TIMEOUT_S)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            value = response.read()
            if response.status in (200, 404):
                return value if response.status == 200 else None
            problem = f"it answers {response.status}"
        except (OSError, http.client.HTTPException) as failure:
            problem = str(failure)
        finally:
            connection.close()
    raise RuntimeError(f"{method} {path} failed {_ATTEMPTS} times at the launcher's server {addr}:{port}: {problem}")
