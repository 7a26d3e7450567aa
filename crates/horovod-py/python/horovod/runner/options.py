"""The options of `horovodrun`: a table, and the parser made from it. Starts nothing and does not change the
environment.

Upstream options that need MPI, jsrun or LSF are known, too: they are accepted if ignoring them changes nothing, and
otherwise rejected with an alternative.
"""

import argparse
import sys
from typing import Any, Optional, Sequence, Set

from horovod import __version__
from horovod.runner.common.util import config_file, config_parser
from horovod.runner.common.util.env import LOG_LEVEL_STR

COMMAND_IS_MISSING = (
    "the command to run is missing: write it after the options, such as: horovodrun -np 2 python train.py"
)


def parse_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parses the command line, then the config file for options that were not given. Exits with Horovod's usage if they
    are invalid. The command may be missing: only starting a job needs it."""
    parser = make_parser()
    args = parser.parse_args(argv)
    args.nics = _nics(args)
    args.run_func, args.executable, args.env = None, None, {}
    if args.check_build:
        return args
    if args.config_file:
        config_parser.set_args_from_config(args, config_file.load(args.config_file), args.given)
    config_parser.validate_config_args(args)
    _reject_unsupported(parser, args)
    if args.num_proc is None and not is_elastic(args):
        parser.error("argument -np/--num-proc is required: the number of processes to start")
    if args.num_proc is not None and args.num_proc < 1:
        parser.error(f"argument -np/--num-proc: {args.num_proc} is not a number of processes; use 1 or more")
    return args


def is_elastic(args: argparse.Namespace) -> bool:
    return args.host_discovery_script is not None or args.min_num_proc is not None


class _Remember(argparse.Action):
    """Stores a value and records that it was given, since that takes precedence over a config file."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Optional[str] = None
    ) -> None:
        setattr(namespace, self.dest, values if self.nargs != 0 else self.const)
        given: Set[str] = namespace.given
        namespace.given = given | {self.dest}


