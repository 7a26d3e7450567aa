"""Cache of the launcher, for example of hosts reachable by ssh. A file in ~/.horovod that may be deleted at any time.
Contains no secrets."""

import hashlib
import json
import os
import time
from typing import Any, Dict, Optional


class Cache:
    """Values by name, each valid for `staleness_minutes`, for one set of `parameters`."""

    def __init__(self, folder: Optional[str] = None, staleness_minutes: float = 60, parameters: str = "") -> None:
        folder = folder or os.path.join(os.path.expanduser("~"), ".horovod")
        self._path = os.path.join(folder, f"cache-{hashlib.sha256(parameters.encode()).hexdigest()[:16]}.json")
        self._staleness_s = staleness_minutes * 60

    def get(self, key: str) -> Optional[Any]:
        entry = self._read().get(key)
        try:
            written_at, value = entry  # type: ignore[misc]
            return value if 0 <= time.time() - written_at < self._staleness_s else None
        except (TypeError, ValueError):
            return None

    def put(self, key: str, value: Any) -> None:
        values = self._read()
        values[key] = (time.time(), value)
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            # Renamed atomically, since another launcher may be reading it.
            temporary = f"{self._path}.{os.getpid()}"
            with open(temporary, "w") as file:
                json.dump(values, file)
            os.replace(temporary, self._path)
        except OSError:
            pass  # Without the cache the next start is only slower.

    def _read(self) -> Dict[str, Any]:
        try:
            with open(self._path) as file:
                values = json.load(file)
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}
