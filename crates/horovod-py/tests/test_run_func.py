"""horovod.run: functions in ranks, their results and their exceptions. Not run by spmd.py: the tests start
processes."""

import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

pytest.importorskip("cloudpickle")

import horovod
from horovod.runner.common.util import codec

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False


def test_results_are_ordered_by_rank():
    def place(factor, offset=0):
        return int(os.environ["HOROVOD_RANK"]) * factor + offset, os.environ["HOROVOD_SIZE"]

    assert horovod.run(place, args=(10,), kwargs={"offset": 1}, num_proc=3) == [(1, "3"), (11, "3"), (21, "3")]


def test_none_is_a_result():
    assert horovod.run(lambda: None, num_proc=2) == [None, None]


def test_np_is_deprecated():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert horovod.run(lambda: 1, np=2) == [1, 1]
    assert "np is deprecated, use num_proc instead" in str(caught[0].message)


def test_an_exception_has_its_rank_and_traceback():
    def fail():
        if os.environ["HOROVOD_RANK"] == "1":
            raise KeyError("the thing")
        time.sleep(600)

    with pytest.raises(RuntimeError) as caught:
        horovod.run(fail, num_proc=2)
    text = str(caught.value)
    assert "Horovod detected that one or more processes exited with non-zero status" in text
    assert "The function raised in rank 1:" in text and "KeyError: 'the thing'" in text and "in fail" in text
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_rank_that_dies_silently():
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="Exit code: 137"):
        horovod.run(die, num_proc=1)


def test_a_rank_without_a_result():
    with pytest.raises(RuntimeError, match="Rank 0 ended without a result"):
        horovod.run(lambda: os._exit(0), num_proc=1)


def test_an_unpicklable_result_is_named():
    with pytest.raises(RuntimeError, match="The result of type generator cannot be pickled"):
        horovod.run(lambda: (n for n in range(3)), num_proc=1)


def test_output_of_the_function_is_forwarded_and_stored(capfd, tmp_path):
    assert horovod.run(lambda: print("hello"), num_proc=1, output_filename=str(tmp_path)) == [None]
    assert "[0]<stdout>:hello" in capfd.readouterr().out
    assert (tmp_path / "rank.0" / "stdout").read_text() == "hello\n"


def test_a_module_beside_the_script_is_found_in_the_ranks(tmp_path):
    (tmp_path / "mine.py").write_text("def answer():\n    return 42\n")
    (tmp_path / "script.py").write_text("import horovod, mine\nprint(horovod.run(mine.answer, num_proc=2))\n")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE, text=True, timeout=60, cwd="/"
    )
    assert done.stdout == "[42, 42]\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"hosts": "localhost:1", "hostfile": "f"}, "hosts and hostfile"),
        ({"use_gloo": True, "use_mpi": True}, "use_gloo and use_mpi"),
        ({"use_mpi": True}, "this Horovod does not use MPI"),
        ({"hosts": "localhost"}, "Invalid host input"),
        ({"hosts": "localhost:1", "num_proc": 2}, "Requested more processes"),
    ],
)
def test_rejected_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        horovod.run(lambda: None, **arguments)


def test_codec():
    assert codec.loads_base64(codec.dumps_base64({"a": [1, 2]})) == {"a": [1, 2]}
    assert isinstance(codec.dumps_base64(1), str) and isinstance(codec.dumps_base64(1, to_ascii=False), bytes)
