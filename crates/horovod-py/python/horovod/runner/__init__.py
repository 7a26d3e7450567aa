"""Starts jobs: `horovod.run` for a function, and the command `horovodrun` (see `launch`). Importing it is cheap;
dependencies are imported by the first call."""

import warnings
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Tuple

__all__ = ["run"]


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: int = 1,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Tuple[int, int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[int] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Optional[int] = None,
    use_gloo: Optional[bool] = None,
    use_mpi: Optional[bool] = None,
    mpi_args: Optional[str] = None,
    network_interface: Optional[str] = None,
    network_interfaces: Optional[Iterable[str]] = None,
    executable: Optional[str] = None,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
) -> List[Any]:
    """Calls `func(*args, **kwargs)` in `num_proc` processes that form one job, and returns the results by rank.

    hosts: `h1:2,h2:4`; or hostfile: a file with lines `<host> slots=<n>`. Without either, all processes run on this
    host. An exception in the function ends the job: RuntimeError with the rank and its traceback, caused by the
    exception. The function, its arguments and results are sent with cloudpickle.
    """
    import os
    import sys

    from horovod.runner import launch

    num_proc = _renamed("np", np, "num_proc", num_proc)
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    nics = _renamed("network_interface", network_interface, "network_interfaces", network_interfaces)
    if hosts is not None and hostfile is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if use_gloo and use_mpi:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    if use_mpi:
        raise ValueError("use_mpi is not supported: this Horovod does not use MPI; leave it out.")
    options = launch.parse_args(["-np", str(num_proc)])
    options.run_func = (func, tuple(args), dict(kwargs or {}))
    options.executable = executable
    options.min_num_proc, options.max_num_proc, options.slots = min_num_proc, max_num_proc, slots
    options.reset_limit, options.cooldown_range = reset_limit, cooldown_range
    options.host_discovery_script = host_discovery_script
    options.hosts, options.hostfile = hosts, hostfile
    options.start_timeout = start_timeout
    options.ssh_port, options.ssh_identity_file = ssh_port, ssh_identity_file
    options.disable_cache = bool(disable_cache)
    options.output_filename = output_filename
    options.verbose = bool(verbose)
    options.use_gloo, options.use_mpi = use_gloo, use_mpi
    options.nics = [nic.strip() for nic in nics.split(",")] if isinstance(nics, str) else list(nics or [])
    # The modules of the function must be importable in the ranks, too.
    options.env = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    results = launch._run(options)
    assert results is not None
    return results


def _renamed(old_name: str, old: Any, name: str, value: Any) -> Any:
    if old is None:
        return value
    warnings.warn(f"{old_name} is deprecated, use {name} instead", DeprecationWarning, stacklevel=3)
    return old
