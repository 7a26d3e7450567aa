"""Runs an elastic job: host discovery, the rendezvous server, processes and their output. One queue receives all events; the
driver in Rust says what follows, and this module does it. Decides nothing about members and generations.

As in `gloo_run`, no process is left behind, whatever ends the job.
"""

import queue
import random
import threading
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from horovod import _core
from horovod.runner.common.util import hosts, secret
from horovod.runner.common.util.hosts import HostInfo, SlotInfo
from horovod.runner.elastic.rendezvous import ElasticRendezvousServer, Places, place_text
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.gloo_run import (
    FIRST_FAILURE,
    ExecCommand,
    JobFailed,
    JobStopped,
    StopEvents,
    command_line,
    create_run_env_vars,
    create_slot_env_vars,
    print_line,
    signals_to,
)
from horovod.runner.util import network
from horovod.runner.util.threads import in_thread

DISCOVER_HOSTS_FREQUENCY_SECS = 1.0

# Python handles a signal that arrives just before a wait only when it wakes up.
_MAX_WAIT_S = 0.2


class ElasticJobFailed(JobFailed):
    """The driver ended the job. The text says why, and which process failed first if one did."""

    def __init__(self, reason: str, first: "Optional[_Failure]") -> None:
        text = reason
        if first is not None:
            name = f"{first.slot.hostname}[{first.slot.local_rank}]"
            text += "\n" + FIRST_FAILURE.format(name=name, exit_code=first.exit_code)
        RuntimeError.__init__(self, text)
        self.rank = None
        self.process = first.process if first else None
        self.exit_code = first.exit_code if first else 1


class Generation(NamedTuple):
    """A generation that has begun."""

    number: int
    processes: List[int]
    """By rank."""


class _Process(NamedTuple):
    slot: SlotInfo
    stops: StopEvents


class _Failure(NamedTuple):
    process: int
    slot: SlotInfo
    exit_code: int


class _Hosts(NamedTuple):
    slots: Dict[str, int]


class _Waiting(NamedTuple):
    process: int
    after: int


class _Ended(NamedTuple):
    process: int
    exit_code: int
    problem: Optional[str]


class _Signal(NamedTuple):
    number: int


_Event = Union[_Hosts, _Waiting, _Ended, _Signal]


