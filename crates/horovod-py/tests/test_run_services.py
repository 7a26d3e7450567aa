"""Upstream's services between the processes of a job, and other names that packages import. Not run by spmd.py:
servers and clients are in this process."""

import io
import socket
import struct
import threading
import time

import pytest

from horovod.runner.common.service.compute_service import ComputeClient, ComputeService, WaitForShutdownRequest
from horovod.runner.common.service.driver_service import BasicDriverClient, BasicDriverService
from horovod.runner.common.service.task_service import (
    BasicTaskClient,
    BasicTaskService,
    CommandOutputNotCaptured,
    StreamCommandStdErrRequest,
)
from horovod.runner.common.util import config_parser, secret
from horovod.runner.common.util import network as common_network
from horovod.runner.common.util.network import (
    AckResponse,
    AckStreamResponse,
    BasicClient,
    BasicService,
    NoValidAddressesFound,
    PingRequest,
    PingResponse,
    Wire,
)
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.util import network, threads
from horovod.runner.util.streams import Pipe

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False

KEY = secret.make_secret_key()
DEADLINE_S = 30
NOT_IN_TIME = "Timed out waiting for {activity}."


@pytest.fixture
def started():
    """Services that are shut down afterwards."""
    services = []

    def start(service):
        services.append(service)
        return service

    yield start
    for service in services:
        service.shutdown()


def in_background(function, *arguments):
    """Runs a function in the background; returns a function that waits for its result."""
    results = []
    thread = threads.in_thread(lambda: results.append(function(*arguments)))

    def result():
        thread.join(DEADLINE_S)
        assert results, "waited in vain"
        return results[0]

    return result


class Talker(BasicService):
    """Responds to "stream" with text, to any other request with the request itself."""

    def __init__(self, key=KEY, nics=None):
        super().__init__("talker", key, nics)

    def _handle(self, req, client_address):
        if req == "stream":
            return AckStreamResponse(), io.StringIO("ä text\n" * 1000)
        return req if isinstance(req, (str, list)) else super()._handle(req, client_address)


def test_a_service_requires_the_secret(started, capsys):
    service = started(Talker())
    assert all(port == service.get_port() for listed in service.addresses().values() for _, port in listed)
    client = BasicClient("talker", service.addresses(), KEY, verbose=0)
    assert client.addresses() == service.addresses()
    assert client._send(["x", 1]) == ["x", 1]
    answer = client._send(PingRequest())
    assert isinstance(answer, PingResponse) and answer.service_name == "talker"
    text = io.StringIO()
    assert isinstance(client._send("stream", text), AckStreamResponse)
    assert text.getvalue() == "ä text\n" * 1000
    for name, key in [("talker", secret.make_secret_key()), ("somebody else", KEY)]:
        with pytest.raises(NoValidAddressesFound, match=f"unable to connect to {name} on any"):
            BasicClient(name, service.addresses(), key, verbose=0, attempts=1)
    # A client without the secret gets no response and leaves no log entry.
    with socket.create_connection(("127.0.0.1", service.get_port()), timeout=DEADLINE_S) as stranger:
        stranger.sendall(bytes(32) + struct.pack("i", 3) + b"abc")
        assert stranger.recv(1) == b""
    assert capsys.readouterr().err == ""
    assert client._send("still there") == "still there"


def test_an_unsupported_request(started, capsys):
    client = BasicClient("talker", started(Talker()).addresses(), KEY, verbose=0, attempts=1)
    with pytest.raises(ConnectionError, match="did not answer a request of type int"):
        client._send(5)
    assert "talker does not support requests of type int" in capsys.readouterr().err


def test_a_service_on_some_interfaces(started):
    (loopback,) = network.get_local_intfs("lo")
    assert list(started(Talker(nics=[loopback])).addresses()) == [loopback]
    with pytest.raises(NoValidAddressesFound, match="matching user provided interface: none"):
        Talker(nics=["none"])
    client = BasicClient("talker", Talker(nics=["lo"]).addresses(), KEY, verbose=2, match_intf=True)
    assert list(client.addresses()) == ["lo"]


