"""Elastic jobs of horovodrun with real processes: growing, shrinking, failures, limits. As in upstream's tests, `localhost`,
`127.0.0.1` and other loopback addresses are different hosts on one machine. Needs no framework. Not run by spmd.py: the tests
start processes themselves."""

import os
import signal
import stat

import pytest

from elastic_job import Job, await_that, check_history

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False


@pytest.fixture
def start(tmp_path):
    """Starts a job; afterwards none of its processes may be left."""
    jobs = []

    def start(*options, **kwargs):
        jobs.append(Job(tmp_path, *options, **kwargs))
        return jobs[-1]

    yield start
    for job in jobs:
        pids = {step["pid"] for step in job.steps()}
        job.close()
        await_that(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "all processes have ended")


def test_a_job_grows_when_a_host_comes(start):
    job = start("--min-np", "2", hosts="localhost:2")
    first, before = job.await_size(2)
    job.set_hosts("localhost:2,127.0.0.1:2")
    _, after = job.await_size(4, after=first)
    assert after[:2] == before and sorted(after[2:]) == [3, 4], "survivors keep their ranks, and nobody is started again"
    assert job.stop() == 0, job.output()
    check_history(job.steps())
    assert job.output().count("done") == 4
    # Both at once, or one after the other.
    assert "generation 2: 4 processes instead of 2" in job.output() or "generation 3: 4 processes" in job.output()


