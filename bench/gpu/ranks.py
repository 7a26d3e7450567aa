"""Starts ranks of a script as processes on this machine, with the variables that torchrun sets, and collects what they measure: each
prints lines of JSON to standard output."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(script, size, arguments=(), variables=None, timeout=300):
    """Runs the script on `size` ranks. Returns the measurements of rank 0; a rank that fails ends the benchmark with its output."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        ranks = []
        for rank in range(size):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
            environment.update(LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            # NCCL refuses two ranks on one GPU of one host.
            environment.update(NCCL_HOSTID=f"rank-{rank}", OMP_NUM_THREADS="1", **(variables or {}))
            out = open(Path(directory) / f"{rank}.out", "w+")
            command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
            ranks.append((subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT), out))
        try:
            failed = [rank for rank, (process, _) in enumerate(ranks) if process.wait(timeout) != 0]
        finally:
            for process, _ in ranks:
                process.kill()
                process.wait()
        texts = []
        for _, out in ranks:
            out.seek(0)
            texts.append(out.read())
            out.close()
    if failed:
        raise SystemExit(f"{script} {' '.join(map(str, arguments))}: rank {failed[0]} failed:\n{texts[failed[0]]}")
    return [json.loads(line) for line in texts[0].splitlines() if line.startswith("{")]
