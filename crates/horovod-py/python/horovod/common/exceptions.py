"""Exceptions that users catch. The engine raises HorovodInternalError; elastic training catches both."""


class HorovodInternalError(RuntimeError):
    """A collective operation failed: the ranks disagree, one has died, or the job was shut down."""


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts were added or removed, and the ranks have to reconnect. Not an error; work done so far is kept."""

    def __init__(self, skip_sync: bool = False) -> None:
        """skip_sync: the states of the ranks are still equal and need no synchronization."""
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Two parts of a job have different versions of a package."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"This job was made with {name} {version}, but {name} {installed_version} is installed: use one version everywhere."
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version
