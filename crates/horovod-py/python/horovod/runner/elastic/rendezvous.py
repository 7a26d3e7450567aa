"""The launcher's answers to the processes of an elastic job, on its rendezvous server under `/corro_elastic`. Answers what
the driver has decided, and tells it who asks; decides nothing.

`GET place.<process>.<after>?wait=SECONDS`: the process' place in a generation later than `after`, or `dismissed`.
`GET update.<generation>?wait=SECONDS`: how hosts have changed, once members of that generation shall ask for the next.
404: nothing yet, ask again. 410: the job is over; the text says why.
"""

import re
import threading
import time
from typing import Callable, Dict, Optional, Sequence, Tuple

from horovod.runner.http.http_server import KVStoreHandler, KVStoreServer

SCOPE = "corro_elastic"
DISMISSED = "dismissed"

_PLACE = re.compile(r"place\.([0-9]+)\.([0-9]+)")
_UPDATE = re.compile(r"update\.([0-9]+)")
Answer = Tuple[int, str]


class Places:
    """The current answers. `on_waiting(process, after)` is called, on the thread of a request, when there is no answer yet."""

    def __init__(self, on_waiting: Callable[[int, int], None]) -> None:
        self._on_waiting = on_waiting
        self._changed = threading.Condition()
        self._places: Dict[int, Tuple[int, str]] = {}
        self._dismissed: Dict[int, str] = {}
        self._update: Optional[Tuple[int, int]] = None
        self._over: Optional[str] = None

    def begin(self, generation: int, places: Dict[int, str]) -> None:
        """A generation begins; places are the texts by process."""
        with self._changed:
            self._places = {process: (generation, text) for process, text in places.items()}
            self._changed.notify_all()

    def dismiss(self, process: int) -> None:
        with self._changed:
            self._dismissed[process] = DISMISSED
            self._changed.notify_all()

    def notify(self, generation: int, change: int) -> None:
        with self._changed:
            self._update = (generation, change)
            self._changed.notify_all()

    def finish(self, reason: str) -> None:
        with self._changed:
            self._over = reason
            self._changed.notify_all()

    def place(self, process: int, after: int, wait_s: float) -> Answer:
        with self._changed:
            answer = self._place(process, after)
        if answer is None:
            self._on_waiting(process, after)
            answer = self._wait(lambda: self._place(process, after), wait_s)
        return answer or (404, "")

    def update(self, generation: int, wait_s: float) -> Answer:
        return self._wait(lambda: self._updated(generation), wait_s) or (404, "")

    def _place(self, process: int, after: int) -> Optional[Answer]:
        if process in self._dismissed:
            return 200, self._dismissed[process]
        if self._over is not None:
            return 410, self._over
        generation, text = self._places.get(process, (0, ""))
        return (200, text) if generation > after else None

    def _updated(self, generation: int) -> Optional[Answer]:
        if self._over is not None:
            return 410, self._over
        if self._update is not None and self._update[0] == generation:
            return 200, str(self._update[1])
        return None

    def _wait(self, answer: Callable[[], Optional[Answer]], wait_s: float) -> Optional[Answer]:
        deadline = time.monotonic() + wait_s
        with self._changed:
            while True:
                found = answer()
                left = deadline - time.monotonic()
                if found is not None or left <= 0:
                    return found
                self._changed.wait(left)


class ElasticRendezvousServer(KVStoreServer):
    """The rendezvous server of an elastic job: places, and the key-value store in which the ranks of a generation meet."""

    def __init__(self, places: Places, verbose: int = 0, address: str = "127.0.0.1") -> None:
        super().__init__(verbose, address)
        self._places = places
        self._current = 0

    def start(self, handler_cls: type = KVStoreHandler) -> int:
        return super().start(type("ElasticHandler", (_ElasticHandler,), {"places": self._places}))

    def begin(self, generation: int) -> None:
        """A generation begins. Nobody reads what ranks of earlier ones have put."""
        self.store.clear(f"corro_{self._current}")
        self._current = generation

    def report_failure(self, generation: int, rank: int, problem: str) -> None:
        """A member has ended: others that still connect in this generation need not wait for it."""
        self.store.put(f"corro_{generation}", "failed", f"{rank} {problem}".encode())


class _ElasticHandler(KVStoreHandler):
    places: Places

    def do_GET(self) -> None:
        if not self.path.startswith(f"/{SCOPE}/"):
            super().do_GET()
            return
        parsed = self._parse_path()
        if parsed is None:
            return
        _, key, wait_s = parsed
        place, update = _PLACE.fullmatch(key), _UPDATE.fullmatch(key)
        if place is not None:
            status, text = self.places.place(int(place.group(1)), int(place.group(2)), wait_s)
        elif update is not None:
            status, text = self.places.update(int(update.group(1)), wait_s)
        else:
            status, text = 400, ""
        self._reply(status, text.encode())


def place_text(generation: int, numbers: Sequence[int], server: Optional[str] = None) -> str:
    """`GENERATION RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE`, and the server for this generation if it is another."""
    return " ".join([str(generation), *map(str, numbers), *([server] if server else [])])
