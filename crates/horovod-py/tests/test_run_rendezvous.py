"""The rendezvous server, with requests of upstream's ranks and of ours."""

import http.client
import socket
import threading
import time

import pytest

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http import http_client
from horovod.runner.http.http_server import KVStoreServer, RendezvousServer

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False


@pytest.fixture
def server():
    server = RendezvousServer()
    server.port = server.start()
    server.init(get_host_assignments(parse_hosts("a:2,b:1"), 3))
    yield server
    server.stop()


def _ask(server, method, path, body=b""):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, body)
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def test_values_are_bytes(server):
    value = bytes(range(256)) * 1000
    assert _ask(server, "GET", "/scope/key") == (404, b"")
    assert _ask(server, "PUT", "/scope/key", value) == (200, b"")
    assert _ask(server, "GET", "/scope/key") == (200, value)
    assert _ask(server, "PUT", "/scope/key", b"") == (200, b"")
    assert _ask(server, "GET", "/scope/key") == (200, b"")


@pytest.mark.parametrize("path", ["/", "/scope", "/scope/", "//key", "/scope/key?wait=soon"])
def test_a_path_has_two_parts(server, path):
    assert _ask(server, "GET", path)[0] == 400


def test_a_predefined_scope_is_cleared_by_its_last_rank(server):
    for scope, n_ranks in [("global", 3), ("local_a", 2), ("local_b", 1), ("cross_0", 2), ("cross_1", 1)]:
        _ask(server, "PUT", f"/{scope}/0", b"v")
        for rank in range(n_ranks):
            assert _ask(server, "GET", f"/{scope}/0") == (200, b"v"), f"others of {scope} may still be reading"
            assert _ask(server, "DELETE", f"/{scope}/{rank}")[0] == 200
            if n_ranks > 1:
                assert _ask(server, "DELETE", f"/{scope}/0")[0] == 200, "a client that lost the answer asks again"
        assert _ask(server, "GET", f"/{scope}/0") == (404, b"")


def test_in_other_scopes_only_the_key_is_deleted(server):
    _ask(server, "PUT", "/corro_0/0", b"a")
    _ask(server, "PUT", "/corro_0/1", b"b")
    assert _ask(server, "DELETE", "/corro_0/0")[0] == 200
    assert (_ask(server, "GET", "/corro_0/0")[0], _ask(server, "GET", "/corro_0/1")) == (404, (200, b"b"))


def test_a_waiting_get_returns_when_the_key_is_set(server):
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(_ask(server, "GET", "/s/k?wait=30")))
    waiter.start()
    _ask(server, "PUT", "/s/other", b"x")
    _ask(server, "PUT", "/s/k", b"v")
    waiter.join(10)
    assert answers == [(200, b"v")]
    begun = time.monotonic()
    assert _ask(server, "GET", "/s/never?wait=0.2") == (404, b"")
    assert time.monotonic() - begun >= 0.2


def test_keep_alive(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.connect()
    sock = connection.sock
    for method, path, status in [
        ("PUT", "/s/k", 200),
        ("GET", "/s/k", 200),
        ("GET", "/s/x", 404),
        ("DELETE", "/s/k", 200),
    ]:
        connection.request(method, path, b"v" if method == "PUT" else None)
        response = connection.getresponse()
        response.read()
        assert (response.status, response.version) == (status, 11)
    assert connection.sock is sock
    connection.close()


def test_an_incomplete_body(server):
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.settimeout(30)
        sock.sendall(b"PUT /s/k HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
        assert sock.recv(4096).startswith(b"HTTP/1.1 408 ")
    assert _ask(server, "GET", "/s/k")[0] == 404


def test_the_client(server):
    http_client.put_data_into_kvstore("127.0.0.1", server.port, "s", "k", b"v")
    assert http_client.read_data_from_kvstore("127.0.0.1", server.port, "s", "k") == b"v"
    http_client.delete_data_from_kvstore("127.0.0.1", server.port, "s", "k")
    with pytest.raises(RuntimeError, match=r"/s/k was not set on the launcher's server 127.0.0.1:[0-9]+ within 0.1 s"):
        http_client.read_data_from_kvstore("127.0.0.1", server.port, "s", "k", timeout_s=0.1)


def test_an_unreachable_server_is_named():
    server = KVStoreServer()
    port = server.start()
    server.stop()
    with pytest.raises(RuntimeError, match=f"failed 3 times at the launcher's server 127.0.0.1:{port}"):
        http_client.put_data_into_kvstore("127.0.0.1", port, "s", "k", b"v")
