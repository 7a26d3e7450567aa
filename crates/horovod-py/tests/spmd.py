"""Runs the same pytest arguments on N ranks: `python spmd.py N ARGS...`. The output of rank 0 is shown as it arrives,
that of others if they fail.

Ends all ranks soon after one has failed, and at the deadline (SPMD_TIMEOUT seconds, default 300). Exit code: that of
the first failing rank. Opens no port: MASTER_PORT is only the name of the job.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from typing import IO, Optional

# Seconds that the other ranks have to report a rank's failure.
GRACE = 20.0


def main(argv: list[str]) -> int:
    if len(argv) < 3 or not argv[1].isdigit():
        print("usage: spmd.py N PYTEST_ARGS...", file=sys.stderr)
        return 2
    n_ranks, arguments = int(argv[1]), argv[2:]
    timeout = float(os.environ.get("SPMD_TIMEOUT", "300"))
    return run(n_ranks, [sys.executable, "-m", "pytest", *arguments], timeout)


def run(n_ranks: int, command: list[str], timeout: float) -> int:
    """The exit code of the first rank that failed, or 0."""
    outputs: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(n_ranks)]
    ranks = [start(rank, n_ranks, command, outputs[rank], JOB) for rank in range(n_ranks)]
    codes: list[Optional[int]] = [None] * n_ranks
    failed: list[int] = []
    changed = threading.Condition()

    def reap(rank: int) -> None:
        code = ranks[rank].wait()
        with changed:
            codes[rank] = code
            if code != 0:
                failed.append(rank)
            changed.notify_all()

    for rank in range(n_ranks):
        threading.Thread(target=reap, args=(rank,), daemon=True).start()
    late = False
    with changed:
        deadline = time.monotonic() + timeout
        while None in codes and time.monotonic() < deadline:
            if failed:
                deadline = min(deadline, time.monotonic() + GRACE)
            changed.wait(max(0.0, min(1.0, deadline - time.monotonic())))
            if failed and time.monotonic() >= deadline:
                break
        unfinished = [rank for rank in range(n_ranks) if codes[rank] is None]
        late = bool(unfinished)
    for rank in unfinished:
        ranks[rank].kill()
        ranks[rank].wait()
    for rank in range(n_ranks):
        code = codes[rank]
        if rank == 0 and n_ranks > 0:
            continue
        if code != 0:
            print(f"\n---- rank {rank} of {n_ranks}: {outcome(code)}", flush=True)
            outputs[rank].seek(0)
            sys.stdout.buffer.write(outputs[rank].read())
            sys.stdout.flush()
    if late:
        who = ", ".join(str(rank) for rank in unfinished)
        print(f"\nspmd: ended rank {who} after {'a failure elsewhere' if failed else f'{timeout:g} s'}", flush=True)
    if failed:
        return codes[failed[0]] if (codes[failed[0]] or 0) > 0 else 1
    return 1 if late else 0


def start(rank: int, n_ranks: int, command: list[str], output: IO[bytes], job: str) -> "subprocess.Popen[bytes]":
    """Starts one rank, with torchrun's variables."""
    place = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(n_ranks),
        "LOCAL_WORLD_SIZE": str(n_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": job,
        # Without it, rank 0 listens for ranks of another world for half a second in every init.
        "TORCHELASTIC_RUN_ID": job,
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD_RANK", "HOROVOD_SIZE"))}
    stdout = None if rank == 0 else output
    return subprocess.Popen(command, env={**kept, **place}, stdout=stdout, stderr=subprocess.STDOUT if stdout else None)


def outcome(code: Optional[int]) -> str:
    if code is None:
        return "did not end"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


JOB = uuid.uuid4().hex

if __name__ == "__main__":
    sys.exit(main(sys.argv))