def test_a_job_shrinks_when_a_host_goes(start):
    job = start("--min-np", "1", "--max-np", "4", hosts="127.0.0.1:2,localhost:2")
    first, before = job.await_size(4)
    job.set_hosts("localhost:2")
    _, after = job.await_size(2, after=first)
    assert after == before[2:], "rank 0 was on the host that has gone"
    pids = [job.pid(process) for process in before[:2]]
    await_that(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the others have left", job)
    assert job.stop() == 0, job.output()
    check_history(job.steps())
    assert job.output().count("done") == 2, "who was dismissed runs no more user code"
    assert "exit with status" not in job.output()


def test_a_job_never_has_more_processes_than_the_maximum(start):
    job = start("--min-np", "1", "--max-np", "2", hosts="localhost:1")
    first, _ = job.await_size(1)
    job.set_hosts("localhost:1,127.0.0.1:3")
    job.await_size(2, after=first)
    assert job.stop() == 0, job.output()
    assert {step["size"] for step in job.steps()} == {1, 2}


def test_a_killed_process_is_replaced_on_fixed_hosts(start):
    job = start("--min-np", "2", "-H", "localhost:3")
    first, before = job.await_size(3)
    job.kill(before[0])
    generation, after = job.await_size(3, after=first)
    assert after == [*before[1:], max(before) + 1], "the new one has the last rank"
    assert job.stop() == 0, job.output()
    check_history(job.steps())
    sizes = [step["size"] for step in job.steps() if step["process"] == before[1]]
    assert sizes[0] == 3 and sizes[-1] == 3 and 2 in sizes, "the others went on meanwhile"
    assert "Process 0 exit with status code 137." in job.output()


def test_a_host_with_a_failure_is_excluded(start):
    job = start("--min-np", "1", hosts="localhost:2,127.0.0.1:2")
    first, before = job.await_size(4)
    job.kill(before[3])
    _, after = job.await_size(2, after=first)
    assert after == before[:2], "with all of its processes"
    assert job.stop() == 0, job.output()
    check_history(job.steps())
    assert {step["size"] for step in job.steps()} == {4, 2}, "it does not come back"


def test_an_excluded_host_comes_back_after_the_cooldown(start):
    job = start("--min-np", "1", "--blacklist-cooldown-range", "1", "2", hosts="localhost:1,127.0.0.1:1")
    first, before = job.await_size(2)
    job.kill(before[1])
    second, _ = job.await_size(1, after=first)
    _, after = job.await_size(2, after=second)
    assert after == [before[0], 3]
    assert job.stop() == 0, job.output()
    check_history(job.steps())


def test_survivors_below_the_minimum_wait_for_others(start):
    """Upstream's issue 3494: it deadlocks here."""
    job = start("--min-np", "3", hosts="localhost:2,127.0.0.1:1")
    first, before = job.await_size(3)
    job.kill(before[2])
    await_that(lambda: "excluded" in job.output(), "the host is excluded", job)
    job.set_hosts("localhost:2,127.0.0.1:1,127.0.0.2:1")
    _, after = job.await_size(3, after=first)
    assert after == [*before[:2], 4]
    assert job.stop() == 0, job.output()
    check_history(job.steps())


def test_survivors_below_the_minimum_end_after_the_elastic_timeout(start):
    # Long enough for two processes to start on a busy machine.
    job = start("--min-np", "2", "--elastic-timeout", "10", hosts="localhost:1,127.0.0.1:1")
    _, before = job.await_size(2)
    job.kill(before[1])
    assert job.wait() == 137
    assert "1 of at least 2 processes were ready within 10 s" in job.output()
    assert "Process name: 127.0.0.1[0]\nExit code: 137" in job.output()
    assert "Traceback" not in job.output()


def test_a_job_without_enough_slots_ends_after_the_elastic_timeout(start):
    job = start("--min-np", "3", "--elastic-timeout", "1", hosts="localhost:2")
    assert job.wait() == 1
    assert "of at least 3 processes were ready within 1 s, and the hosts have 2 usable slots" in job.output()
    assert job.steps() == []


def test_the_reset_limit(start):
    job = start("--min-np", "1", "--reset-limit", "1", "-H", "localhost:3")
    first, before = job.await_size(3)
    job.kill(before[2])
    second, _ = job.await_size(3, after=first)
    job.kill(before[1])
    assert job.wait() == 137
    text = "Horovod was shutdown because number of resets during elastic job exceeded limit: 1"
    assert text in job.output()


def test_exclusion_of_all_hosts_ends_the_job(start):
    job = start("--min-np", "1", hosts="localhost:2")
    _, before = job.await_size(2)
    job.kill(before[0])
    assert job.wait() == 137
    assert "all hosts are excluded" in job.output()


def test_failures_of_several_processes_at_once(start):
    job = start("--min-np", "1", "-H", "localhost:4")
    first, before = job.await_size(4)
    job.kill(before[0])
    job.kill(before[2])
    _, after = job.await_size(4, after=first)
    assert after[:2] == [before[1], before[3]]
    assert job.stop() == 0, job.output()
    check_history(job.steps())


def test_a_failure_while_the_others_reconnect(start):
    """The next process dies as soon as the others have noticed the first death."""
    job = start("--min-np", "1", "-H", "localhost:4", PAUSE_S="0")
    first, before = job.await_size(4)
    job.kill(before[3])
    await_that(lambda: "exit with status" in job.output(), "the launcher has noticed", job)
    job.kill(before[0])
    job.await_size(4, after=first)
    assert job.stop() == 0, job.output()
    check_history(job.steps())


def test_a_stopped_process_that_is_killed(start):
    """It does not answer for a while, then it is gone."""
    job = start("--min-np", "1", "-H", "localhost:3")
    first, before = job.await_size(3)
    job.kill(before[1], signal.SIGSTOP)
    job.kill(before[1])
    job.await_size(3, after=first)
    assert job.stop() == 0, job.output()
    check_history(job.steps())


def test_a_function_that_raises_fails_the_job(start, tmp_path):
    (tmp_path / "raises.py").write_text("import horovod.common.basics as hvd\nhvd.init()\nraise KeyError('mine')\n")
    job = start("--min-np", "2", hosts="localhost:2", script=tmp_path / "raises.py")
    assert job.wait() == 1
    assert "KeyError: 'mine'" in job.output() and "all hosts are excluded" in job.output()


def test_a_program_without_horovod(start, tmp_path):
    (tmp_path / "plain.py").write_text("print('plain')\n")
    job = start("--min-np", "2", hosts="localhost:2", script=tmp_path / "plain.py")
    assert job.wait() == 0, job.output()
    assert sorted(job.output().splitlines()) == ["[0]<stdout>:plain", "[1]<stdout>:plain"]


def test_ranks_that_end_at_different_times(start, tmp_path):
    """Those that have completed the training wait for the others, and those that are alone then keep their results."""
    (tmp_path / "ends.py").write_text(
        "import horovod.common.elastic as common\ncommon._END_TIMEOUT_S = 1\n"
        "from horovod import elastic\nimport horovod.common.basics as hvd, pathlib, sys, time\n"
        "hvd.init()\nmine = pathlib.Path(f'ended.{hvd.rank()}')\n"
        "@elastic.run\ndef train(state):\n"
        "    while hvd.rank() == 0 and not pathlib.Path('ended.1').exists(): time.sleep(0.01)\n"
        "    return 7\n"
        "assert train(elastic.ObjectState()) == 7 and hvd.size() == 2\nmine.touch()\nprint('done')\n"
    )
    job = start("--min-np", "2", "-H", "localhost:2", script=tmp_path / "ends.py")
    assert job.wait() == 0, job.output()
    assert job.output().count("done") == 2
    assert "[1]<stderr>:Training has ended here, but not on all ranks." in job.output()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes(start, number):
    job = start("--min-np", "1", hosts="localhost:2")
    job.await_size(2)
    job.launcher.send_signal(number)
    assert job.wait() == 128 + number
    assert "Terminating all processes" in job.output()


def test_no_process_survives_a_killed_launcher(start):
    job = start("--min-np", "1", hosts="localhost:2")
    job.await_size(2)
    job.launcher.kill()
    # The fixture waits for the processes.


def test_a_failing_discovery_script(start, tmp_path):
    job = start("--min-np", "1", "--host-discovery-script", "echo no hosts today >&2; exit 3")
    assert job.wait() == 1
    assert "ended with status 3: no hosts today" in job.output() and "Traceback" not in job.output()


def test_a_discovery_script_that_fails_later_changes_nothing(start):
    job = start("--min-np", "1", hosts="localhost:1")
    job.await_size(1)
    (job.folder / "hosts").unlink()
    await_that(lambda: "The hosts stay as they are." in job.output(), "the failure is reported", job)
    assert job.stop() == 0, job.output()
    assert job.output().count("The hosts stay as they are.") == 1
    assert {step["generation"] for step in job.steps()} == {1}


def test_slots_per_host(start):
    job = start("--min-np", "1", "--slots-per-host", "2", hosts="localhost")
    job.await_size(2)
    assert job.stop() == 0, job.output()


def test_output_files_continue_when_a_process_is_replaced(start, tmp_path):
    (tmp_path / "once.py").write_text(
        "import os, pathlib, sys\nprint('process', os.environ['CORRO_ELASTIC_PROCESS'], flush=True)\n"
        "if not pathlib.Path('failed').exists():\n pathlib.Path('failed').touch()\n sys.exit(5)\n"
        "import horovod.common.basics as hvd\nhvd.init()\n"
    )
    job = start("--min-np", "1", "-H", "localhost:1", "--output-filename", "out", script=tmp_path / "once.py")
    status = job.wait()
    assert (status, "all processes failed before the training began" in job.output()) in [(0, False), (5, True)]
    lines = (tmp_path / "out/rank.0/stdout").read_text().splitlines()
    assert lines == ["process 1", "process 2"][: len(lines)]


# As in test_run.py.
SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
cd / && exec env -i PATH="$PATH" SSH_HOST="$1" /bin/sh -c "$2"
"""


def test_other_hosts_by_ssh(start, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(SSH)
    (tmp_path / "bin/ssh").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    job = start("--min-np", "1", "--network-interface", "lo", hosts="localhost:1")
    first, _ = job.await_size(1)
    job.set_hosts("localhost:1,other.invalid:2")
    second, before = job.await_size(3, after=first)
    job.kill(before[2])
    _, after = job.await_size(1, after=second)
    assert job.stop() == 0, job.output()
    check_history(job.steps())
