"""Settings of an elastic job. Plain values only."""

from typing import Any, Optional, Tuple

from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.elastic.discovery import HostDiscovery

DEFAULT_ELASTIC_TIMEOUT_S = 600


class ElasticSettings(BaseSettings):
    """A job on the hosts that `discovery` finds, with `min_num_proc` to `max_num_proc` processes.

    elastic_timeout: seconds that processes wait for others. reset_limit: number of resets before the job fails.
    cooldown_range: shortest and longest exclusion of a host on which a process failed, in seconds; without it for good.
    excludes_hosts: whether a failure excludes its host; otherwise a new process is started there. has_other_hosts: whether
    processes on other hosts than this one may take part.
    """

    def __init__(
        self,
        discovery: HostDiscovery,
        min_num_proc: int,
        max_num_proc: Optional[int] = None,
        elastic_timeout: int = DEFAULT_ELASTIC_TIMEOUT_S,
        reset_limit: Optional[int] = None,
        cooldown_range: Optional[Tuple[int, int]] = None,
        excludes_hosts: bool = True,
        has_other_hosts: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(elastic=True, **kwargs)
        self.discovery = discovery
        self.min_num_proc = min_num_proc
        self.max_num_proc = max_num_proc
        self.elastic_timeout = elastic_timeout
        self.reset_limit = reset_limit
        self.cooldown_range = cooldown_range
        self.excludes_hosts = excludes_hosts
        self.has_other_hosts = has_other_hosts
