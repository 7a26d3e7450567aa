"""What the launcher found out a short while ago, such as which hosts answer to ssh. A file in ~/.horovod that may
vanish at any time: without it the launcher asks again. Holds nothing secret."""

import hashlib
import json
import os
import time
from typing import Any, Dict, Optional


class Cache:
    """Values by name, each good for `staleness_minutes`, of one set of `parameters`."""

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
            # Renamed into place: another launcher may be reading it.
            temporary = f"{self._path}.{os.getpid()}"
            with open(temporary, "w") as file:
                json.dump(values, file)
            os.replace(temporary, self._path)
        except OSError:
            pass  # A home that cannot be written to only makes the next start slower.

    def _read(self) -> Dict[str, Any]:
        try:
            with open(self._path) as file:
                values = json.load(file)
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}
