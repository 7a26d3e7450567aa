"""An elastic job under random changes: hosts come and go, processes are killed. Afterwards nothing was lost but steps after the last
commit, the limits held, and nothing is left. ELASTIC_SEED repeats a failed run, ELASTIC_CHANGES sets its length. Needs no
framework. Not run by spmd.py: the test starts processes itself."""

import os
import random
from pathlib import Path

from elastic_job import Job, await_that, check_history

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False

# The state of the training lives on the first one, which stays. Slots of the others change.
ANCHOR, OTHERS = "localhost", ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
MIN_NP, MAX_NP = 1, 5


def _hosts(rng):
    """Random hosts in random order, with the anchor among them."""
    listed = [f"{ANCHOR}:1"] + [f"{name}:{rng.randint(1, 3)}" for name in OTHERS if rng.random() < 0.6]
    rng.shuffle(listed)
    return ",".join(listed)


def _kill_one(job, rng):
    """Kills a process of the current generation, but for the oldest, which is on the anchor."""
    steps = job.steps()
    current = {step["process"] for step in steps if step["generation"] == steps[-1]["generation"]}
    candidates = sorted(process for process in current if job.pid(process) != job.anchor)
    if not candidates:
        return "nobody to kill"
    process = rng.choice(candidates)
    try:
        job.kill(process)
    except ProcessLookupError:
        pass  # Dismissed meanwhile.
    return f"process {process} killed"


def test_random_changes(tmp_path):
    seed = int(os.environ.get("ELASTIC_SEED") or random.SystemRandom().randrange(10**6))
    n_changes = int(os.environ.get("ELASTIC_CHANGES", "20"))
    rng = random.Random(seed)
    shared_memory = set(os.listdir("/dev/shm"))
    limits = ["--min-np", str(MIN_NP), "--max-np", str(MAX_NP), "--blacklist-cooldown-range", "1", "1"]
    job = Job(tmp_path, *limits, hosts=f"{ANCHOR}:1")
    done = []
    try:
        job.await_size(1)
        job.anchor = job.steps()[0]["pid"]
        for _ in range(n_changes):
            if rng.random() < 0.6:
                hosts = _hosts(rng)
                job.set_hosts(hosts)
                done.append(f"hosts {hosts}")
            else:
                done.append(_kill_one(job, rng))
            # The training goes on, for longer or shorter, before the next change.
            job.await_steps(len(job.steps()) + rng.choice([1, 5, 20, 60]))
        assert job.stop() == 0, job.output()
        steps = job.steps()
        check_history(steps)
        assert all(MIN_NP <= step["size"] <= MAX_NP for step in steps)
        assert {step["rank"] for step in steps if step["pid"] == job.anchor} <= set(range(MAX_NP))
        assert "No hosts from previous set" not in job.output()
    except BaseException:
        print(f"ELASTIC_SEED={seed}", *done, job.output(), sep="\n")
        raise
    finally:
        job.close()
    await_that(lambda: not any(Path(f"/proc/{step['pid']}").exists() for step in steps), "all processes have ended")
    assert set(os.listdir("/dev/shm")) <= shared_memory


