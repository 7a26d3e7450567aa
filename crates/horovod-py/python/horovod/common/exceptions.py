"""What users catch. Everybody enters: the engine raises HorovodInternalError from here, elastic training catches both."""


class HorovodInternalError(RuntimeError):
    """The ranks together could not do what was asked: they disagree, one is gone, or the job has been shut down."""


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts were added or removed: the ranks have to meet anew. Not an error; work done so far is kept."""

    def __init__(self, skip_sync: bool = False) -> None:
        """skip_sync: the states of the ranks are still alike, so that they need not be synchronized."""
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Two parts of a job run different versions of a package."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"This job was made with {name} {version}, but {name} {installed_version} is installed: use one version everywhere."
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version
