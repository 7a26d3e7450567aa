"""Elastic jobs for tests: `Job` starts horovodrun with a training that runs until the test says stop, and shows what its
processes did. Also the training itself: `python elastic_job.py` in a process of the job."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Importing a framework in several processes at once takes long on a small machine.
DEADLINE_S = 120

# As horovodrun, but hosts are looked for more often than every second.
HOROVODRUN = [
    sys.executable,
    "-c",
    "from horovod.runner.elastic import driver; driver.DISCOVER_HOSTS_FREQUENCY_SECS = 0.05;"
    " from horovod.runner import launch; launch.run_commandline()",
]


def await_that(condition, what, of=None):
    """Waits for a condition. `of`: a job that must not end before."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert of is None or of.launcher.poll() is None, f"the job ended before: {what}\n{of.output()}"
        assert time.monotonic() < deadline, f"waited in vain: {what}\n{of.output() if of else ''}"
        time.sleep(0.01)


class Job:
    """A running job in a folder. The file `hosts` is what its discovery script prints."""

    def __init__(self, folder, *options, hosts=None, script=__file__, **variables):
        self.folder = Path(folder)
        discovery = []
        if hosts is not None:
            self.set_hosts(hosts)
            discovery = ["--host-discovery-script", "cat hosts"]
        with open(self.folder / "output", "wb") as output:
            self.launcher = subprocess.Popen(
                [*HOROVODRUN, *options, *discovery, sys.executable, str(script)],
                cwd=folder,
                env={**os.environ, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def set_hosts(self, hosts):
        # Never half a file.
        (self.folder / "new").write_text("".join(f"{host}\n" for host in hosts.split(",") if host))
        (self.folder / "new").rename(self.folder / "hosts")

    def steps(self):
        """What was done so far: one entry for every step of every process."""
        path = self.folder / "steps"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def await_size(self, size, after=0):
        """Waits for a step of a generation later than `after` with this size. Returns its generation and its processes by
        rank."""
        found = []

        def has_arrived():
            steps = [step for step in self.steps() if step["size"] == size and step["generation"] > after]
            by_rank = {step["rank"]: step["process"] for step in steps if step["generation"] == steps[-1]["generation"]}
            found[:] = [(steps[-1]["generation"], [by_rank[rank] for rank in sorted(by_rank)])] if steps else []
            return len(by_rank) == size

        await_that(has_arrived, f"{size} ranks after generation {after}", self)
        return found[0]

    def await_steps(self, n_steps):
        await_that(lambda: len(self.steps()) >= n_steps, "the training goes on", self)

    def kill(self, process, number=signal.SIGKILL):
        os.kill(self.pid(process), number)

    def pid(self, process):
        return next(step["pid"] for step in self.steps() if step["process"] == process)

    def stop(self):
        """Tells the training to end, and waits for the launcher. Returns its exit status."""
        (self.folder / "stop").touch()
        return self.wait()

    def wait(self):
        try:
            return self.launcher.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end\n{self.output()}") from None

    def output(self):
        return (self.folder / "output").read_text(errors="replace")

    def close(self):
        self.launcher.terminate()
        try:
            self.launcher.wait(20)
        finally:
            self.launcher.kill()
            self.launcher.wait()


def check_history(steps):
    """No step of a batch was lost but those after the last commit: in every generation the batches of each process are
    consecutive, all processes begin with the same, and that is at most one behind the end of the generation before."""
    generations = sorted({step["generation"] for step in steps})
    last = 0
    for generation in generations:
        batches = {}
        for step in steps:
            if step["generation"] == generation:
                batches.setdefault(step["process"], []).append(step["batch"])
        begins = {done[0] for done in batches.values()}
        assert len(begins) == 1, f"generation {generation} begins with batches {begins}"
        for done in batches.values():
            assert done == list(range(done[0], done[0] + len(done)))
        assert last <= begins.pop() <= last + 1, f"generation {generation} continues after batch {last}"
        last = max(done[-1] for done in batches.values())


def total(value, name="total"):
    """Sum over all ranks."""
    from horovod import _core

    number = ctypes.c_double(value)
    address = ctypes.addressof(number)
    _core.synchronize(_core.submit(_core.ALLREDUCE, "allreduce", name, [(address, address, 8, (1,))], keep=number))
    return number.value


def note(**step):
    """One line, written at once: processes share the file."""
    own = os.open("steps", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(own, json.dumps(step).encode() + b"\n")
    os.close(own)


def main():
    from horovod import _core, elastic
    from horovod.common import basics

    process = int(os.environ["CORRO_ELASTIC_PROCESS"])
    basics.init()
    state = elastic.ObjectState(batch=0)
    pause_s = float(os.environ.get("PAUSE_S", "0.01"))

    @elastic.run
    def train(state):
        while True:
            # Rank 0 decides for all, in the operation that all take part in.
            stops = total(float(basics.rank() == 0 and os.path.exists("stop")))
            if stops:
                return
            state.batch += 1
            place = {"generation": _core.generation(), "rank": basics.rank(), "size": basics.size()}
            assert place["size"] == int(os.environ["HOROVOD_SIZE"]) and place["rank"] == int(os.environ["HOROVOD_RANK"])
            note(process=process, pid=os.getpid(), batch=state.batch, **place)
            time.sleep(pause_s)
            state.commit()

    train(state)
    print("done", flush=True)


if __name__ == "__main__":
    main()
