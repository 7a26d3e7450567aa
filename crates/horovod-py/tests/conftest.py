"""Configuration shared by all test files. A rank that fails leaves the others waiting, so a failure ends the rank: see
spmd.py."""

import faulthandler
import os
from collections.abc import Iterator

import pytest

# Print stack traces when a rank is killed at the deadline or hangs.
faulthandler.enable()

if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    # Dump the stacks of a hanging rank before the deadline of spmd.py.
    faulthandler.dump_traceback_later(float(os.environ.get("SPMD_TIMEOUT", "300")) - 5, exit=False)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """With several ranks the first failure ends the run: the ranks would be out of step."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not config.option.maxfail:
        config.option.maxfail = 1


@pytest.fixture(scope="module", autouse=True)
def initialized(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module with INIT, the arguments of init, gets a world of its own: files share processes, and others may have shut down."""
    arguments = getattr(request.module, "INIT", None)
    if arguments is None:
        yield
        return
    hvd = request.module.hvd
    hvd.shutdown()
    hvd.init(**arguments)
    yield
    hvd.shutdown()
