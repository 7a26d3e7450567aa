"""Configuration shared by all test files. A rank that fails leaves the others waiting, so a failure ends the rank: see
spmd.py."""

import faulthandler
import os

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
