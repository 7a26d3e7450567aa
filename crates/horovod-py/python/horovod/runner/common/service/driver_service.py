"""The driver's service: tasks register with their addresses and hosts. For packages that start workers themselves
(upstream's Spark and Ray do) and need to know which share a host."""

import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from horovod.runner.common.util.rpc import AckResponse, Addresses, BasicClient, BasicService
from horovod.runner.common.util.timeout import Timeout


class RegisterTaskRequest:
    """Registers a task. `host_hash` is equal for tasks on the same host."""

    def __init__(self, index: int, task_addresses: Addresses, host_hash: str) -> None:
        self.index = index
        self.task_addresses = task_addresses
        self.host_hash = host_hash


class RegisterTaskToTaskAddressesRequest:
    """The addresses at which the other tasks reach this one."""

    def __init__(self, index: int, task_addresses: Addresses) -> None:
        self.index = index
        self.task_addresses = task_addresses


class AllTaskAddressesRequest:
    """Requests all addresses of a task."""

    def __init__(self, index: int) -> None:
        self.index = index


class AllTaskAddressesResponse:
    """Addresses by interface."""

    def __init__(self, all_task_addresses: Addresses) -> None:
        self.all_task_addresses = all_task_addresses


class BasicDriverService(BasicService):
    """Registry of the tasks 0 to num_proc - 1."""

    def __init__(self, num_proc: int, name: str, key: bytes, nics: Optional[Iterable[str]]) -> None:
        self._num_proc = num_proc
        self._all_task_addresses: Dict[int, Addresses] = {}
        self._task_addresses_for_driver: Dict[int, Addresses] = {}
        self._task_addresses_for_tasks: Dict[int, Addresses] = {}
        self._task_index_host_hash: Dict[int, str] = {}
        self._wait_cond = threading.Condition()
        # Last, since it serves requests from here on.
        super().__init__(name, key, nics)

    def _handle(self, req: Any, client_address: Tuple[str, int]) -> Any:
        if isinstance(req, RegisterTaskRequest):
            self._register_task(req, client_address[0])
            return AckResponse()
        if isinstance(req, RegisterTaskToTaskAddressesRequest):
            self.register_task_to_task_addresses(req.index, req.task_addresses)
            return AckResponse()
        if isinstance(req, AllTaskAddressesRequest):
            return AllTaskAddressesResponse(self.all_task_addresses(req.index))
        return super()._handle(req, client_address)

    def all_task_addresses(self, index: int) -> Addresses:
        with self._wait_cond:
            return self._all_task_addresses[index].copy()

    def task_addresses_for_driver(self, index: int) -> Addresses:
        """The address from which the task registered."""
        with self._wait_cond:
            return self._task_addresses_for_driver[index].copy()

    def task_addresses_for_tasks(self, index: int) -> Addresses:
        with self._wait_cond:
            return self._task_addresses_for_tasks[index].copy()

    def register_task_to_task_addresses(self, index: int, task_addresses: Addresses) -> None:
        self._check_index(index)
        with self._wait_cond:
            self._task_addresses_for_tasks[index] = task_addresses
            self._wait_cond.notify_all()

    def task_indices(self) -> List[int]:
        """Indices of the registered tasks."""
        with self._wait_cond:
            return list(self._task_index_host_hash)

    def task_host_hash_indices(self) -> Dict[str, List[int]]:
        """Task indices by host, ascending."""
        by_host: Dict[str, List[int]] = {}
        with self._wait_cond:
            for index, host_hash in sorted(self._task_index_host_hash.items()):
                by_host.setdefault(host_hash, []).append(index)
        return by_host

    def task_index_host_hash(self, index: int) -> str:
        self._check_index(index)
        with self._wait_cond:
            return self._task_index_host_hash[index]

    def wait_for_initial_registration(self, timeout: Timeout) -> None:
        """Waits until all tasks have registered; TimeoutException if that takes too long."""
        self._wait_for(lambda: len(self._all_task_addresses) >= self._num_proc, timeout, "tasks to start")

    def wait_for_task_to_task_address_updates(self, timeout: Timeout) -> None:
        self._wait_for(
            lambda: len(self._task_addresses_for_tasks) >= self._num_proc,
            timeout,
            "tasks to update task-to-task addresses",
        )

    def _register_task(self, req: RegisterTaskRequest, source: str) -> None:
        self._check_index(req.index)
        towards_driver = self._filter_by_ip(req.task_addresses, source)
        if not towards_driver:
            print(
                f"ERROR: Task {req.index} declared addresses {req.task_addresses}, but has connected from a different"
                f" address {source}. This is not supported. Is the server behind NAT?"
            )
        with self._wait_cond:
            self._all_task_addresses[req.index] = req.task_addresses
            self._task_addresses_for_driver[req.index] = towards_driver
            self._task_index_host_hash[req.index] = req.host_hash
            self._wait_cond.notify_all()

    @staticmethod
    def _filter_by_ip(addresses: Addresses, target_ip: str) -> Addresses:
        for interface, listed in addresses.items():
            for ip, port in listed:
                if ip == target_ip:
                    return {interface: [(ip, port)]}
        return {}

    def _check_index(self, index: int) -> None:
        assert 0 <= index < self._num_proc, f"there is no task {index}: they are 0 to {self._num_proc - 1}"

    def _wait_for(self, condition: Callable[[], bool], timeout: Timeout, activity: str) -> None:
        with self._wait_cond:
            while not self._wait_cond.wait_for(condition, timeout.remaining()):
                timeout.check_time_out_for(activity)


class BasicDriverClient(BasicClient):
    """Client of the driver service for tasks."""

    def __init__(
        self, name: str, driver_addresses: Addresses, key: bytes, verbose: int, match_intf: bool = False
    ) -> None:
        super().__init__(name, driver_addresses, key, verbose, match_intf=match_intf)

    def register_task(self, index: int, task_addresses: Addresses, host_hash: str) -> None:
        self._send(RegisterTaskRequest(index, task_addresses, host_hash))

    def all_task_addresses(self, index: int) -> Addresses:
        addresses: Addresses = self._send(AllTaskAddressesRequest(index)).all_task_addresses
        return addresses

    def register_task_to_task_addresses(self, index: int, task_addresses: Addresses) -> None:
        self._send(RegisterTaskToTaskAddressesRequest(index, task_addresses))
