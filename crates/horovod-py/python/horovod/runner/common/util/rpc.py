"""RPC between the processes of a job by TCP: upstream's services and clients, for packages that build on them. A frame
is the HMAC-SHA256 of a message under the job's secret, its length and the message, an object pickled with
cloudpickle. Data without a valid HMAC is never unpickled. One request per connection, which clients may repeat:
requests must be idempotent."""

import codecs
import pickle
import shutil
import socket
import socketserver
import struct
import threading
from typing import Any, Dict, Iterable, List, Optional, Tuple

from horovod.runner.common.util import network, secret
from horovod.runner.util.threads import in_thread

Addresses = Dict[str, List[Tuple[str, int]]]

# Read timeout within a frame.
_READ_TIMEOUT_S = 60.0
# Time that shutdown waits for requests in progress.
_DRAIN_TIMEOUT_S = 10.0


class NoValidAddressesFound(Exception):
    """A service has no address that is reachable from this host."""


class PingRequest:
    """Checks that a service is reachable."""


class PingResponse:
    """The name of the service, and the client's address."""

    def __init__(self, service_name: str, source_address: str) -> None:
        self.service_name = service_name
        self.source_address = source_address


class AckResponse:
    """The request was accepted; there is no result."""


class AckStreamResponse:
    """The request was accepted; UTF-8 text follows until the connection ends."""


