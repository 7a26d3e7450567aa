"""Threads of the launcher: all daemons, since its exit must not wait for them."""

import contextlib
import queue
import threading
from typing import Any, Callable, Dict, Optional, Sequence, Tuple


def in_thread(
    target: Callable[..., Any],
    args: Tuple[Any, ...] = (),
    name: Optional[str] = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Runs a function on a thread of its own; a silent one prints no exception."""
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")

    def run_silently(*args: Any) -> None:
        with contextlib.suppress(Exception):
            target(*args)

    thread = threading.Thread(target=run_silently if silent else target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Tuple[Any, ...] = (),
    stop: Optional[threading.Event] = None,
    check_stop_interval_s: float = 0.2,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls a function once when the event is set, unless `stop` is set first."""
    if event is None:
        raise ValueError("Event must not be None")
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")
    if stop is None and not daemon:
        raise ValueError("Stop event must be given for non-daemon event thread")

    def wait() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> Optional[Dict[int, Any]]:
    """Calls a function with each set of arguments in parallel. Returns results by position; the first exception is
    raised when all have ended. Without waiting, returns None at once."""
    todo: "queue.SimpleQueue[Tuple[int, Sequence[Any]]]" = queue.SimpleQueue()
    for position, arguments in enumerate(args_list):
        todo.put((position, arguments))
    results: Dict[int, Any] = {}
    failures = []

    def work() -> None:
        while True:
            try:
                position, arguments = todo.get_nowait()
            except queue.Empty:
                return
            try:
                results[position] = fn(*arguments)
            except Exception as failure:  # Raised below, on the caller's thread.
                failures.append(failure)

    threads = [in_thread(work) for _ in range(min(len(args_list), max_concurrent_executions))]
    if not block_until_all_done:
        return None
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
