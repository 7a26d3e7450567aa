"""Runs a job: the rendezvous server, a process for every slot, their output and termination. The first rank that fails,
or a signal, ends them all."""

import os
import queue
import shlex
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

from horovod.runner.common.util import hosts, safe_shell_exec, secret
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.common.util.settings import BaseSettings, Settings
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.util import network, remote
from horovod.runner.util.streams import Console
from horovod.runner.util.threads import in_thread

if TYPE_CHECKING:
    from horovod.runner.elastic.settings import ElasticSettings

# Runs the command of one slot to its end, with the given variables. Either event ends it, the second one immediately.
ExecCommand = Callable[[str, SlotInfo, Mapping[str, str], "StopEvents"], int]


FIRST_FAILURE = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be"
    " terminated. The first process to do so was:\nProcess name: {name}\nExit code: {exit_code}\n"
)


class JobFailed(RuntimeError):
    """A process ended with an error. The text is Horovod's."""

    def __init__(self, rank: int, exit_code: int) -> None:
        super().__init__(FIRST_FAILURE.format(name=rank, exit_code=exit_code))
        self.rank: Optional[int] = rank
        self.exit_code = exit_code


class JobStopped(KeyboardInterrupt):
    """A signal ended the job."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.exit_code = 128 + number


class StopEvents(NamedTuple):
    """Events that end a job from outside: gracefully, then forcibly."""

    stop: threading.Event
    kill: threading.Event


def gloo_run(
    settings: Settings, nics: Sequence[str], env: Mapping[str, str], server_ip: str, command: Sequence[str]
) -> None:
    """Runs a command on all slots of `settings.hosts`. JobFailed if a process fails, JobStopped on a signal."""
    n_slots = sum(host.slots for host in hosts.parse_hosts(settings.hosts or ""))
    launch_gloo(command, exec_command_fn(settings, n_slots), settings, nics, env, server_ip)


def gloo_run_elastic(
    settings: "ElasticSettings", env: Mapping[str, str], command: Sequence[str], nics: Sequence[str] = ()
) -> List[int]:
    """Runs a command in an elastic job. Returns the processes of the last generation, by rank. JobFailed if the job fails,
    JobStopped on a signal."""
    # Imported here, since fixed jobs do not need it.
    from horovod.runner.elastic.driver import ElasticJob

    exec_command = exec_command_fn(settings, settings.max_num_proc or settings.num_proc or 1, keeps_copies=True)
    job = ElasticJob(settings, env, command, exec_command, nics, listens_everywhere=settings.has_other_hosts)
    job.run()
    return job.last_generation.processes


def launch_gloo(
    command: Sequence[str],
    exec_command: ExecCommand,
    settings: Settings,
    nics: Sequence[str],
    env: Mapping[str, str],
    server_ip: str,
) -> None:
    """As `gloo_run`, with another function to start processes."""
    slots = hosts.get_host_assignments(hosts.parse_hosts(settings.hosts or ""), settings.num_proc or 1)
    # Other interfaces than the loopback are only needed for ranks on other hosts.
    rendezvous = RendezvousServer(settings.verbose, "127.0.0.1" if server_ip == "127.0.0.1" else "0.0.0.0")
    port = rendezvous.start()
    rendezvous.init(slots)
    key = settings.key or secret.make_secret_key()
    job_env = {**env, **create_run_env_vars(server_ip, nics, port), secret.JOB_SECRET: key.hex()}
    job_env.pop(secret.HOROVOD_SECRET_KEY, None)
    line = command_line(command)
    try:
        _run_slots(
            slots, lambda slot, stops: exec_command(line, slot, {**job_env, **create_slot_env_vars(slot)}, stops)
        )
    finally:
        rendezvous.stop()


def command_line(command: Sequence[str]) -> str:
    """The command for a shell that it replaces: messages and status of a shell would differ from the command's."""
    return " ".join(["exec", *(shlex.quote(word) for word in command)])


def create_slot_env_vars(slot_info: SlotInfo) -> Dict[str, str]:
    """Variables that define the rank of a process."""
    return {
        "HOROVOD_HOSTNAME": slot_info.hostname,
        "HOROVOD_RANK": str(slot_info.rank),
        "HOROVOD_SIZE": str(slot_info.size),
        "HOROVOD_LOCAL_RANK": str(slot_info.local_rank),
        "HOROVOD_LOCAL_SIZE": str(slot_info.local_size),
        "HOROVOD_CROSS_RANK": str(slot_info.cross_rank),
        "HOROVOD_CROSS_SIZE": str(slot_info.cross_size),
    }


def create_run_env_vars(server_ip: str, nics: Sequence[str], port: int, elastic: bool = False) -> Dict[str, str]:
    """Variables that all processes of a job share."""
    variables = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": server_ip,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "PYTHONUNBUFFERED": "1",
    }
    if nics:
        variables["HOROVOD_GLOO_IFACE"] = nics[0] if len(nics) == 1 else ",".join(nics)
        variables["NCCL_SOCKET_IFNAME"] = ",".join(nics)
    if elastic:
        variables["HOROVOD_ELASTIC"] = "1"
    return variables


