"""What all test files share. Ranks that fail in a test leave the others waiting, so that a failure ends the rank: see spmd.py."""

import faulthandler
import os

import pytest

# Where everybody is, when a rank is killed at the deadline or hangs.
faulthandler.enable()

if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    # Nobody looks at a stack of a rank that waits; the deadline of spmd.py is later.
    faulthandler.dump_traceback_later(float(os.environ.get("SPMD_TIMEOUT", "300")) - 5, exit=False)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """With several ranks the first failure is the last test: the ranks would not meet again."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not config.option.maxfail:
        config.option.maxfail = 1
