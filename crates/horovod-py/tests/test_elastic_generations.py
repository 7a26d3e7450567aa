"""Processes of an elastic job that get their ranks from a driver: `init` of several generations in one process. The
driver is a small one of this file. Not run by spmd.py: the tests start processes of their own."""

import http.server
import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Dict, List, Optional, Tuple

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False

PRELUDE = """
import os, signal, sys, threading, time
from horovod import _core
from horovod.common import basics as hvd
from horovod.common.exceptions import HorovodInternalError
import ctypes

def allreduce(name):
    array = (ctypes.c_double * 4)(1, 1, 1, 1)
    address = ctypes.addressof(array)
    _core.synchronize(_core.submit(_core.ALLREDUCE, "", name, [(address, address, 8, (4,))], keep=array))
    assert list(array) == [hvd.size()] * 4

def say(text):
    print(text, flush=True)
"""

LIMIT = 60.0


class Driver:
    """A rendezvous server whose generations the test decides."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.values: Dict[str, bytes] = {}
        self.generations: List[List[int]] = []
        self.updates: Dict[int, int] = {}
        self.dismissed: List[int] = []
        self.over: Optional[str] = None
        driver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path, _, query = self.path.partition("?wait=")
                with driver.changed:
                    driver.changed.wait_for(lambda: driver.answer(path)[0] != 404, float(query or 0))
                    self.respond(*driver.answer(path))

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with driver.changed:
                    driver.values[self.path] = body
                    driver.changed.notify_all()
                self.respond(200, b"")

            def do_DELETE(self) -> None:
                with driver.changed:
                    driver.values.pop(self.path, None)
                self.respond(200, b"")

            def respond(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """A process that was killed does not read its answer."""

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> Tuple[int, bytes]:
        scope, _, key = path[1:].partition("/")
        if scope != "corro_elastic":
            value = self.values.get(path)
            return (404, b"") if value is None else (200, value)
        what, *numbers = key.split(".")
        if what == "update":
            update = self.updates.get(int(numbers[0]))
            return (404, b"") if update is None else (200, b"%d" % update)
        process, after = map(int, numbers)
        if process in self.dismissed:
            return 200, b"dismissed"
        if self.over is not None:
            return 410, self.over.encode()
        newest, members = len(self.generations), self.generations[-1] if self.generations else []
        if newest <= after or process not in members:
            return 404, b""
        rank, size = members.index(process), len(members)
        return 200, f"{newest} {rank} {size} {rank} {size} 0 1".encode()

    def begin(self, *members: int) -> None:
        with self.changed:
            self.generations.append(list(members))
            self.changed.notify_all()

    def change(self, **attributes: object) -> None:
        with self.changed:
            for name, value in attributes.items():
                setattr(self, name, value)
            self.changed.notify_all()

    def start(self, process: int, program: str) -> "Process":
        return Process(self.server.server_address[1], process, program)


class Process:
    def __init__(self, port: int, process: int, program: str) -> None:
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("HOROVOD_", "CORRO_", "RANK", "WORLD_"))}
        variables = {"HOROVOD_ELASTIC": "1", "CORRO_ELASTIC_PROCESS": str(process), "HOROVOD_HOSTNAME": "here",
                     "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
        self.popen = subprocess.Popen([sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
                                      env={**kept, **variables}, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def ended(self) -> int:
        return self.popen.wait(LIMIT)


SURVIVOR = """
hvd.init(process_sets=[[0]])
say(f"{_core.generation()}: {hvd.rank()} of {hvd.size()}")
try:
    for step in range(10**9):
        allreduce(f"step")
except HorovodInternalError as error:
    say(error)
hvd.shutdown()
hvd.init(process_sets=[[0]])
allreduce("again")
say(f"{_core.generation()}: {hvd.rank()} of {hvd.size()}, sets {_core.process_sets()}")
if hvd.rank() == 0:
    _core.barrier(1)
allreduce("end")
"""


def test_survivors_of_a_killed_rank_go_on_in_the_next_generation() -> None:
    driver = Driver()
    processes = {process: driver.start(process, SURVIVOR) for process in (1, 2, 3)}
    driver.begin(1, 2, 3)
    for rank, process in enumerate(processes.values()):
        assert process.line() == f"1: {rank} of 3"
    processes[1].popen.kill()
    for process in (2, 3):
        assert processes[process].line() == "rank 0 on host here has died"
    driver.begin(2, 3)
    for rank, process in enumerate((2, 3)):
        assert processes[process].line() == f"2: {rank} of 2, sets [(0, [0, 1]), (1, [0])]"
        assert processes[process].ended() == 0
    assert processes[1].ended() == -signal.SIGKILL


def test_members_ask_again_when_one_ends_while_they_connect() -> None:
    driver = Driver()
    members = [driver.start(process, 'hvd.init(); allreduce("a"); say(f"{_core.generation()}: {hvd.rank()}")')
               for process in (1, 2)]
    driver.begin(1, 2, 3)
    with driver.changed:
        # What a launcher does when a process of a generation ends before it is connected.
        driver.values["/corro_1/failed"] = b"2 rank 2 on host here ended with exit code 1"
        driver.changed.notify_all()
    driver.begin(1, 2)
    for rank, member in enumerate(members):
        assert member.line() == f"2: {rank}"
        assert member.ended() == 0


def test_a_dismissed_process_ends_as_a_success() -> None:
    driver = Driver()
    process = driver.start(1, """
        assert _core.is_elastic() and _core.generation() == 0
        try:
            hvd.init()
        except Exception:
            say("caught")
        finally:
            say("leaving")
        """)
    driver.change(dismissed=[1])
    assert process.line() == "leaving"
    assert process.ended() == 0


def test_a_job_that_is_over_fails_init_with_the_reason() -> None:
    driver = Driver()
    process = driver.start(1, """
        try:
            hvd.init()
        except ValueError as error:
            say(error)
        """)
    driver.change(over="2 processes are needed, 1 is there")
    assert process.line() == ("Horovod initialization failed: the elastic job is over: 2 processes are needed, 1 is there")
    assert process.ended() == 0


def test_init_that_waits_for_the_driver_can_be_interrupted() -> None:
    process = Driver().start(1, """
        def interrupt():
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.2, interrupt).start()
        try:
            hvd.init()
        except KeyboardInterrupt:
            say(f"interrupted {hvd.is_initialized()}")
        """)
    assert process.line() == "interrupted False"
    assert process.ended() == 0


def test_announced_changes_belong_to_a_generation() -> None:
    driver = Driver()
    driver.begin(1)
    process = driver.start(1, """
        assert _core.elastic_update(0) == 0
        hvd.init()
        say(_core.elastic_update(0))
        say(_core.elastic_update(60))
        hvd.shutdown()
        hvd.init()
        say(_core.elastic_update(0))
        """)
    assert process.line() == "0"
    driver.change(updates={1: 2})
    assert process.line() == "2"
    driver.begin(1)
    assert process.line() == "0"
    assert process.ended() == 0


def test_an_elastic_job_of_another_launcher_is_no_concern() -> None:
    process = Driver().start(1, """
        del os.environ["CORRO_ELASTIC_PROCESS"]
        del os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
        hvd.init()
        say(f"{_core.is_elastic()} {_core.generation()} {hvd.size()} {_core.elastic_update(0)}")
        """)
    assert process.line() == "False 0 1 0"
    assert process.ended() == 0