def test_modified_or_truncated_messages_are_rejected():
    file = io.BytesIO()
    Wire(KEY).write({"a": 1}, file)
    frame = file.getvalue()
    assert Wire(KEY).read(io.BytesIO(frame)) == {"a": 1}
    with pytest.raises(ValueError, match="digest did not match"):
        Wire(KEY).read(io.BytesIO(frame[:-1] + b"!"))
    for length in (0, 20, 34, len(frame) - 1):
        with pytest.raises(EOFError):
            Wire(KEY).read(io.BytesIO(frame[:length]))


def test_tasks_register_at_the_driver(started):
    driver = started(BasicDriverService(3, "driver", KEY, ["lo"]))
    client = BasicDriverClient("driver", driver.addresses(), KEY, verbose=0)
    addresses = {"lo": [("127.0.0.1", 5)], "eth9": [("192.0.2.1", 5)]}
    with pytest.raises(TimeoutException, match="waiting for tasks to start. Timeout after 0.05 seconds."):
        driver.wait_for_initial_registration(Timeout(0.05, NOT_IN_TIME))
    for index, host in [(2, "a"), (0, "a"), (1, "a"), (1, "b")]:
        client.register_task(index, addresses, host)
    driver.wait_for_initial_registration(Timeout(DEADLINE_S, NOT_IN_TIME))
    assert sorted(driver.task_indices()) == [0, 1, 2]
    assert driver.task_host_hash_indices() == {"a": [0, 2], "b": [1]}
    assert driver.task_index_host_hash(1) == "b"
    assert driver.all_task_addresses(0) == client.all_task_addresses(0) == addresses
    assert driver.task_addresses_for_driver(0) == {"lo": [("127.0.0.1", 5)]}
    waiting = in_background(driver.wait_for_task_to_task_address_updates, Timeout(DEADLINE_S, NOT_IN_TIME))
    for index in range(3):
        client.register_task_to_task_addresses(index, {"lo": []})
    waiting()
    assert driver.task_addresses_for_tasks(2) == {"lo": []}


def test_a_task_runs_a_command(started):
    service = started(BasicTaskService("task", 7, KEY, ["lo"], command_env={"A": "1", "B": "2", "PATH": "/bin:/usr/bin"}))
    client = BasicTaskClient("task", service.addresses(), KEY, verbose=0)
    assert not service.check_for_command_start(0.01)
    assert client.command_result() == (False, None)
    with pytest.raises(TimeoutException, match="waiting for command to run"):
        service.wait_for_command_start(Timeout(0.01, NOT_IN_TIME))
    out = io.StringIO()
    for _ in range(2):  # The second request is repeated.
        client.run_command("echo $A $B $C; printf end; exit 3", {"B": None, "C": "3"}, capture_stdout=True)
    copying, nothing = client.stream_command_output(out)
    assert nothing is None
    assert client.wait_for_command_exit_code(delay=0.1) == 3
    copying.join(DEADLINE_S)
    assert out.getvalue() == "[7]<stdout>:1 3\n[7]<stdout>:end"
    assert client.command_terminated() and client.command_result() == (True, 3)
    service.wait_for_command_termination()
    assert service.command_exit_code() == 3
    assert isinstance(client._send(StreamCommandStdErrRequest()), CommandOutputNotCaptured)
    client.register_code_result({"loss": 0.5})
    assert service.fn_result() == {"loss": 0.5}
    waiting = in_background(service.wait_for_initial_registration, Timeout(DEADLINE_S, NOT_IN_TIME))
    client.notify_initial_registration_complete()
    waiting()


def test_a_command_is_aborted(started):
    client = BasicTaskClient("task", started(BasicTaskService("task", 0, KEY, ["lo"])).addresses(), KEY, verbose=0)
    client.run_command("while true; do echo more; sleep 0.01; done", None, capture_stdout=True)
    out = io.StringIO()
    copying, _ = client.stream_command_output(out)
    deadline = time.monotonic() + DEADLINE_S
    while "more" not in out.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    client.abort_command()
    assert client.wait_for_command_exit_code(delay=0.1) == 128 + 15
    copying.join(DEADLINE_S)
    assert not copying.is_alive() and "[0]<stdout>:more\n" in out.getvalue()


