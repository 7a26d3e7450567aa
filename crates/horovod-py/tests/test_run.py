"""horovodrun with real processes: output, failures, signals, other hosts by a fake ssh. Not run by spmd.py: the
tests start processes themselves. No engine is needed."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

HOROVODRUN = [sys.executable, "-m", "horovod.runner.launch"]
DEADLINE_S = 60


def _await(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)


def _run(*arguments, **kwargs):
    return subprocess.run(
        [*HOROVODRUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=DEADLINE_S,
        text=True,
        **kwargs,
    )


def _python(text):
    return [sys.executable, "-c", text]


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _pids(folder, n_ranks):
    """Process ids of all ranks and of a child of each, once they exist."""
    _await(lambda: len(list(folder.glob("*.pid"))) == 2 * n_ranks, "all ranks have started")
    return [int(path.stem) for path in folder.glob("*.pid")]


# Every rank and its child write their process ids; the rank ignores the signals named in IGNORE.
SLEEPER = """
import os, pathlib, signal, subprocess, sys, time

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False
if "child" in sys.argv:
    pathlib.Path(f"{os.getpid()}.pid").touch()
    time.sleep(600)
for name in os.environ.get("IGNORE", "").split():
    signal.signal(getattr(signal, name), signal.SIG_IGN)
