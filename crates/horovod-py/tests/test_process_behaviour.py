"""Behaviour in a Python process: threads, signals, forks, exit, startup errors. Without a framework.
Not run by spmd.py: the tests start ranks of their own."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from typing import Optional

import pytest

# Code that all ranks run first.
PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
from horovod import _core
from horovod.common import basics as hvd
from horovod.common.exceptions import HorovodInternalError

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False

def submit(name, array=None):
    array = np.ones(4) if array is None else array
    return _core.submit(_core.ALLREDUCE, "", name, [(array.ctypes.data, array.ctypes.data, 8, array.shape)], keep=array)

def allreduce(name):
    array = np.ones(4)
    _core.synchronize(submit(name, array))
    assert array.tolist() == [hvd.size()] * 4

def say(text):
    print(text, flush=True)
"""

LIMIT = 60.0


class Ranks:
    """Processes of one job that run the same code."""

    def __init__(self, n_ranks: int, program: str, **variables: str) -> None:
        job = uuid.uuid4().hex
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD_", "RANK", "WORLD_"))}
        self.processes = []
        for rank in range(n_ranks):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n_ranks),
                     "LOCAL_WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": job,
                     "TORCHELASTIC_RUN_ID": job}
            self.processes.append(subprocess.Popen(
                [sys.executable, "-c", PRELUDE + textwrap.dedent(program)], env={**kept, **place, **variables},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                # A process group, so that forked children of a rank are ended with it.
                start_new_session=True))

    def line(self, rank: int) -> str:
        """The next line that a rank prints."""
        stdout = self.processes[rank].stdout
        assert stdout is not None
        return stdout.readline().strip()

    def send(self, rank: int, line: str) -> None:
        stdin = self.processes[rank].stdin
        assert stdin is not None
        stdin.write(line + "\n")
        stdin.flush()

    def end(self, rank: int, limit: float = LIMIT) -> tuple[int, str, str]:
        """Exit code, output, errors."""
        process = self.processes[rank]
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            pytest.fail(f"rank {rank} did not end within {limit} s: {output}{errors}")
        return process.returncode, output, errors

    def all_end_well(self) -> list[str]:
        ends = [self.end(rank) for rank in range(len(self.processes))]
        for rank, (code, output, errors) in enumerate(ends):
            assert code == 0, f"rank {rank}: {code}\n{output}{errors}"
        return [output for _, output, _ in ends]

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def alone(program: str, **variables: Optional[str]) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD_", "RANK", "WORLD_"))}
    given = {name: value for name, value in variables.items() if value is not None}
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program)]
    return subprocess.run(command, env={**kept, **given}, capture_output=True, text=True, timeout=LIMIT)


def test_the_gil_is_released_while_waiting() -> None:
    # The second rank joins only after another thread of the first one has done some work.
    with Ranks(2, """
        hvd.init()
        if hvd.rank() == 0:
            def work():
                say(sum(range(1000000)))
                allreduce("go")
            threading.Thread(target=work).start()
        else:
            allreduce("go")
        allreduce("late")
    """) as ranks:
        assert ranks.all_end_well() == ["499999500000\n", ""]


@pytest.mark.parametrize("wait", ["_core.synchronize(submit('never'))", "_core.barrier()", "_core.join()",
                                  "_core.add_process_set([0])"])
def test_ctrl_c_interrupts_a_wait_and_other_ranks_name_the_rank(wait: str) -> None:
    with Ranks(3, f"""
        hvd.init()
        say("ready")
        if hvd.rank() == 1:
            {wait}
        else:
            _core.synchronize(submit("other%d" % hvd.rank()))
    """, HOROVOD_DYNAMIC_PROCESS_SETS="1") as ranks:
        for rank in range(3):
            assert ranks.line(rank) == "ready"
        # During the wait, or just before it: both must work.
        time.sleep(0.3)
        began = time.monotonic()
        ranks.processes[1].send_signal(signal.SIGINT)
        code, _, errors = ranks.end(1)
        assert time.monotonic() - began < 5
        assert code != 0 and "KeyboardInterrupt" in errors
        for rank in [0, 2]:
            code, _, errors = ranks.end(rank)
            assert code == 1 and "HorovodInternalError: Horovod has been shut down." in errors
            assert "Rank 1 was the first to shut down or to exit." in errors