def get_run_command(
    command: Union[str, Sequence[str]], server_ip: str, nics: Sequence[str], port: int, elastic: bool = False
) -> str:
    """The command with the job's variables before it, for launchers that pass one line to a shell."""
    words = [
        f"{name}={shlex.quote(value)}" for name, value in create_run_env_vars(server_ip, nics, port, elastic).items()
    ]
    return " ".join([*words, command if isinstance(command, str) else " ".join(shlex.quote(word) for word in command)])


def exec_command_fn(settings: BaseSettings, n_slots: int, keeps_copies: bool = False) -> ExecCommand:
    """Starts processes locally or by ssh, depending on the host of their slot. `keeps_copies`: copies of the output of earlier
    processes in the same slot are continued."""
    out, err = Console(sys.stdout), Console(sys.stderr)
    n_digits = len(str(n_slots - 1))
    # Resolved once, since name resolution may be slow.
    is_local = lru_cache(maxsize=None)(network.is_local)

    def exec_command(command: str, slot: SlotInfo, env: Mapping[str, str], stops: StopEvents) -> int:
        copies = Path(settings.output_filename) / f"rank.{slot.rank:0{n_digits}}" if settings.output_filename else None
        shell: Sequence[str] = ("/bin/sh",)
        script = None
        if not is_local(slot.hostname):
            shell = remote.get_ssh_command(
                slot.hostname, port=settings.ssh_port, identity_file=settings.ssh_identity_file
            )
            script = remote.get_remote_script(command, env, os.getcwd())
            # ssh itself only needs the user's own environment.
            env = {name: value for name, value in os.environ.items() if name != secret.HOROVOD_SECRET_KEY}
        if settings.verbose >= 2:
            err.write(f"Rank {slot.rank} on {slot.hostname}: {command}\n".encode())
        return safe_shell_exec.execute(
            command,
            env=env,
            stdout=out,
            stderr=err,
            index=slot.rank,
            events=[stops.stop],
            prefix_output_with_timestamp=settings.prefix_output_with_timestamp,
            kill_event=stops.kill,
            copies=copies,
            keeps_copies=keeps_copies,
            shell=shell,
            script=script,
        )

    return exec_command


def _run_slots(slots: List[SlotInfo], run_slot: Callable[[SlotInfo, StopEvents], int]) -> None:
    """Runs all slots in parallel to their ends. One queue receives all events, so that the first failure is known."""
    stops = StopEvents(threading.Event(), threading.Event())
    events: "queue.SimpleQueue[_Event]" = queue.SimpleQueue()

    def run_one(slot: SlotInfo) -> None:
        try:
            events.put(_Event(slot.rank, run_slot(slot, stops), None))
        except Exception as problem:  # Reported by the main loop.
            events.put(_Event(slot.rank, 1, f"Process {slot.rank} could not be started on {slot.hostname}: {problem}"))

    first: Optional[_Event] = None
    n_running = len(slots)
    # SimpleQueue.put may be called from a signal handler.
    with signals_to(lambda number: events.put(_Event(None, number))):
        for slot in slots:
            in_thread(run_one, args=(slot,), name=f"rank {slot.rank}")
        while n_running:
            try:
                # With a timeout: Python handles a signal that arrives just before the wait only when it wakes up.
                event = events.get(timeout=0.2)
            except queue.Empty:
                continue
            if event.rank is None:
                # A second signal kills processes that are slow to end.
                if stops.stop.is_set():
                    stops.kill.set()
                else:
                    print_line("Terminating all processes; send another signal to kill them.")
                    stops.stop.set()
                first = first or event
                continue
            n_running -= 1
            if event.exit_code != 0 and first is None:
                first = event
                print_line(event.problem or f"Process {event.rank} exit with status code {event.exit_code}.")
                stops.stop.set()
    if first is not None:
        raise JobStopped(first.exit_code) if first.rank is None else JobFailed(first.rank, first.exit_code)


def print_line(text: str) -> None:
    """Prints a line to stderr, starting on a new line even after unterminated output."""
    with suppress(OSError, ValueError):  # stderr may be closed; the job ends nevertheless.
        Console(sys.stderr).write(f"{text}\n".encode())


class _Event(NamedTuple):
    """A process has ended; without a rank, a signal with the number `exit_code` has arrived."""

    rank: Optional[int]
    exit_code: int
    problem: Optional[str] = None


@contextmanager
def signals_to(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Calls a function for SIGINT, SIGTERM and SIGHUP, unless they are ignored (`nohup`). Python allows that only on the
    main thread; elsewhere signals are left alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, lambda number, _: on_signal(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
