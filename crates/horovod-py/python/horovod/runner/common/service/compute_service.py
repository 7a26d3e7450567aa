"""Registry of the dispatchers and workers of a data service and the training tasks that read from it. One
ComputeService per job; dispatchers, workers and tasks are its clients. Knows no framework."""

import threading
from typing import Any, Callable, Iterable, List, Optional, Set, Tuple

from horovod.runner.common.util.rpc import AckResponse, Addresses, BasicClient, BasicService
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.util.threads import in_thread


class RegisterDispatcherRequest:
    """Registers a dispatcher with its address."""

    def __init__(self, dispatcher_id: int, dispatcher_address: str) -> None:
        self.dispatcher_id = dispatcher_id
        self.dispatcher_address = dispatcher_address


class WaitForDispatcherRegistrationRequest:
    """Waits for a dispatcher, at most the given number of seconds."""

    def __init__(self, dispatcher_id: int, timeout: float) -> None:
        self.dispatcher_id = dispatcher_id
        self.timeout = timeout


class WaitForDispatcherRegistrationResponse:
    """Address of the dispatcher."""

    def __init__(self, dispatcher_address: str) -> None:
        self.dispatcher_address = dispatcher_address


class RegisterDispatcherWorkerRequest:
    """Registers a worker of a dispatcher."""

    def __init__(self, dispatcher_id: int, worker_id: int) -> None:
        self.dispatcher_id = dispatcher_id
        self.worker_id = worker_id


class WaitForDispatcherWorkerRegistrationRequest:
    """Waits for all workers of a dispatcher, at most the given number of seconds."""

    def __init__(self, dispatcher_id: int, timeout: float) -> None:
        self.dispatcher_id = dispatcher_id
        self.timeout = timeout


class ShutdownRequest:
    """The compute service is no longer needed."""


class WaitForShutdownRequest:
    """Waits until the compute service is no longer needed."""


class ComputeService(BasicService):
    """Responds with an exception, which the client raises, if a request is invalid or times out."""

    NAME = "Compute service"

    def __init__(
        self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Optional[Iterable[str]] = None
    ) -> None:
        if dispatchers <= 0:
            raise ValueError(f"The number of dispatchers must be larger than 0: {dispatchers}")
        if workers_per_dispatcher <= 0:
            raise ValueError(f"The number of workers per dispatcher must be larger than 0: {workers_per_dispatcher}")
        self._workers_per_dispatcher = workers_per_dispatcher
        self._dispatcher_addresses: List[Optional[str]] = [None] * dispatchers
        # One set each: upstream shares one among all dispatchers and so counts the workers of others.
        self._dispatcher_worker_ids: List[Set[int]] = [set() for _ in range(dispatchers)]
        self._shutdown = False
        self._wait_cond = threading.Condition()
        # Last, since it serves requests from here on.
        super().__init__(ComputeService.NAME, key, nics)

    def shutdown(self) -> None:
        """Releases waiting clients, then ends the service."""
        with self._wait_cond:
            self._shutdown = True
            self._wait_cond.notify_all()
        super().shutdown()

    def _handle(self, req: Any, client_address: Tuple[str, int]) -> Any:
        try:
            if isinstance(req, RegisterDispatcherRequest):
                return self._register_dispatcher(self._checked(req.dispatcher_id), req.dispatcher_address)
            if isinstance(req, WaitForDispatcherRegistrationRequest):
                return self._wait_for_dispatcher(self._checked(req.dispatcher_id), req.timeout)
            if isinstance(req, RegisterDispatcherWorkerRequest):
                with self._wait_cond:
                    self._dispatcher_worker_ids[self._checked(req.dispatcher_id)].add(req.worker_id)
                    self._wait_cond.notify_all()
                return AckResponse()
            if isinstance(req, WaitForDispatcherWorkerRegistrationRequest):
                return self._wait_for_workers(self._checked(req.dispatcher_id), req.timeout)
        except (IndexError, ValueError, TimeoutException) as problem:
            return problem
        if isinstance(req, ShutdownRequest):
            # On another thread: shutdown waits for requests in progress, and this is one.
            in_thread(self.shutdown)
            return AckResponse()
        if isinstance(req, WaitForShutdownRequest):
            with self._wait_cond:
                self._wait_cond.wait_for(lambda: self._shutdown)
            return AckResponse()
        return super()._handle(req, client_address)

    def _register_dispatcher(self, dispatcher_id: int, address: str) -> AckResponse:
        with self._wait_cond:
            known = self._dispatcher_addresses[dispatcher_id]
            if known is not None and known != address:
                raise ValueError(
                    f"Dispatcher with id {dispatcher_id} has already been registered under different address {known}:"
                    f" {address}"
                )
            self._dispatcher_addresses[dispatcher_id] = address
            self._wait_cond.notify_all()
        return AckResponse()

    def _wait_for_dispatcher(self, dispatcher_id: int, seconds: float) -> WaitForDispatcherRegistrationResponse:
        addresses = self._dispatcher_addresses
        self._wait_for(
            lambda: addresses[dispatcher_id] is not None,
            Timeout(
                seconds,
                "Timed out waiting for {activity}. Try to find out what takes the dispatcher so long to register or"
                " increase timeout.",
            ),
            f"dispatcher {dispatcher_id} to register",
        )
        address = addresses[dispatcher_id]
        assert address is not None
        return WaitForDispatcherRegistrationResponse(address)

    def _wait_for_workers(self, dispatcher_id: int, seconds: float) -> AckResponse:
        self._wait_for(
            lambda: len(self._dispatcher_worker_ids[dispatcher_id]) >= self._workers_per_dispatcher,
            Timeout(
                seconds,
                "Timed out waiting for {activity}. Try to find out what takes the workers so long to register or"
                " increase timeout.",
            ),
            f"workers for dispatcher {dispatcher_id} to register",
        )
        return AckResponse()

    def _wait_for(self, condition: Callable[[], bool], timeout: Timeout, activity: str) -> None:
        with self._wait_cond:
            while not self._wait_cond.wait_for(condition, timeout.remaining()):
                timeout.check_time_out_for(activity)

    def _checked(self, dispatcher_id: int) -> int:
        last = len(self._dispatcher_addresses) - 1
        if not 0 <= dispatcher_id <= last:
            raise IndexError(f"Dispatcher id must be within [0..{last}]: {dispatcher_id}")
        return dispatcher_id


class ComputeClient(BasicClient):
    """Client of the compute service for dispatchers, workers and training tasks."""

    def __init__(self, compute_addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        super().__init__(ComputeService.NAME, compute_addresses, key, verbose)

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        self._send(RegisterDispatcherRequest(dispatcher_id, dispatcher_address))

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        address: str = self._send(WaitForDispatcherRegistrationRequest(dispatcher_id, timeout)).dispatcher_address
        return address

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        self._send(RegisterDispatcherWorkerRequest(dispatcher_id, worker_id))

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        self._send(WaitForDispatcherWorkerRegistrationRequest(dispatcher_id, timeout))

    def shutdown(self) -> None:
        self._send(ShutdownRequest())

    def wait_for_shutdown(self) -> None:
        self._send(WaitForShutdownRequest())

    def _send(self, req: Any, stream: Any = None) -> Any:
        answer = super()._send(req, stream)
        if isinstance(answer, Exception):
            raise answer
        return answer
