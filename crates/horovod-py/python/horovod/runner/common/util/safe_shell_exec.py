"""Starts a worker, forwards its output, and ends it with all of its child processes. Called once per worker, each time
on a thread of its own. Never leaves a process behind: see `worker_script` for the case that the launcher dies."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Iterable, List, Mapping, Optional, Sequence

from horovod.runner.common.util import worker_script
from horovod.runner.common.util.worker_script import GRACEFUL_TERMINATION_TIME_S
from horovod.runner.util.streams import Console, LineSplitter, forward, prefix_for
from horovod.runner.util.threads import in_thread, on_event


def execute(
    command: str,
    env: Optional[Mapping[str, str]] = None,
    stdout: Any = None,
    stderr: Any = None,
    index: Optional[int] = None,
    events: Optional[Iterable[threading.Event]] = None,
    prefix_output_with_timestamp: bool = False,
    kill_event: Optional[threading.Event] = None,
    copies: Optional[Path] = None,
    keeps_copies: bool = False,
    shell: Sequence[str] = ("/bin/sh",),
    script: Optional[bytes] = None,
) -> int:
    """Runs a command line in a shell to its end. The exit status is 128 + s after signal s.

    Output goes to `stdout` and `stderr` (by default this process' own) in complete lines, with the prefix of
    `index`, and to the files `stdout` and `stderr` in the directory `copies`, after what they contain if `keeps_copies`.
    Any of the events ends the command: SIGTERM to its process group, and SIGKILL five seconds later, or at once on
    `kill_event`. `shell` and `script` are for a shell on another host.
    """
    out = stdout if isinstance(stdout, Console) else Console(stdout or sys.stdout)
    err = stderr if isinstance(stderr, Console) else Console(stderr or sys.stderr)
    with contextlib.ExitStack() as files:
        kept: List[Any] = [None, None]
        if copies:
            kept = [files.enter_context(_create(copies / name, keeps_copies)) for name in ("stdout", "stderr")]
        process = subprocess.Popen(
            list(shell),
            env=None if env is None else dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        ended = threading.Event()
        unheard = threading.Event()
        for event in [*(events or ()), unheard]:
            on_event(event, _terminate, args=(process, ended, kill_event), stop=ended)
        readers = []
        for source, name, console, copy in [
            (process.stdout, "stdout", out, kept[0]),
            (process.stderr, "stderr", err, kept[1]),
        ]:
            lines = LineSplitter(prefix_for(index, name, prefix_output_with_timestamp))
            readers.append(in_thread(forward, args=(source, lines, console, copy, unheard.set)))
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It ended before reading its script; its status tells why.
            process.stdin.write(worker_script.script(command) if script is None else script)
            process.stdin.flush()
        # Not reaped yet, so that its process group id cannot be reused.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        _finish_output(process.pid, readers)
        ended.set()
        status = process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    return 128 - status if status < 0 else status


def _terminate(
    process: "subprocess.Popen[bytes]", ended: threading.Event, kill_event: Optional[threading.Event]
) -> None:
    _signal(process.pid, signal.SIGTERM)
    if kill_event is not None:
        on_event(kill_event, _signal, args=(process.pid, signal.SIGKILL), stop=ended)
    if not ended.wait(GRACEFUL_TERMINATION_TIME_S):
        _signal(process.pid, signal.SIGKILL)


def _finish_output(group: int, readers: List[threading.Thread]) -> None:
    """Waits for the remaining output. Background processes of the worker may hold its pipes: they are terminated, then
    killed. A reader that is still blocked on its output after that is abandoned."""
    _signal(group, signal.SIGTERM)
    for reader in readers:
        reader.join(GRACEFUL_TERMINATION_TIME_S)
    _signal(group, signal.SIGKILL)
    for reader in readers:
        reader.join(1)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _create(path: Path, continues: bool) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "ab" if continues else "wb")
