"""Runs a short command to its end and takes its output. For questions to the system, not for workers."""

import subprocess
from typing import Optional, Tuple


def execute(command: str, timeout_s: Optional[float] = None) -> Optional[Tuple[str, int]]:
    """Output (stdout and stderr together) and exit status; None when it could not be run or did not end in time."""
    try:
        done = subprocess.run(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace"), done.returncode