class ElasticJob:
    """One job, from the first discovery of hosts to the end of its last process."""

    def __init__(
        self,
        settings: ElasticSettings,
        env: Mapping[str, str],
        command: Sequence[str],
        exec_command: ExecCommand,
        nics: Sequence[str] = (),
        listens_everywhere: bool = True,
    ) -> None:
        self.last_generation = Generation(0, [])
        self._settings = settings
        self._command = command_line(command)
        self._exec_command = exec_command
        self._nics = list(nics)
        self._events: "queue.SimpleQueue[_Event]" = queue.SimpleQueue()
        self._places = Places(lambda process, after: self._events.put(_Waiting(process, after)))
        address = "0.0.0.0" if listens_everywhere else "127.0.0.1"
        self._server = ElasticRendezvousServer(self._places, settings.verbose, address)
        self._port = 0
        key = settings.key or secret.make_secret_key()
        self._env = {**env, secret.JOB_SECRET: key.hex()}
        self._env.pop(secret.HOROVOD_SECRET_KEY, None)
        self._host_slots: Dict[str, int] = {}
        self._is_local: Dict[str, bool] = {}
        self._processes: Dict[int, _Process] = {}
        self._kill_all = threading.Event()
        self._over = threading.Event()
        self._first_failure: Optional[_Failure] = None
        self._failed: Optional[str] = None
        self._signal: Optional[int] = None
        self._began = time.monotonic()
        self._driver = _core.ElasticDriver(
            min_np=settings.min_num_proc,
            max_np=settings.max_num_proc,
            elastic_timeout_s=float(settings.elastic_timeout),
            reset_limit=settings.reset_limit,
            cooldown_range_s=settings.cooldown_range,
            exclude_hosts=settings.excludes_hosts,
            seed=random.getrandbits(63),
        )

    def run(self) -> None:
        """Runs the job to its end. DiscoveryFailed if the first discovery fails, JobFailed if the job fails, JobStopped on a
        signal."""
        found = self._settings.discovery.find_available_hosts_and_slots()
        self._port = self._server.start()
        try:
            # SimpleQueue.put may be called from a signal handler.
            with signals_to(lambda number: self._events.put(_Signal(number))):
                self._on_event(_Hosts(found))
                in_thread(self._discover, args=(dict(found),), name="host discovery")
                while self._processes or not self._over.is_set():
                    self._step()
        finally:
            self._over.set()
            self._stop_all()
            self._server.stop()
        if self._signal is not None:
            raise JobStopped(self._signal)
        if self._failed is not None:
            raise ElasticJobFailed(self._failed, self._first_failure)

    def _discover(self, last: Dict[str, int]) -> None:
        """Looks for hosts until the job is over. What fails after the first time is reported once, and tried again."""
        problem = None
        while not self._over.wait(DISCOVER_HOSTS_FREQUENCY_SECS):
            try:
                found = dict(self._settings.discovery.find_available_hosts_and_slots())
            except Exception as failure:  # Whatever a user's discovery raises.
                if str(failure) != problem:
                    problem = str(failure)
                    print_line(f"{problem}. The hosts stay as they are.")
                continue
            problem = None
            if list(found.items()) != list(last.items()):
                last = found
                self._events.put(_Hosts(found))

    def _step(self) -> None:
        timer = None if self._over.is_set() else self._driver.next_timer()
        wait_s = _MAX_WAIT_S if timer is None else max(0.0, min(_MAX_WAIT_S, timer - self._now()))
        try:
            self._on_event(self._events.get(timeout=wait_s))
        except queue.Empty:
            if timer is not None and timer <= self._now():
                self._perform(self._driver.on_time(self._now()))

    def _on_event(self, event: _Event) -> None:
        if isinstance(event, _Hosts):
            # Names keep their place when their host is gone for a while.
            for name, slots in event.slots.items():
                self._host_slots[name] = max(slots, self._host_slots.get(name, 0))
            self._perform(self._driver.on_hosts(self._now(), list(event.slots.items())))
        elif isinstance(event, _Waiting):
            self._perform(self._driver.on_waiting(self._now(), event.process, event.after))
        elif isinstance(event, _Ended):
            self._on_ended(event)
        else:
            self._on_signal(event.number)

    def _on_ended(self, event: _Ended) -> None:
        ended = self._processes.pop(event.process)
        if event.exit_code != 0 and not ended.stops.stop.is_set():
            print_line(event.problem or f"Process {ended.slot.rank} exit with status code {event.exit_code}.")
            self._first_failure = self._first_failure or _Failure(event.process, ended.slot, event.exit_code)
        if event.process in self.last_generation.processes:
            rank = self.last_generation.processes.index(event.process)
            how = f"rank {rank} on host {ended.slot.hostname} ended with exit code {event.exit_code}"
            self._server.report_failure(self.last_generation.number, rank, how)
        self._perform(self._driver.on_exit(self._now(), event.process, event.exit_code == 0))

    def _on_signal(self, number: int) -> None:
        # A second signal kills processes that are slow to end.
        if self._signal is not None:
            self._kill_all.set()
            return
        self._signal = number
        print_line("Terminating all processes; send another signal to kill them.")
        self._finish(f"the launcher was ended by signal {number}")

    def _perform(self, actions: List[Tuple[Any, ...]]) -> None:
        for kind, *details in actions:
            if not self._over.is_set():
                getattr(self, f"_perform_{kind}")(*details)

    def _perform_start(self, process: int, host: str, slot: int) -> None:
        info = self._slot_info(host, slot)
        stops = StopEvents(threading.Event(), self._kill_all)
        self._processes[process] = _Process(info, stops)
        env = {
            **self._env,
            **create_run_env_vars(self._server_address([host]), self._nics, self._port, elastic=True),
            **create_slot_env_vars(info),
            "CORRO_ELASTIC_PROCESS": str(process),
        }

        def run_one() -> None:
            try:
                self._events.put(_Ended(process, self._exec_command(self._command, info, env, stops), None))
            except Exception as problem:  # Reported by the main loop.
                text = f"Process {info.rank} could not be started on {host}: {problem}"
                self._events.put(_Ended(process, 1, text))

        in_thread(run_one, name=f"process {process}")

    def _perform_begin(self, generation: int, members: List[Tuple[int, str, int, int, int, int, int]]) -> None:
        server = None
        if not all(self._is_here(host) for _, host, *_ in members):
            server = f"{self._server_address([host for _, host, *_ in members])}:{self._port}"
        texts = {}
        for process, _, rank, local_rank, local_size, cross_rank, cross_size in members:
            numbers = (rank, len(members), local_rank, local_size, cross_rank, cross_size)
            texts[process] = place_text(generation, numbers, server)
        self.last_generation = Generation(generation, [process for process, *_ in members])
        self._server.begin(generation)
        self._places.begin(generation, texts)

    def _perform_dismiss(self, process: int) -> None:
        self._places.dismiss(process)

    def _perform_kill(self, process: int) -> None:
        if process in self._processes:
            self._processes[process].stops.stop.set()

    def _perform_notify(self, generation: int, change: int) -> None:
        self._places.notify(generation, change)

    def _perform_report(self, text: str) -> None:
        # That all have begun is no news.
        if self.last_generation.number or self._settings.verbose or not text.startswith("generation 1:"):
            print_line(f"horovodrun: {text}")

    def _perform_finish(self, reason: Optional[str]) -> None:
        self._failed = reason
        self._finish(reason or "it has succeeded")

    def _finish(self, reason: str) -> None:
        self._over.set()
        self._places.finish(reason)
        self._stop_all()

    def _stop_all(self) -> None:
        for process in self._processes.values():
            process.stops.stop.set()

    def _slot_info(self, host: str, slot: int) -> SlotInfo:
        """The slot's rank if all known slots were used, which is also the number in the prefix of its output."""
        known = [HostInfo(name, slots) for name, slots in self._host_slots.items()]
        infos = hosts.get_host_assignments(known, 0)
        info = next(info for info in infos if (info.hostname, info.local_rank) == (host, slot))
        assert info.size is not None, "every assignment has a size"
        info.size = max(min(info.size, self._settings.max_num_proc or info.size), info.rank + 1)
        return info

    def _is_here(self, host: str) -> bool:
        if host not in self._is_local:
            self._is_local[host] = network.is_local(host)
        return self._is_local[host]

    def _server_address(self, host_names: Sequence[str]) -> str:
        """An address at which processes on these hosts reach this one."""
        return network.get_driver_ip(self._nics, [name for name in host_names if not self._is_here(name)])

    def _now(self) -> float:
        return time.monotonic() - self._began