class Wire:
    """Reads and writes frames."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def write(self, obj: Any, wfile: Any) -> None:
        # Imported here, since `horovodrun` with a command does not need it.
        import cloudpickle

        message = cloudpickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
        wfile.write(secret.compute_digest(self._key, message) + struct.pack("i", len(message)) + message)
        wfile.flush()

    def stream(self, stream: Any, wfile: Any) -> None:
        """Sends text until the stream ends."""
        shutil.copyfileobj(stream, codecs.getwriter("utf-8")(wfile))
        wfile.flush()

    def read(self, rfile: Any) -> Any:
        import cloudpickle

        digest = _read_all(rfile, secret.DIGEST_LENGTH)
        (length,) = struct.unpack("i", _read_all(rfile, 4))
        message = _read_all(rfile, max(length, 0))
        if not secret.check_digest(self._key, message, digest):
            raise ValueError("Security error: digest did not match the message: it was not written with the job's secret")
        return cloudpickle.loads(message)


class BasicService:
    """Serves requests on a port of its own, each on a thread, until `shutdown`. Subclasses extend `_handle`."""

    def __init__(self, service_name: str, key: bytes, nics: Optional[Iterable[str]]) -> None:
        self._service_name = service_name
        self._wire = Wire(key)
        self._nics = list(nics or ())
        self._n_handling = 0
        self._handling_changed = threading.Condition()
        self._server = _Server(("", 0), self._make_handler())
        self._port = int(self._server.socket.getsockname()[1])
        try:
            self._addresses = self._get_local_addresses()
        except NoValidAddressesFound:
            self._server.server_close()
            raise
        self._thread = in_thread(target=self._server.serve_forever, args=(0.05,))

    def addresses(self) -> Addresses:
        """Addresses of this service, by interface."""
        return self._addresses.copy()

    def get_port(self) -> int:
        return self._port

    def shutdown(self) -> None:
        """Accepts no more requests, and waits a limited time for those in progress."""
        self._server.shutdown()
        with self._handling_changed:
            self._handling_changed.wait_for(lambda: self._n_handling == 0, _DRAIN_TIMEOUT_S)
        self._server.server_close()
        self._thread.join()

    def _handle(self, req: Any, client_address: Tuple[str, int]) -> Any:
        """The response: an object, or a pair of an object and a text stream to send after it."""
        if isinstance(req, PingRequest):
            return PingResponse(self._service_name, client_address[0])
        raise NotImplementedError(f"{self._service_name} does not support requests of type {type(req).__name__}")

    def _make_handler(self) -> Any:
        service = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = _READ_TIMEOUT_S

            def handle(self) -> None:
                with service._handling_changed:
                    service._n_handling += 1
                try:
                    service._answer(self.rfile, self.wfile, self.client_address)
                finally:
                    with service._handling_changed:
                        service._n_handling -= 1
                        service._handling_changed.notify_all()

        return Handler

    def _answer(self, rfile: Any, wfile: Any, client_address: Tuple[str, int]) -> None:
        try:
            req = self._wire.read(rfile)
        except (EOFError, OSError, ValueError):
            return  # The client disconnected, or does not have the secret: no response.
        answer = self._handle(req, client_address)
        if not answer:
            raise RuntimeError(f"{self._service_name} returned no response to a request of type {type(req).__name__}")
        try:
            answer, stream = answer if isinstance(answer, tuple) else (answer, None)
            self._wire.write(answer, wfile)
            if stream is not None:
                self._wire.stream(stream, wfile)
        except OSError:
            pass  # The client disconnected.

    def _get_local_addresses(self) -> Addresses:
        found: Addresses = {}
        for interface, address in network.get_local_intfs():
            if not self._nics or interface in self._nics:
                found.setdefault(interface, []).append((address, self._port))
        if self._nics and not found:
            raise NoValidAddressesFound(
                f"No available network interface found matching user provided interface: {', '.join(self._nics)}"
            )
        return found


class BasicClient:
    """Client that uses the first reachable address of a service. Raises NoValidAddressesFound if none is."""

    def __init__(
        self,
        service_name: str,
        addresses: Addresses,
        key: bytes,
        verbose: int,
        match_intf: bool = False,
        probe_timeout: float = 20,
        attempts: int = 3,
    ) -> None:
        """match_intf: only addresses that are reached from the interface of the same name on this host."""
        self._service_name = service_name
        self._wire = Wire(key)
        self._verbose = verbose
        self._match_intf = match_intf
        self._probe_timeout = probe_timeout
        self._attempts = attempts
        self._addresses = self._probe(addresses)
        if not self._addresses:
            raise NoValidAddressesFound(
                f"Horovod was unable to connect to {service_name} on any of the following addresses: {addresses}. Check"
                " that the hosts reach each other, and that the ports are not blocked"
            )

    def addresses(self) -> Addresses:
        """The reachable addresses, by interface."""
        return self._addresses

    def _probe(self, addresses: Addresses) -> Addresses:
        candidates = [(interface, address) for interface, listed in addresses.items() for address in listed]
        answered = [False] * len(candidates)

        def probe(idx: int) -> None:
            answered[idx] = self._probe_one(*candidates[idx])

        for thread in [in_thread(probe, args=(idx,)) for idx in range(len(candidates))]:
            thread.join()
        found: Addresses = {}
        for (interface, address), is_valid in zip(candidates, answered):
            if is_valid:
                found.setdefault(interface, []).append(address)
        return found

    def _probe_one(self, interface: str, address: Tuple[str, int]) -> bool:
        for _ in range(self._attempts):
            try:
                answer = self._ask(address, PingRequest(), None, self._probe_timeout)
            except (OSError, EOFError, ValueError):
                continue
            if answer.service_name != self._service_name:
                return False
            own = dict(network.get_local_intfs()).get(interface)
            if self._match_intf and answer.source_address != own:
                if self._verbose >= 2:
                    reached = [name for name, ip in network.get_local_intfs() if ip == answer.source_address]
                    print(
                        f"WARNING: Expected to connect the host {address[0]}:{address[1]} using interface {interface},"
                        f" but reached it on interface {', '.join(reached)}."
                    )
                return False
            return True
        return False

    def _send(self, req: Any, stream: Any = None) -> Any:
        """The response. Text that follows an AckStreamResponse goes to the stream."""
        return self._send_one(next(iter(self._addresses.values()))[0], req, stream)

    def _send_one(self, addr: Tuple[str, int], req: Any, stream: Any = None) -> Any:
        for attempt in range(1, self._attempts + 1):
            try:
                return self._ask(addr, req, stream, None)
            except (OSError, EOFError) as problem:
                if attempt == self._attempts:
                    raise ConnectionError(
                        f"{self._service_name} at {addr[0]}:{addr[1]} did not answer a request of type"
                        f" {type(req).__name__}"
                    ) from problem

    def _ask(self, address: Tuple[str, int], req: Any, stream: Any, timeout: Optional[float]) -> Any:
        """timeout: for the response; without one the service may take any time, but has to be reachable."""
        with socket.create_connection(address, timeout=self._probe_timeout) as connection:
            connection.settimeout(timeout)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with connection.makefile("rb") as rfile, connection.makefile("wb") as wfile:
                self._wire.write(req, wfile)
                answer = self._wire.read(rfile)
                if stream is not None and isinstance(answer, AckStreamResponse):
                    _copy_text(rfile, stream)
                return answer


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


def _copy_text(rfile: Any, stream: Any) -> None:
    """Writes text to the stream as it arrives, until the connection ends."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while True:
        piece = rfile.read1(64 * 1024)
        stream.write(decoder.decode(piece, final=not piece))
        if not piece:
            return


def _read_all(rfile: Any, length: int) -> bytes:
    data: bytes = rfile.read(length)
    if len(data) < length:
        raise EOFError("the connection ended within a message")
    return data