def test_ctrl_c_interrupts_init() -> None:
    with Ranks(1, """
        say("ready")
        hvd.init()
    """, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2") as ranks:
        assert ranks.line(0) == "ready"
        time.sleep(0.5)
        began = time.monotonic()
        ranks.processes[0].send_signal(signal.SIGINT)
        code, _, errors = ranks.end(0)
        assert code != 0 and "KeyboardInterrupt" in errors and time.monotonic() - began < 5


def test_a_killed_rank_is_named_by_the_others() -> None:
    with Ranks(3, """
        hvd.init()
        allreduce("all are here")
        say("ready")
        try:
            if hvd.rank() == 2:
                time.sleep(100)
            _core.synchronize(submit("never"))
        except HorovodInternalError as error:
            say(error)
        try:
            submit("more")
        except HorovodInternalError as error:
            say(error)
        hvd.shutdown()
    """) as ranks:
        for rank in range(3):
            assert ranks.line(rank) == "ready"
        ranks.processes[2].kill()
        for rank in range(2):
            code, output, errors = ranks.end(rank)
            assert code == 0, errors
            assert [line for line in output.splitlines() if re.match(r"rank 2 on host \S+ has died", line)], output
            assert len(output.splitlines()) == 2


def test_a_forked_child_does_not_touch_the_engine() -> None:
    with Ranks(2, """
        import multiprocessing
        hvd.init()
        pending = submit("pending")

        def child(queue):
            results = [hvd.is_initialized()]
            for ask in [hvd.rank, lambda: submit("x"), hvd.init]:
                try:
                    ask()
                    results.append("nothing")
                except (ValueError, HorovodInternalError) as error:
                    results.append(f"{type(error).__name__}: {error}")
            queue.put(results)
            # As at interpreter exit, which a multiprocessing child skips.
            _core.at_exit()
            hvd.shutdown()

        context = multiprocessing.get_context("fork")
        for _ in range(5):
            queue = context.Queue()
            process = context.Process(target=child, args=(queue,))
            process.start()
            results = queue.get(timeout=30)
            process.join(30)
            assert process.exitcode == 0
            assert results[0] is False
            assert results[1] == "ValueError: Horovod has not been initialized; use hvd.init().", results
            assert results[2] == "HorovodInternalError: Horovod has not been initialized; use hvd.init().", results
            assert results[3].startswith("ValueError: Horovod initialization failed: this process was forked from rank"), results
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        _core.synchronize(pending)
        allreduce("after")
        say("went on")
    """) as ranks:
        assert ranks.all_end_well() == ["went on\n"] * 2


def test_a_forked_child_with_its_own_rank_can_init() -> None:
    end = alone("""
        import multiprocessing
        hvd.init()

        def child(rank, job):
            os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", MASTER_PORT=job,
                              TORCHELASTIC_RUN_ID=job)
            hvd.init()
            allreduce("children")
            _core.barrier()
            hvd.shutdown()

        context = multiprocessing.get_context("fork")
        children = [context.Process(target=child, args=(rank, f"children of {os.getpid()}")) for rank in range(2)]
        for process in children:
            process.start()
        for process in children:
            process.join(30)
            assert process.exitcode == 0
        allreduce("alone")
    """)
    assert end.returncode == 0, end.stderr


EXITS = {
    "pending operations": 'submit("never")',
    "an exception": 'submit("never")\nraise RuntimeError("enough")',
    "a daemon thread that waits":
        'threading.Thread(target=lambda: _core.synchronize(submit("never")), daemon=True).start()\ntime.sleep(0.3)',
    "daemon threads that call again and again": """
def again():
    while True:
        try:
            _core.synchronize(submit(f"never{threading.get_ident()}"))
        except HorovodInternalError:
            pass
for _ in range(4):
    threading.Thread(target=again, daemon=True).start()
time.sleep(0.3)
""",
    "sys.exit in a callback at exit": 'import atexit\natexit.register(lambda: submit("never"))',
}


@pytest.mark.parametrize("how", EXITS)
def test_interpreter_exit(how: str) -> None:
    with Ranks(2, "hvd.init()\nsay('ready')\nif hvd.rank() == 1:\n" + textwrap.indent(EXITS[how].strip(), "    ")
               + "\nelse:\n    try:\n        _core.synchronize(submit('other'))\n    except HorovodInternalError as error:\n"
               + "        say(error)\n") as ranks:
        began = time.monotonic()
        code, _, errors = ranks.end(1, 30)
        assert code == (1 if "raise" in EXITS[how] else 0), errors
        assert "fatal" not in errors.lower() and "panicked" not in errors, errors
        code, output, errors = ranks.end(0, 30)
        assert code == 0 and "Rank 1 was the first to shut down or to exit." in output, output + errors
        assert time.monotonic() - began < 30


def test_exit_does_not_wait_for_a_stopped_coordinator() -> None:
    with Ranks(2, """
        hvd.init()
        allreduce("all are here")
        say("ready")
        if hvd.rank() == 0:
            time.sleep(100)
        sys.stdin.readline()
    """) as ranks:
        assert [ranks.line(rank) for rank in range(2)] == ["ready"] * 2
        ranks.processes[0].send_signal(signal.SIGSTOP)
        ranks.send(1, "go")
        code, _, errors = ranks.end(1, 30)
        assert code == 0, errors


def test_repeated_init_and_shutdown_in_one_process() -> None:
    with Ranks(2, """
        for number in range(100):
            hvd.init()
            if number % 10 == 0:
                allreduce("x")
            _core.barrier()
            hvd.shutdown()
        def n_open():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        say(n_open())
    """) as ranks:
        for output in ranks.all_end_well():
            n_files, n_threads = eval(output)
            assert n_files < 20 and n_threads < 8, output


def test_duplicate_names_are_rejected_until_completion() -> None:
    with Ranks(2, """
        hvd.init()
        if hvd.rank() == 0:
            first = submit("x")
            try:
                submit("x")
            except ValueError as error:
                say(error)
            _core.barrier()
        else:
            _core.barrier()
            first = submit("x")
        _core.synchronize(first)
        allreduce("x")
    """) as ranks:
        output = ranks.all_end_well()[0]
    assert output.startswith("Requested to allreduce, allgather, or broadcast a tensor with the same name")


def test_different_process_sets_raise_an_error() -> None:
    with Ranks(2, """
        try:
            hvd.init(process_sets=[[hvd_rank]] if (hvd_rank := int(os.environ["RANK"])) == 0 else [[1]])
        except ValueError as error:
            say(error)
    """) as ranks:
        for output in ranks.all_end_well():
            assert output.startswith("Horovod initialization failed: the process sets could not be registered: "
                                     "Attempted to register process set with mismatching values on different ranks")


@pytest.mark.parametrize("level, shown", [("info", True), ("DEBUG", True), ("warning", False), ("unheard-of", False)])
def test_log_level(level: str, shown: bool) -> None:
    end = alone("hvd.init()", HOROVOD_LOG_LEVEL=level)
    assert end.returncode == 0
    assert ("info] rank 0: " in end.stdout) == shown, end.stdout


@pytest.mark.parametrize("variables, message", [
    (dict(HOROVOD_SIZE="2"), "HOROVOD_SIZE is set but HOROVOD_RANK is not"),
    (dict(HOROVOD_RANK="0"), "HOROVOD_RANK is set but HOROVOD_SIZE is not"),
    (dict(HOROVOD_RANK="2", HOROVOD_SIZE="2"), "HOROVOD_RANK is 2, but HOROVOD_SIZE is 2"),
    (dict(HOROVOD_RANK="0", HOROVOD_SIZE="2"), "HOROVOD_GLOO_RENDEZVOUS_ADDR is not set"),
    (dict(HOROVOD_RANK="0", HOROVOD_SIZE="2", HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1", HOROVOD_GLOO_RENDEZVOUS_PORT="1",
          HOROVOD_GLOO_TIMEOUT_SECONDS="1"), "cannot talk to the launcher's key-value server at 127.0.0.1:1: "),
    (dict(WORLD_SIZE="2", RANK="0", LOCAL_WORLD_SIZE="2", LOCAL_RANK="0", MASTER_PORT="manners", HOROVOD_GLOO_TIMEOUT_SECONDS="1"), "rank 1 did not join"),
    (dict(HOROVOD_CYCLE_TIME="soon"), "HOROVOD_CYCLE_TIME is `soon`: set it to a number of milliseconds"),
    (dict(HOROVOD_CONTROLLER="nccl"), "HOROVOD_CONTROLLER is `nccl`"),
])
def test_invalid_launcher_variables_are_named(variables: dict[str, str], message: str) -> None:
    end = alone("""
        try:
            hvd.init()
        except ValueError as error:
            say(error)
        assert not hvd.is_initialized()
    """, **variables)
    assert end.returncode == 0, end.stderr
    assert end.stdout.startswith("Horovod initialization failed: ") and message in end.stdout, end.stdout


def test_an_incompatible_peer_is_named() -> None:
    """A key-value server with an entry of the other rank that no rank of ours would write."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    class Server(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(b"")

        def do_GET(self) -> None:
            self.answer(b"addresses of another library")

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    Thread(target=server.serve_forever, daemon=True).start()
    end = alone("""
        try:
            hvd.init()
        except ValueError as error:
            say(error)
    """, HOROVOD_RANK="0", HOROVOD_SIZE="2", HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1",
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(server.server_port), HOROVOD_GLOO_TIMEOUT_SECONDS="5")
    server.shutdown()
    assert end.stdout.startswith("Horovod initialization failed: ") and "use one build in all ranks" in end.stdout, end.stdout


def test_importing_is_fast_and_imports_no_framework() -> None:
    program = """
import sys, time
began = time.perf_counter()
import horovod.common.basics
print(time.perf_counter() - began)
print([name for name in ("numpy", "torch", "tensorflow", "keras", "cloudpickle") if name in sys.modules])
"""
    end = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT)
    assert end.returncode == 0, end.stderr
    seconds, frameworks = end.stdout.splitlines()
    print(f"import horovod.common.basics: {float(seconds) * 1000:.1f} ms")
    assert frameworks == "[]"
