"""One unmodified script under every launcher: horovodrun, `corro run`, horovod.run, other hosts by a fake ssh.
Not run by spmd.py: the tests start ranks with the engine. Needs no framework."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import horovod

SCRIPT = """
from horovod import _core
from horovod.common import basics as hvd
from horovod.elastic import ObjectState

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False

hvd.init()
state = ObjectState(root=hvd.rank(), host="")
state.sync()
places = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
hvd.shutdown()
# Again, as scripts do after a failure: the launcher's server serves any number of meetings.
hvd.init()
_core.barrier()
print("places", *places, "root", state.root)
hvd.shutdown()
"""

CORRO = Path(os.environ.get("CORRO", Path(__file__).parents[3] / "target" / "debug" / "corro"))


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def _places(*command, **kwargs):
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=120,
        text=True,
        stdin=subprocess.DEVNULL,
        **kwargs,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line.split("places ")[1] for line in done.stdout.splitlines() if "places " in line)


HOROVODRUN = (sys.executable, "-m", "horovod.runner.launch")
TWO_RANKS = ["0 2 0 2 0 1 root 0", "1 2 1 2 0 1 root 0"]


def test_horovodrun(script):
    assert _places(*HOROVODRUN, "-np", "2", sys.executable, script) == TWO_RANKS


def test_corro_run(script):
    if not CORRO.exists():
        pytest.skip(f"missing: {CORRO}; cargo build")
    assert _places(str(CORRO), "run", "-np", "2", sys.executable, script) == TWO_RANKS


def test_alone_without_a_launcher(script):
    assert _places(sys.executable, script) == ["0 1 0 1 0 1 root 0"]


def test_many_ranks(script):
    expected = sorted(f"{rank} 8 {rank} 8 0 1 root 0" for rank in range(8))
    assert _places(*HOROVODRUN, "-np", "8", sys.executable, script) == expected


def test_two_hosts(script, tmp_path, monkeypatch):
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\ncd / && exec env -i PATH="$PATH" /bin/sh -c "$2"\n')
    ssh.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    hosts = ("-np", "3", "-H", "first.invalid:1,second.invalid:2", "--network-interface", "lo")
    assert _places(*HOROVODRUN, *hosts, sys.executable, script) == [
        "0 3 0 1 0 2 root 0",
        "1 3 0 2 1 2 root 0",
        "2 3 1 2 0 1 root 0",
    ]


def test_a_function():
    def meet(word):
        from horovod.common import basics as hvd
        from horovod.elastic import ObjectState

        hvd.init()
        state = ObjectState(words=f"{word} from {hvd.rank()}")
        state.sync()
        return hvd.rank(), state.words

    assert horovod.run(meet, args=("hello",), num_proc=2) == [(0, "hello from 0"), (1, "hello from 0")]


def test_a_dead_rank_ends_the_job():
    """Other ranks that wait in the engine are ended, too."""

    def die():
        from horovod import _core
        from horovod.common import basics as hvd

        hvd.init()
        if hvd.rank() == 1:
            os._exit(7)
        _core.barrier()

    with pytest.raises(RuntimeError, match="Horovod detected that one or more processes exited with non-zero status"):
        horovod.run(die, num_proc=3)