child = subprocess.Popen([sys.executable, __file__, "child"])
pathlib.Path(f"{os.getpid()}.pid").touch()
print("here", flush=True)
time.sleep(600)
"""


@pytest.fixture
def sleepers(tmp_path):
    """Starts sleeping ranks; afterwards no process may be left."""
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    started = []

    def start(*options, command=(sys.executable, "sleeper.py"), **variables):
        launcher = subprocess.Popen(
            [*HOROVODRUN, *options, *command],
            cwd=tmp_path,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(launcher)
        return launcher

    yield start
    for launcher in started:
        launcher.kill()
        launcher.communicate()


def test_rank_variables():
    names = (
        "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME CONTROLLER CPU_OPERATIONS GLOO_RENDEZVOUS_ADDR"
    )
    names += " GLOO_IFACE"
    show = f"import os; print(*[os.environ['HOROVOD_' + name] for name in {names.split()}])"
    done = _run("-np", "3", "-H", "localhost:1,127.0.0.1:2", *_python(show))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0]<stdout>:0 3 0 1 0 2 localhost gloo gloo 127.0.0.1 lo",
        "[1]<stdout>:1 3 0 2 1 2 127.0.0.1 gloo gloo 127.0.0.1 lo",
        "[2]<stdout>:2 3 1 2 0 1 127.0.0.1 gloo gloo 127.0.0.1 lo",
    ]
    assert done.stderr == ""


def test_options_reach_the_ranks_but_the_secret_does_not():
    show = (
        "import os; print(os.environ['HOROVOD_CYCLE_TIME'], os.environ.get('_HOROVOD_SECRET_KEY'), os.environ['MINE'])"
    )
    env = {**os.environ, "_HOROVOD_SECRET_KEY": "hidden", "MINE": "with 'quotes' and $dollars"}
    done = _run("-np", "1", "--cycle-time-ms", "2.5", *_python(show), env=env)
    assert done.stdout == "[0]<stdout>:2.5 None with 'quotes' and $dollars\n", done.stderr


def test_arguments_are_passed_verbatim():
    done = _run("-np", "1", *_python("import sys; print(sys.argv[1:])"), "a b", "$HOME", "it's", "", "*")
    assert done.stdout == "[0]<stdout>:['a b', '$HOME', \"it's\", '', '*']\n", done.stderr


def test_all_slots_are_used():
    done = _run("-np", "2", "-H", "localhost:3", "sh", "-c", "echo $HOROVOD_SIZE")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:3" for rank in range(3)]


def test_output_is_written_in_complete_lines():
    # Every line in two pieces, and the last one unterminated.
    talk = (
        "import os\nfor n in range(200):\n for part in ('x' * 100, f'{n}\\n'):\n  os.write(1, part.encode())\n"
        "os.write(1, b'last')"
    )
    done = _run("-np", "4", *_python(talk))
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        own = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}]<stdout>:")]
        assert own == [f"[{rank}]<stdout>:{'x' * 100}{n}" for n in range(200)] + [f"[{rank}]<stdout>:last"]
    assert len(done.stdout.splitlines()) == 4 * 201


def test_an_unterminated_last_line_stays_unterminated():
    done = _run("-np", "1", "sh", "-c", r"printf 'first\nlast'; printf 'lost' >&2")
    assert (done.stdout, done.stderr) == ("[0]<stdout>:first\n[0]<stdout>:last", "[0]<stderr>:lost")
    # The next output on the same stream starts a new line.
    done = _run("-np", "1", "sh", "-c", "printf lost >&2; exit 3")
    assert done.stderr.startswith("[0]<stderr>:lost\nProcess 0 exit with status code 3.\n")
    # Also for a line so long that it is written in pieces.
    done = _run("-np", "1", *_python("import os; os.write(1, b'x' * 200000)"))
    assert done.stdout == "[0]<stdout>:" + "x" * 200000


def test_a_missing_command_prints_usage():
    done = _run("-np", "2")
    assert done.returncode == 2
    assert "usage: horovodrun" in done.stderr and "the command to run is missing" in done.stderr


def test_carriage_returns_are_preserved():
    # As bytes: text mode would convert line ends.
    done = subprocess.run([*HOROVODRUN, "-np", "1", "printf", r"10%%\r20%%\r\nend\r\n"], stdout=subprocess.PIPE)
    assert done.stdout == b"[0]<stdout>:10%\r[0]<stdout>:20%\r\n[0]<stdout>:end\r\n"


def test_timestamp_prefix():
    done = _run("-np", "1", "--prefix-output-with-timestamp", "echo", "hello")
    when, _, text = done.stdout.partition("[0]<stdout>:")
    assert abs(time.mktime(time.strptime(when)) - time.time()) < DEADLINE_S
    assert text == "hello\n"


def test_output_files(tmp_path):
    done = _run(
        "-np", "11", "--output-filename", str(tmp_path / "out"), "sh", "-c", "echo out $HOROVOD_RANK; printf err >&2"
    )
    assert done.returncode == 0, done.stderr
    assert sorted(folder.name for folder in (tmp_path / "out").iterdir()) == [f"rank.{rank:02}" for rank in range(11)]
    for rank in range(11):
        assert (tmp_path / f"out/rank.{rank:02}/stdout").read_text() == f"out {rank}\n"
        assert (tmp_path / f"out/rank.{rank:02}/stderr").read_text() == "err"


def test_the_first_failing_rank_ends_the_job(sleepers, tmp_path):
    fail = "import os, sys\nif os.environ['HOROVOD_RANK'] == '1':\n sys.exit(3)\nexec(open('sleeper.py').read())"
    (tmp_path / "fail.py").write_text(fail)
    begun = time.monotonic()
    launcher = sleepers("-np", "3", command=(sys.executable, "fail.py"))
    _, err = launcher.communicate(timeout=DEADLINE_S)
    assert launcher.returncode == 3
    assert err.decode() == (
        "Process 1 exit with status code 3.\n"
        "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be"
        " terminated. The first process to do so was:\nProcess name: 1\nExit code: 3\n\n"
    )
    assert time.monotonic() - begun < 5, "nobody had a reason to wait for the forced end"


def test_a_rank_killed_by_a_signal():
    done = _run("-np", "1", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    assert "Process 0 exit with status code 137." in done.stderr


def test_a_missing_executable():
    done = _run("-np", "2", "no-such-command")
    assert done.returncode == 127
    assert "not found" in done.stderr and "Exit code: 127" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks_at_once(sleepers, tmp_path, number):
    launcher = sleepers("-np", "2")
    pids = _pids(tmp_path, 2)
    begun = time.monotonic()
    launcher.send_signal(number)
    _, err = launcher.communicate(timeout=DEADLINE_S)
    assert time.monotonic() - begun < 4, "at once, not after the time for those who ignore it"
    assert launcher.returncode == 128 + number
    assert b"Traceback" not in err
    _await(lambda: not any(map(_is_alive, pids)), "all have ended")


def test_who_ignores_the_end_is_killed_after_five_seconds_or_at_the_second_signal(sleepers, tmp_path):
    for n_signals, least, most in [(1, 4.5, 30), (2, 0, 4)]:
        for path in tmp_path.glob("*.pid"):
            path.unlink()
        launcher = sleepers("-np", "2", IGNORE="SIGTERM SIGINT")
        pids = _pids(tmp_path, 2)
        begun = time.monotonic()
        launcher.send_signal(signal.SIGINT)
        if n_signals == 2:
            # Pending signals merge, so the second is sent after the first was handled.
            while b"another signal" not in launcher.stderr.readline():
                pass
            launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=DEADLINE_S)
        assert least < time.monotonic() - begun < most
        assert launcher.returncode == 130
        _await(lambda: not any(map(_is_alive, pids)), "all have ended")


@pytest.mark.parametrize("ignored", ["", "SIGTERM SIGINT SIGHUP SIGPIPE"])
def test_no_process_survives_a_killed_launcher(sleepers, tmp_path, ignored):
    launcher = sleepers("-np", "2", IGNORE=ignored)
    pids = _pids(tmp_path, 2)
    assert all(map(_is_alive, pids))
    launcher.kill()
    _await(lambda: not any(map(_is_alive, pids)), "all have ended")


def test_background_processes_of_a_rank_are_ended(sleepers, tmp_path):
    (tmp_path / "leaver.py").write_text(
        "import pathlib, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, 'sleeper.py', 'child'])\n"
        "while not list(pathlib.Path().glob('*.pid')): time.sleep(0.01)\n"
    )
    launcher = sleepers("-np", "1", command=(sys.executable, "leaver.py"))
    launcher.communicate(timeout=DEADLINE_S)
    assert launcher.returncode == 0
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert len(pids) == 1
    _await(lambda: not any(map(_is_alive, pids)), "it has ended")


def test_closed_output():
    command = " ".join([*HOROVODRUN, "-np", "1", "yes", "|", "head", "-1"])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S
    )
    assert done.stdout == b"[0]<stdout>:y\n"
    assert done.returncode != 0 and b"Traceback" not in done.stderr


# Records its arguments and runs the command locally, as the other host would: with another home and a minimal
# environment.
SSH = """#!/bin/sh
echo "$@" >> "{folder}/calls"
while [ $# -gt 2 ]; do shift; done
host=$1
[ "$host" = nowhere ] && { echo "ssh: Could not resolve hostname nowhere" >&2; exit 255; }
cd / && exec env -i PATH="$PATH" SSH_HOST="$host" /bin/sh -c "$2"
"""


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A fake ssh; returns the list of its calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(SSH.replace("{folder}", str(folder)))
    (folder / "ssh").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return lambda: (folder / "calls").read_text().splitlines()


HOSTS = ("-np", "3", "-H", "first.invalid:1,second.invalid:2", "--network-interface", "lo")


def test_other_hosts_by_ssh(ssh, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", "it's $ecret")
    names = "SSH_HOST HOROVOD_HOSTNAME HOROVOD_RANK HOROVOD_LOCAL_RANK MY_PASSWORD CORRO_JOB_SECRET"
    show = f"import os; print(*[os.environ[name] for name in {names.split()}], os.getcwd())"
    done = _run(*HOSTS, "-p", "2222", "-i", "key", *_python(show), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in sorted(done.stdout.splitlines())]
    assert [line[:4] for line in lines] == [
        ["[0]<stdout>:first.invalid", "first.invalid", "0", "0"],
        ["[1]<stdout>:second.invalid", "second.invalid", "1", "0"],
        ["[2]<stdout>:second.invalid", "second.invalid", "2", "1"],
    ]
    job_secret = lines[0][6]
    assert len(job_secret) == 64
    assert {tuple(line[4:]) for line in lines} == {("it's", "$ecret", job_secret, str(tmp_path))}
    assert len(ssh()) == 2 + 3, "one check per host, one call per rank"
    for call in ssh():
        assert "-p 2222 -i key" in call
        assert job_secret not in call and "ecret" not in call.replace("first", ""), "secrets do not show in `ps`"


def test_ssh_is_not_checked_again_within_the_hour(ssh):
    for n_calls, options in [(5, ()), (8, ()), (13, ("--disable-cache",))]:
        assert _run(*options, *HOSTS, "true").returncode == 0
        assert len(ssh()) == n_calls


def test_an_unreachable_host_is_named(ssh):
    done = _run("-np", "2", "-H", "first.invalid:1,nowhere:1", "--network-interface", "lo", "true")
    assert done.returncode == 1
    assert "nowhere: ssh: Could not resolve hostname nowhere" in done.stderr and "--ssh-identity-file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failing_rank_on_another_host(ssh):
    done = _run(*HOSTS, "sh", "-c", 'if [ "$HOROVOD_RANK" = 2 ]; then exit 5; else sleep 600; fi')
    assert done.returncode == 5
    assert "Process name: 2\nExit code: 5" in done.stderr


def test_no_process_survives_on_other_hosts(ssh, sleepers, tmp_path):
    launcher = sleepers(*HOSTS)
    pids = _pids(tmp_path, 3)
    launcher.kill()
    _await(lambda: not any(map(_is_alive, pids)), "all have ended")


@pytest.mark.parametrize(
    "options, message",
    [
        ("-np 2 -H localhost true", "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2."),
        ("-np 3 -H localhost:2 true", "Requested more processes (3) than there are available slots (2)"),
        ("-np 2 --hostfile no-such-file true", "no-such-file"),
        ("-np 1 --network-interface nic7 true", "None of the network interfaces nic7"),
        ("-np 1 --cycle-time-ms -1 true", "cycle_time_ms=-1.0 must be >= 0"),
    ],
)
def test_launch_errors_are_one_line(options, message):
    done = _run(*options.split())
    assert done.returncode == 1
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_check_build():
    done = _run("--check-build")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Horovod v0.")
    assert [line for line in lines if line.endswith(":")][1:] == [
        "Available Frameworks:",
        "Available Controllers:",
        "Available Tensor Operations:",
    ]
    assert lines.count("    [X] Gloo") == 2 and lines.count("    [ ] MPI") == 2
