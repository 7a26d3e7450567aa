"""Runs a short command and captures its output. For queries of the system, not for workers."""

import subprocess
from typing import Optional, Tuple


def execute(command: str, timeout_s: Optional[float] = None) -> Optional[Tuple[str, int]]:
    """Output (stdout and stderr together) and exit status; None if it could not be run or timed out."""
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
