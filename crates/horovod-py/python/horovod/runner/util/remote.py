"""Workers on other hosts, started by ssh. Environment variables never appear on a command line: they are sent through
ssh's standard input (see `common.util.worker_script`)."""

import subprocess
from typing import Dict, Iterable, List, Mapping, Optional

from horovod.runner.common.util import env as env_util
from horovod.runner.common.util import worker_script
from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.util.cache import Cache
from horovod.runner.util.threads import execute_function_multithreaded

SSH_ATTEMPTS = 5
SSH_CONNECT_TIMEOUT_S = 10
CACHE_STALENESS_MINUTES = 60


def get_ssh_command(
    host: str,
    command: str = "exec /bin/sh",
    port: Optional[int] = None,
    identity_file: Optional[str] = None,
    timeout_s: Optional[int] = None,
) -> List[str]:
    """The ssh command line for a host. Never prompts for a password. Accepts the key of a new host, but not a changed
    one, since the job's secret is sent there."""
    arguments = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new"]
    if timeout_s is not None:
        arguments += ["-o", f"ConnectTimeout={timeout_s}"]
    if port is not None:
        arguments += ["-p", str(port)]
    if identity_file is not None:
        arguments += ["-i", identity_file]
    return [*arguments, host, command]


def get_remote_script(command: str, env: Mapping[str, str], cwd: str) -> bytes:
    """The script for the remote shell: `cd <cwd>`, the variables, the command."""
    return worker_script.script(command, {name: env[name] for name in env if env_util.is_exportable(name)}, cwd)


def check_hosts_reachable(host_names: Iterable[str], settings: BaseSettings) -> None:
    """RuntimeError that names the hosts that are not reachable by ssh. Hosts that were reachable within the last hour
    are not checked again."""
    hosts = sorted(set(host_names))
    cache = Cache(
        staleness_minutes=CACHE_STALENESS_MINUTES, parameters=f"{settings.ssh_port} {settings.ssh_identity_file}"
    )
    if not settings.disable_cache:
        hosts = [host for host in hosts if not cache.get(f"ssh {host}")]
    if not hosts:
        return
    answers: Dict[int, Optional[str]] = (
        execute_function_multithreaded(_ssh_problem, [(host, settings) for host in hosts]) or {}
    )
    problems = []
    for position, host in enumerate(hosts):
        problem = answers[position]
        if problem is None:
            cache.put(f"ssh {host}", True)
        else:
            problems.append(f"{host}: {problem}")
    if problems:
        raise RuntimeError(
            "ssh does not reach these hosts without a password: "
            + "; ".join(problems)
            + ". Install a key there (ssh-copy-id), or name a key with --ssh-identity-file and a port with --ssh-port."
        )


def _ssh_problem(host: str, settings: BaseSettings) -> Optional[str]:
    """Why a host is not reachable; None if it is."""
    arguments = get_ssh_command(
        host, "exec true", settings.ssh_port, settings.ssh_identity_file, timeout_s=SSH_CONNECT_TIMEOUT_S
    )
    problem = "not tried"
    for _ in range(SSH_ATTEMPTS):
        if settings.start_timeout is not None:
            settings.start_timeout.check_time_out_for(f"ssh to {host} ({problem})")
        try:
            done = subprocess.run(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=SSH_CONNECT_TIMEOUT_S * 2,
            )
        except FileNotFoundError:
            return "there is no ssh command here; install an ssh client"
        except subprocess.TimeoutExpired:
            problem = "no answer in time"
            continue
        if done.returncode == 0:
            return None
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        problem = lines[-1] if lines else f"ssh ended with status {done.returncode}"
    return problem