def make_parser() -> argparse.ArgumentParser:
    # Long options may be abbreviated, as in upstream.
    parser = argparse.ArgumentParser(
        prog="horovodrun", description="Starts the processes of a distributed training job."
    )
    parser.set_defaults(given=set())
    parser.add_argument("-v", "--version", action="version", version=__version__)
    parser.add_argument("-cb", "--check-build", action="store_true", help="show supported frameworks and controllers, then exit")
    parser.add_argument("-np", "--num-proc", type=int, help="number of processes to start")
    parser.add_argument(
        "--disable-cache", action="store_true", help="check ssh again even if it worked within the last hour"
    )
    parser.add_argument("--start-timeout", type=int, metavar="S", help="timeout in seconds for checks and start (default 30)")
    parser.add_argument("--network-interfaces", metavar="A,B", help="network interfaces for the job, preferred first")
    parser.add_argument("--network-interface", action="append", metavar="A", help="one network interface; may be repeated")
    parser.add_argument("--output-filename", metavar="DIR", help="also write output to DIR/rank.<rank>/stdout and stderr")
    parser.add_argument("--verbose", action="store_true", help="print what is being done")
    parser.add_argument("--config-file", metavar="YAML", help="read options from a file; the command line takes precedence")
    parser.add_argument("-p", "--ssh-port", type=int, help="port of the ssh servers")
    parser.add_argument("-i", "--ssh-identity-file", metavar="FILE", help="private key for ssh")
    _add_tuning(parser.add_argument_group("tuning"))
    _add_autotune(parser.add_argument_group("autotune"))
    _add_elastic(parser.add_argument_group("elastic jobs: the number of processes may change"))
    _add_watching(parser.add_argument_group("timeline, stalls and logging"))
    _add_library(parser.add_argument_group("libraries"))
    _add_hosts(parser)
    controllers = parser.add_mutually_exclusive_group()
    controllers.add_argument(
        "--gloo", action=_Remember, nargs=0, const=True, dest="use_gloo", help="use the Gloo controller (the default and only one)"
    )
    controllers.add_argument(
        "--mpi", action=_Remember, nargs=0, const=True, dest="use_mpi", help="not supported"
    )
    controllers.add_argument(
        "--jsrun", action=_Remember, nargs=0, const=True, dest="use_jsrun", help="not supported"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command to run, with its arguments")
    return parser


def _add_tuning(group: Any) -> None:
    group.add_argument(
        "--fusion-threshold-mb", action=_Remember, type=int, metavar="MB", help="size limit of fused messages; 0 disables fusion"
    )
    group.add_argument(
        "--cycle-time-ms", action=_Remember, type=float, metavar="MS", help="time between negotiation cycles"
    )
    group.add_argument(
        "--cache-capacity", action=_Remember, type=int, metavar="N", help="entries of the response cache; 0 disables it"
    )
    _add_switch(group, "hierarchical-allreduce", "reduce within hosts first")
    _add_switch(group, "hierarchical-allgather", "gather within hosts first")
    _add_switch(group, "torus-allreduce", "reduce within and across hosts")


def _add_autotune(group: Any) -> None:
    _add_switch(group, "autotune", "tune parameters automatically during training")
    group.add_argument("--autotune-log-file", action=_Remember, metavar="FILE", help="write tried parameters to a CSV file")
    group.add_argument("--autotune-warmup-samples", action=_Remember, type=int, metavar="N")
    group.add_argument("--autotune-steps-per-sample", action=_Remember, type=int, metavar="N")
    group.add_argument("--autotune-bayes-opt-max-samples", action=_Remember, type=int, metavar="N")
    group.add_argument("--autotune-gaussian-process-noise", action=_Remember, type=float, metavar="0..1")


def _add_elastic(group: Any) -> None:
    group.add_argument(
        "--min-np", "--min-num-proc", type=int, dest="min_num_proc", metavar="N", help="fewest processes; fewer wait for others"
    )
    group.add_argument(
        "--max-np", "--max-num-proc", type=int, dest="max_num_proc", metavar="N", help="most processes (default: all slots)"
    )
    group.add_argument(
        "--slots-per-host", type=int, dest="slots", metavar="N", help="slots of hosts that the discovery script names without"
    )
    group.add_argument(
        "--elastic-timeout", action=_Remember, type=int, default=600, metavar="S",
        help="timeout in seconds for enough processes, at the start and after a change (default 600)",
    )
    group.add_argument("--reset-limit", type=int, metavar="N", help="number of changes after which the job fails")
    group.add_argument(
        "--blacklist-cooldown-range", type=int, nargs=2, dest="cooldown_range", metavar=("MIN", "MAX"),
        help="seconds after which a host is used again on which a process failed (default: never)",
    )


def _add_watching(group: Any) -> None:
    group.add_argument("--timeline-filename", action=_Remember, metavar="FILE", help="write a timeline to this file")
    _add_switch(group, "timeline-mark-cycles", "mark negotiation cycles in the timeline")
    stalls = group.add_mutually_exclusive_group()
    stalls.add_argument("--no-stall-check", action=_Remember, nargs=0, const=True, dest="no_stall_check")
    stalls.add_argument(
        "--stall-check", action=_Remember, nargs=0, const=False, dest="no_stall_check", help=argparse.SUPPRESS
    )
    group.add_argument("--stall-check-warning-time-seconds", action=_Remember, type=int, metavar="S")
    group.add_argument("--stall-check-shutdown-time-seconds", action=_Remember, type=int, metavar="S")
    group.add_argument("--log-level", action=_Remember, type=str.upper, choices=LOG_LEVEL_STR)
    times = group.add_mutually_exclusive_group()
    for option, shows_time, help_text in [
        ("--log-with-timestamp", True, None),
        ("--log-without-timestamp", False, None),
        ("--log-hide-timestamp", False, argparse.SUPPRESS),
        ("--no-log-hide-timestamp", True, argparse.SUPPRESS),
    ]:
        times.add_argument(option, action=_Remember, nargs=0, const=shows_time, dest="log_with_timestamp", help=help_text)
    group.add_argument(
        "-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true", help="prefix every line with the time"
    )


def _add_library(group: Any) -> None:
    _add_switch(group, "mpi-threads-disable", "ignored: MPI is not used")
    group.add_argument("--mpi-args", help="ignored: MPI is not used")
    group.add_argument("--tcp", action="store_true", dest="tcp_flag", help="keep NCCL off InfiniBand")
    group.add_argument("--binding-args", help="ignored: MPI is not used; see --thread-affinity")
    group.add_argument("--num-nccl-streams", action=_Remember, type=int, metavar="N")
    group.add_argument(
        "--thread-affinity", action=_Remember, metavar="CORES", help="one core per local rank, separated by commas"
    )
    group.add_argument(
        "--gloo-timeout-seconds", action=_Remember, type=int, metavar="S", help="timeout for an unresponsive rank"
    )


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-H", "--hosts", metavar="h1:2,h2:4", help="hosts and their slots; all slots are used")
    group.add_argument("-hostfile", "--hostfile", metavar="FILE", help="lines of the form: <host> slots=<n>")
    group.add_argument("--host-discovery-script", metavar="FILE", help="a command that prints a line <host>:<slots> for every host that is available now")


def _add_switch(group: Any, name: str, help_text: str) -> None:
    """Adds --name and --no-name; None if neither is given."""
    switch = group.add_mutually_exclusive_group()
    dest = name.replace("-", "_")
    switch.add_argument(f"--{name}", action=_Remember, nargs=0, const=True, dest=dest, help=help_text)
    switch.add_argument(f"--no-{name}", action=_Remember, nargs=0, const=False, dest=dest, help=argparse.SUPPRESS)


def _nics(args: argparse.Namespace) -> Sequence[str]:
    named = [*(args.network_interfaces or "").split(","), *(args.network_interface or [])]
    return [nic.strip() for nic in named if nic.strip()]


def _reject_unsupported(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    for dest, option in [("use_mpi", "--mpi"), ("use_jsrun", "--jsrun")]:
        if getattr(args, dest):
            parser.error(
                f"{option}: not supported, since this Horovod does not use MPI or jsrun; leave {option} out, or use --gloo"
            )
    for dest, option in [("mpi_args", "--mpi-args"), ("binding_args", "--binding-args")]:
        if getattr(args, dest):
            print(f"horovodrun: {option} has no effect: there is no MPI here", file=sys.stderr)
