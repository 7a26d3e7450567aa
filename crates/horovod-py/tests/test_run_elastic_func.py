"""horovod.run in elastic jobs: results of the last generation by rank, exceptions, process sets after a change. Not run by
spmd.py: the tests start processes."""

import signal

import pytest

pytest.importorskip("cloudpickle")

import horovod

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False


def _train(folder, n_batches, act):
    """Runs in every process: batches with one commit each; `act` may do harm. Returns (rank, size, batches, process)."""
    import os
    import time

    from horovod import elastic
    from horovod.common import basics
    from horovod.elastic.objects import allgather_numbers

    basics.init()
    state = elastic.ObjectState(batch=0)

    @elastic.run
    def train(state):
        while state.batch < n_batches:
            ranks = allgather_numbers([basics.rank()], "ranks")
            assert ranks == [[rank] for rank in range(basics.size())]
            state.batch += 1
            act(folder, state)
            time.sleep(0.01)
            state.commit()

    train(state)
    return basics.rank(), basics.size(), state.batch, int(os.environ["CORRO_ELASTIC_PROCESS"])


def test_results_are_ordered_by_rank(tmp_path):
    results = horovod.run(_train, args=(tmp_path, 5, lambda *_: None), min_num_proc=2, max_num_proc=3)
    assert results == [(0, 3, 5, 1), (1, 3, 5, 2), (2, 3, 5, 3)]


def _die_once(folder, state):
    import os

    from horovod.common import basics

    process = int(os.environ["CORRO_ELASTIC_PROCESS"])
    if process == 1 and state.batch == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if process > 3:
        (folder / "joined").touch()
    # The others wait for the one in its place, so that it is there at the end.
    if state.batch == 10 and basics.size() < 3:
        state.batch -= 1


def test_results_after_a_failure_are_those_of_the_last_generation(tmp_path, capfd):
    results = horovod.run(_train, args=(tmp_path, 10, _die_once), min_num_proc=2, hosts="localhost:3")
    assert results == [(0, 3, 10, 2), (1, 3, 10, 3), (2, 3, 10, 4)]
    assert (tmp_path / "joined").exists()
    assert "restarted process 4 joined on localhost as rank 2" in capfd.readouterr().err


def test_hosts_of_a_discovery_script(tmp_path):
    script = tmp_path / "discover.sh"
    script.write_text("#!/bin/sh\necho localhost\necho 127.0.0.1\n")
    script.chmod(0o700)
    results = horovod.run(
        _train, args=(tmp_path, 3, lambda *_: None), min_num_proc=4, slots=2, host_discovery_script=str(script)
    )
    assert [result[:3] for result in results] == [(rank, 4, 3) for rank in range(4)]


def test_an_exception_has_its_traceback():
    def fail():
        from horovod.common import basics

        basics.init()
        raise KeyError("the thing")

    with pytest.raises(RuntimeError) as caught:
        horovod.run(fail, num_proc=1, min_num_proc=1)
    text = str(caught.value)
    assert "Process name: localhost[0]\nExit code: 1" in text
    assert "The function raised in process 1:" in text and "KeyError: 'the thing'" in text
    assert isinstance(caught.value.__cause__, KeyError)


def test_old_names_of_arguments(tmp_path):
    with pytest.warns(DeprecationWarning) as caught:
        results = horovod.run(_train, args=(tmp_path, 1, lambda *_: None), min_np=1, max_np=2)
    assert "min_np is deprecated, use min_num_proc instead" in [str(warning.message) for warning in caught]
    assert [result[:2] for result in results] == [(0, 2), (1, 2)]


def test_process_sets_are_made_again_as_far_as_their_ranks_exist(tmp_path):
    def train(folder):
        import os

        from horovod import _core, elastic
        from horovod.common import basics
        from horovod.common.process_sets import ProcessSet
        from horovod.elastic.objects import allgather_numbers

        first, last = ProcessSet([0, 1]), ProcessSet([0, 2])
        basics.init(process_sets=[first, last])
        state, seen = elastic.ObjectState(batch=0), []

        @elastic.run
        def train(state):
            seen.append((basics.size(), first.size(), last.process_set_id))
            while state.batch < 3 and basics.size() == 3:
                allgather_numbers([0], "all are here")
                state.batch += 1
                if state.batch == 2 and basics.rank() == 2:
                    os._exit(3)
                state.commit()
            if first.included():
                _core.barrier(first.process_set_id)

        train(state)
        return seen

    # A host with a failure is excluded, so two are left.
    script = tmp_path / "discover.sh"
    script.write_text("#!/bin/sh\necho localhost:2\necho 127.0.0.1:1\n")
    script.chmod(0o700)
    results = horovod.run(train, args=(tmp_path,), min_num_proc=2, host_discovery_script=str(script))
    assert results == [[(3, 2, 2), (2, 2, None)]] * 2
