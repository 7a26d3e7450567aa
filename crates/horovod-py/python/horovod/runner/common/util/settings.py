"""Settings of a launch, apart from the command. Created by `launch` and `horovod.run`. Plain values only."""

from typing import Any, Iterable, List, Optional

from horovod.runner.common.util.timeout import Timeout


class BaseSettings:
    """Settings of every kind of job."""

    def __init__(
        self,
        num_proc: Optional[int] = None,
        verbose: int = 0,
        ssh_port: Optional[int] = None,
        ssh_identity_file: Optional[str] = None,
        extra_mpi_args: Optional[str] = None,
        tcp_flag: Optional[bool] = None,
        binding_args: Optional[str] = None,
        key: Optional[bytes] = None,
        start_timeout: Optional[Timeout] = None,
        output_filename: Optional[str] = None,
        run_func_mode: Optional[bool] = None,
        nics: Optional[Iterable[str]] = None,
        elastic: bool = False,
        prefix_output_with_timestamp: bool = False,
        disable_cache: bool = False,
    ) -> None:
        self.num_proc = num_proc
        self.verbose = verbose
        self.ssh_port = ssh_port
        self.ssh_identity_file = ssh_identity_file
        # For callers that set them; without MPI they have no effect.
        self.extra_mpi_args = extra_mpi_args
        self.binding_args = binding_args
        self.tcp_flag = tcp_flag
        self.key = key
        self.start_timeout = start_timeout
        self.output_filename = output_filename
        self.run_func_mode = run_func_mode
        self.nics: List[str] = sorted(nics) if nics else []
        self.elastic = elastic
        self.prefix_output_with_timestamp = prefix_output_with_timestamp
        self.disable_cache = disable_cache


class Settings(BaseSettings):
    """A job on fixed hosts, `h1:2,h2:4`."""

    def __init__(self, hosts: Optional[str] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hosts = hosts
