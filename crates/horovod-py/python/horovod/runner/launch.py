"""The command `horovodrun` (also `python -m horovod.runner.launch`), and what `horovod.run` shares with it: from
options to a running job. Starts processes on this host and, by ssh, on others. Never prints a traceback to the user,
and never needs MPI."""

import argparse
import os
import sys
from typing import Any, Callable, List, Optional, Sequence

from horovod.runner import options
from horovod.runner.common.util import config_parser, hosts, secret
from horovod.runner.common.util.settings import Settings
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.gloo_run import JobFailed, JobStopped, gloo_run
from horovod.runner.util import network, remote

DEFAULT_START_TIMEOUT_S = 30


def parse_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parses a command line, by default this process' own."""
    return options.parse_args(argv)


def run_commandline() -> None:
    """The command. Exits with the status of the first process that failed; 128 + s after signal s."""
    try:
        args = parse_args()
        if not args.command and not args.check_build:
            options.make_parser().error(options.COMMAND_IS_MISSING)
        _run(args)
    except JobStopped as stopped:
        sys.exit(stopped.exit_code)
    except JobFailed as failed:
        print(failed, file=sys.stderr)
        sys.exit(failed.exit_code)
    except (ValueError, OSError, RuntimeError, TimeoutException) as problem:
        print(f"horovodrun: {problem}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _run(args: argparse.Namespace) -> Optional[List[Any]]:
    """Runs a job from its options; returns results if they contain a function."""
    if args.check_build:
        # Imported here, since it checks for frameworks.
        from horovod.runner.check_build import report

        print(report(args.verbose))
        return None
    if args.run_func is None and not args.command:
        raise ValueError(options.COMMAND_IS_MISSING)
    if options.is_elastic(args):
        return _run_elastic(args)
    return _run_static(args)


def _run_static(args: argparse.Namespace) -> Optional[List[Any]]:
    """Runs a job on fixed hosts."""
    if args.hostfile:
        args.hosts = hosts.parse_host_files(args.hostfile)
    args.hosts = args.hosts or f"localhost:{args.num_proc}"
    names, _ = hosts.parse_hosts_and_slots(args.hosts)
    # Validated before anything starts.
    hosts.get_host_assignments(hosts.parse_hosts(args.hosts), args.num_proc)
    settings = Settings(
        hosts=args.hosts,
        num_proc=args.num_proc,
        verbose=2 if args.verbose else 0,
        ssh_port=args.ssh_port,
        ssh_identity_file=args.ssh_identity_file,
        tcp_flag=args.tcp_flag,
        key=secret.make_secret_key(),
        start_timeout=_start_timeout(args),
        output_filename=args.output_filename,
        run_func_mode=args.run_func is not None,
        nics=args.nics,
        prefix_output_with_timestamp=args.prefix_output_with_timestamp,
        disable_cache=args.disable_cache,
    )
    remote_hosts = network.filter_local_addresses(dict.fromkeys(names))
    if remote_hosts:
        remote.check_hosts_reachable(remote_hosts, settings)
    nics = network.job_interfaces(args.nics, remote_hosts)
    server_ip = network.get_driver_ip(args.nics, remote_hosts)
    env = config_parser.set_env_from_args({**os.environ, **args.env}, args)
    if args.run_func is None:
        run_controller(args.use_gloo, lambda: gloo_run(settings, nics, env, server_ip, args.command))
        return None
    # Imported here, since it needs cloudpickle, which the command does not.
    from horovod.runner.run_func import run_func

    return run_func(args.run_func, settings, nics, env, server_ip, args.executable)


def _run_elastic(args: argparse.Namespace) -> Optional[List[Any]]:
    """Runs a job whose number of processes may change."""
    # Imported here, since fixed jobs do not need it.
    from horovod.runner.elastic.launch import run_elastic

    return run_elastic(args, _start_timeout(args))


def _start_timeout(args: argparse.Namespace) -> Timeout:
    return Timeout(
        args.start_timeout or float(os.environ.get("HOROVOD_START_TIMEOUT", DEFAULT_START_TIMEOUT_S)),
        "Timed out after {timeout:g} seconds waiting for {activity}. Check that the hosts can be reached, or give"
        " more time with --start-timeout.",
    )


def run_controller(
    use_gloo: Optional[bool],
    gloo_run: Callable[[], None],
    use_mpi: Optional[bool] = False,
    mpi_run: Optional[Callable[[], None]] = None,
    use_jsrun: Optional[bool] = False,
    js_run: Optional[Callable[[], None]] = None,
    verbosity: Optional[int] = None,
) -> None:
    """Runs the job with the Gloo controller, requested or not. MPI and jsrun are not supported."""
    if use_mpi or use_jsrun:
        raise ValueError("This Horovod was built without MPI and jsrun: leave --mpi and --jsrun out, or use --gloo.")
    gloo_run()


def is_gloo_used(
    use_gloo: Optional[bool] = None, use_mpi: Optional[bool] = None, use_jsrun: Optional[bool] = None
) -> bool:
    """Whether the Gloo controller is used for these options."""
    return bool(use_gloo) or not (use_mpi or use_jsrun)


if __name__ == "__main__":
    run_commandline()