class AnnouncingComputeService(ComputeService):
    """Sets an event when a client has started to wait for the shutdown: later connections are refused."""

    def __init__(self):
        self.shutdown_awaited = threading.Event()
        super().__init__(2, 2, KEY, nics=["lo"])

    def _handle(self, req, client_address):
        if isinstance(req, WaitForShutdownRequest):
            self.shutdown_awaited.set()
        return super()._handle(req, client_address)


def test_a_compute_service(started):
    service = started(AnnouncingComputeService())
    client = ComputeClient(service.addresses(), KEY)
    with pytest.raises(IndexError, match=r"within \[0..1\]: 2"):
        client.register_dispatcher(2, "grpc://a:1")
    with pytest.raises(TimeoutException, match="waiting for dispatcher 1 to register.*Timeout after 0.05 seconds"):
        client.wait_for_dispatcher_registration(1, 0.05)
    waiting = in_background(client.wait_for_dispatcher_registration, 1, DEADLINE_S)
    client.register_dispatcher(1, "grpc://a:1")
    client.register_dispatcher(1, "grpc://a:1")
    assert waiting() == "grpc://a:1"
    with pytest.raises(ValueError, match="already been registered under different address grpc://a:1: grpc://b:1"):
        client.register_dispatcher(1, "grpc://b:1")
    # Workers are counted per dispatcher.
    for worker in (0, 0, 1):
        client.register_worker_for_dispatcher(1, worker)
    client.wait_for_dispatcher_worker_registration(1, DEADLINE_S)
    with pytest.raises(TimeoutException, match="workers for dispatcher 0"):
        client.wait_for_dispatcher_worker_registration(0, 0.05)
    ended = in_background(client.wait_for_shutdown)
    assert service.shutdown_awaited.wait(DEADLINE_S)
    client.shutdown()
    assert ended() is None
    for wrong in [(0, 1), (1, 0)]:
        with pytest.raises(ValueError, match="must be larger than 0: 0"):
            ComputeService(*wrong, KEY)


@pytest.mark.parametrize("text", ["some text", b"some bytes"])
def test_a_pipe(text):
    pipe = Pipe()
    pipe.write(text)
    assert pipe.read(4) == text[:4]
    written = in_background(pipe.write, text[:2])
    assert pipe.read() == text[4:]
    written()
    pipe.flush()
    pipe.close()
    assert pipe.read(100) == text[:2] and pipe.read() is None
    with pytest.raises(RuntimeError, match="Pipe is closed"):
        pipe.write(text)


def test_names_that_other_packages_import():
    server, port = network.find_port(lambda address: socket.create_server(address))
    with server:
        assert server.getsockname()[1] == port
    assert common_network.find_port is network.find_port
    assert "127.0.0.1" in network.get_local_host_addresses()
    assert network.get_driver_ip(["lo"]) == "127.0.0.1"
    assert network.get_local_intfs("none") == set()
    assert config_parser.HOROVOD_FUSION_THRESHOLD == "HOROVOD_FUSION_THRESHOLD"
    assert (config_parser.NCCL_IB_DISABLE, config_parser.LOG_LEVELS[0]) == ("NCCL_IB_DISABLE", "TRACE")
    for knob in config_parser._KNOBS:
        assert getattr(config_parser, knob.variable) == knob.variable
    assert not hasattr(common_network, "no_such_name")
    assert AckResponse.__module__.startswith("horovod.runner.common.util")


def test_threads():
    with pytest.raises(ValueError, match="args must be a tuple"):
        threads.in_thread(print, "x")
    with pytest.raises(ValueError, match="Stop event must be given"):
        threads.on_event(threading.Event(), print, daemon=False)
    with pytest.raises(ValueError, match="Event must not be None"):
        threads.on_event(None, print)
    assert threads.execute_function_multithreaded(lambda x: x * 2, [(1,), (2,)], True, 1) == {0: 2, 1: 4}
    done = threading.Event()
    assert threads.execute_function_multithreaded(done.set, [()], block_until_all_done=False) is None
    assert done.wait(DEADLINE_S)
    threads.in_thread(lambda: 1 / 0, silent=True).join(DEADLINE_S)
