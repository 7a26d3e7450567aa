"""Threads of the launcher: all of them daemons, because its end must wait for nobody."""

import queue
import threading
from typing import Any, Callable, Dict, Optional, Sequence, Tuple


def in_thread(
    target: Callable[..., Any], args: Tuple[Any, ...] = (), name: Optional[str] = None, daemon: bool = True
) -> threading.Thread:
    """Runs a function on a thread of its own."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Tuple[Any, ...] = (),
    stop: Optional[threading.Event] = None,
    check_stop_interval_s: float = 0.2,
    daemon: bool = True,
) -> threading.Thread:
    """Calls a function once when the event is set; forgets about it when `stop` is set first."""

    def wait() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait, daemon=daemon)


def execute_function_multithreaded(
    fn: Callable[..., Any], args_list: Sequence[Sequence[Any]], max_concurrent_executions: int = 1000
) -> Dict[int, Any]:
    """Calls a function with each set of arguments, side by side. Results by position; the first exception is raised
    when all have ended."""
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
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
