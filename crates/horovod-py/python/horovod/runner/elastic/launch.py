"""From options to an elastic job. `launch` calls it for `horovodrun` and `horovod.run`; starts nothing by itself."""

import argparse
import os
from typing import Any, Dict, List, Optional, Tuple

from horovod.runner.common.util import config_parser, hosts, secret
from horovod.runner.common.util.timeout import Timeout
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.gloo_run import gloo_run_elastic
from horovod.runner.util import network, remote


def run_elastic(args: argparse.Namespace, start_timeout: Timeout) -> Optional[List[Any]]:
    """Runs an elastic job; returns results if the options contain a function."""
    min_num_proc, num_proc, max_num_proc = _sizes(args)
    discovery, fixed = _discovery(args, min_num_proc, max_num_proc or num_proc)
    remote_hosts = network.filter_local_addresses(fixed or {})
    settings = ElasticSettings(
        discovery,
        min_num_proc,
        max_num_proc,
        elastic_timeout=args.elastic_timeout,
        reset_limit=_at_least("--reset-limit", args.reset_limit, 0),
        cooldown_range=_cooldown_range(args.cooldown_range),
        # Without a script or a cooldown a failed process is replaced where it ran: there may be no other host.
        excludes_hosts=fixed is None or args.cooldown_range is not None,
        has_other_hosts=fixed is None or bool(remote_hosts),
        num_proc=num_proc,
        verbose=2 if args.verbose else 0,
        ssh_port=args.ssh_port,
        ssh_identity_file=args.ssh_identity_file,
        tcp_flag=args.tcp_flag,
        key=secret.make_secret_key(),
        start_timeout=start_timeout,
        output_filename=args.output_filename,
        run_func_mode=args.run_func is not None,
        nics=args.nics,
        prefix_output_with_timestamp=args.prefix_output_with_timestamp,
        disable_cache=args.disable_cache,
    )
    if remote_hosts:
        remote.check_hosts_reachable(remote_hosts, settings)
    nics = args.nics if settings.has_other_hosts else network.job_interfaces(args.nics, [])
    env = config_parser.set_env_from_args({**os.environ, **args.env}, args)
    if args.run_func is None:
        gloo_run_elastic(settings, env, args.command, nics)
        return None
    # Imported here, since it needs cloudpickle, which the command does not.
    from horovod.runner.run_func import run_func_elastic

    return run_func_elastic(args.run_func, settings, nics, env, args.executable)


def _sizes(args: argparse.Namespace) -> Tuple[int, int, Optional[int]]:
    """The fewest processes, the usual number, and the most."""
    smallest = args.min_num_proc if args.min_num_proc is not None else args.num_proc
    if smallest is None:
        raise ValueError("The smallest number of processes is missing: give --min-np, or -np.")
    _at_least("--min-np", smallest, 1)
    largest = args.max_num_proc
    if largest is not None and largest < smallest:
        raise ValueError(f"--max-np {largest} is less than --min-np {smallest}: no number of processes is allowed.")
    usual = max(smallest, args.num_proc or smallest)
    return smallest, usual if largest is None else min(usual, largest), largest


def _discovery(args: argparse.Namespace, n_needed: int, n_slots: int) -> Tuple[HostDiscovery, Optional[Dict[str, int]]]:
    """How hosts are found, and the hosts if they never change; by default this one, with `n_slots`."""
    if args.host_discovery_script:
        return HostDiscoveryScript(args.host_discovery_script, _at_least("--slots-per-host", args.slots, 1)), None
    listed = args.hosts or (hosts.parse_host_files(args.hostfile) if args.hostfile else f"localhost:{n_slots}")
    _, slots = hosts.parse_hosts_and_slots(listed)
    # As for fixed jobs: an error if there never are enough slots.
    hosts.get_host_assignments(hosts.parse_hosts(listed), n_needed)
    return FixedHosts(slots), slots


def _cooldown_range(given: Any) -> Optional[Tuple[int, int]]:
    if given is None:
        return None
    lower, upper = given
    if not 1 <= lower <= upper <= 3600:
        raise ValueError(
            f"--blacklist-cooldown-range {lower} {upper}: give the shortest and the longest exclusion of a host, from 1 to"
            " 3600 seconds."
        )
    return lower, upper


def _at_least(option: str, value: Optional[int], least: int) -> Optional[int]:
    if value is not None and value < least:
        raise ValueError(f"{option} {value}: give a number of at least {least}.")
    return value
