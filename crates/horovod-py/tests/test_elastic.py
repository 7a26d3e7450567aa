"""Elastic states without a framework: commit, restore, sync, reset, and recovery from failures. Run on 1, 2 and 4 ranks
with spmd.py. Needs no framework."""

import ctypes
import pickle

import pytest

from horovod import _core, elastic
from horovod.common import basics
from horovod.common.elastic import HOSTS_ADDED, HOSTS_REMOVED, notification_manager
from horovod.common.elastic import ObjectState as CommonObjectState
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.elastic import objects
from horovod.elastic.objects import allgather_numbers, broadcast_numbers, broadcast_object

FLOAT64 = 8


class Block:
    """Pickled as NumPy's arrays are: the memory out of band."""

    def __init__(self, memory):
        self.memory = memory

    def __reduce_ex__(self, protocol):
        return Block, (pickle.PickleBuffer(self.memory),)


@pytest.fixture(autouse=True)
def engine():
    basics.init()
    yield
    _core.barrier()
    basics.shutdown()


def _sum(values, name):
    """Elementwise sum over all ranks."""
    numbers = (ctypes.c_double * len(values))(*values)
    address = ctypes.addressof(numbers)
    handle = _core.submit(
        _core.ALLREDUCE, "allreduce", name, [(address, address, FLOAT64, (len(values),))], keep=numbers
    )
    _core.synchronize(handle)
    return list(numbers)


def test_attributes_are_saved_and_restored():
    state = elastic.ObjectState(epoch=1, losses=[0.5])
    state.epoch = 2
    state.losses.append(0.4)
    state.restore()
    assert (state.epoch, state.losses) == (1, [0.5])
    state.losses.append(0.3)
    state.save()
    state.losses.clear()
    state.restore()
    assert state.losses == [0.5, 0.3], "the copy is deep, and stays whole"
    state.losses.clear()
    state.restore()
    assert state.losses == [0.5, 0.3]


def test_sync_broadcasts_rank_0():
    state = elastic.ObjectState(rank=basics.rank(), log=[basics.rank()])
    state.log.append("here")
    state.sync()
    assert (state.rank, state.log) == (0, [0, "here"])
    state.rank = 77
    state.restore()
    assert state.rank == 0


def test_objects_of_any_size_are_broadcast():
    for obj in [None, "", {"a": [1, 2]}, b"x" * 1_000_000]:
        mine = obj if basics.rank() == basics.size() - 1 else "not this"
        assert broadcast_object(mine, root_rank=basics.size() - 1) == obj


def test_numbers_are_broadcast_and_gathered():
    last = basics.size() - 1
    assert broadcast_numbers([basics.rank(), -(2**40)], last, "n") == [last, -(2**40)]
    assert broadcast_numbers([], 0, "none") == []
    assert allgather_numbers([basics.rank(), 7], "g") == [[rank, 7] for rank in range(basics.size())]


def test_large_parts_are_not_pickled():
    large = {"a": Block(bytearray(b"x" * 1_000_000)), "b": [Block(bytearray(b"small")), 3]}
    received = broadcast_object(large if basics.rank() == 0 else None)
    assert received["a"].memory == large["a"].memory and received["b"][0].memory == b"small" and received["b"][1] == 3
    received["a"].memory[0] = 0  # What arrives can be changed.
    structure, parts = objects._split(large)
    assert len(structure) < 1000 and [part.nbytes for part in parts] == [1_000_000]


def test_reset_callbacks_run_in_order():
    state, calls = elastic.ObjectState(), []
    state.register_reset_callbacks([lambda: calls.append(1), lambda: calls.append(2)])
    state.register_reset_callbacks([lambda: calls.append(3)])
    state.on_reset()
    assert calls == [1, 2, 3]


@pytest.mark.parametrize(
    "news, skip_sync", [([HOSTS_ADDED], False), ([HOSTS_REMOVED], True), ([HOSTS_REMOVED, HOSTS_ADDED], False)]
)
def test_host_changes_interrupt_all_ranks_in_the_same_commit(news, skip_sync):
    state = elastic.ObjectState(batch=0)
    notification_manager.register_listener(state)
    state.commit()
    if basics.rank() == 0:
        # Only rank 0 is notified.
        for timestamp, update in enumerate(news, 1):
            notification_manager.handle_hosts_updated(timestamp, update)
    state.batch = 5
    with pytest.raises(HostsUpdatedInterrupt) as interrupt:
        state.commit()
    assert interrupt.value.skip_sync is skip_sync
    state.commit()
    state.restore()
    assert state.batch == 5, "what was committed stays"
    notification_manager.remove_listener(state)


def _train_with_a_failure(fail):
    """Ten batches with one commit after each; `fail` is called once in the middle of the sixth. Returns the results and
    the number of attempts."""
    state = elastic.ObjectState(batch=0, total=0.0)
    begun, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(basics.size())])

    @elastic.run
    def train(state, n_batches, scale=1):
        begun.append(state.batch)
        while state.batch < n_batches:
            state.total += _sum([scale], "total")[0]
            if state.batch == 5 and len(begun) == 1:
                fail()
            state.batch += 1
            state.commit()
        return state.total

    assert train(state, 10, scale=2) == 10 * 2 * basics.size()
    assert begun == [0, 5], "the second time from the last commit"
    assert resets == [basics.size()]
    assert state.batch == 10


def test_training_continues_after_a_mismatch():
    def fail():
        # Another length on every rank; a single rank cannot disagree.
        _sum([1.0] * (1 + basics.rank()), "unlike")
        raise HorovodInternalError("alone")

    _train_with_a_failure(fail)


def test_training_continues_after_a_shutdown_by_one_rank():
    def fail():
        if basics.rank() == basics.size() - 1:
            basics.shutdown()
        _sum([1.0], "nobody there")

    _train_with_a_failure(fail)


def test_the_state_that_is_ahead_is_sent():
    """The last rank has committed once more than the others when the engine fails."""
    last = basics.size() - 1
    state, begun = elastic.ObjectState(batch=0, log=[]), []

    @elastic.run
    def train(state):
        begun.append((state.batch, list(state.log)))
        if len(begun) == 2:
            return
        state.batch = 1
        state.commit()
        if basics.rank() == last:
            state.batch, state.log = 2, ["from the last"]
            state.save()
            basics.shutdown()
        raise HorovodInternalError("here")

    train(state)
    assert begun == [(0, []), (2, ["from the last"])]


def test_equal_states_are_not_sent():
    """After a failure every rank goes back by itself; a broadcast would give it what rank 0 has."""
    state = elastic.ObjectState(batch=0)
    ranks = []

    @elastic.run
    def train(state):
        if not ranks:
            state.batch = basics.rank()
            state.commit()
            ranks.append(state.batch)
            _leave_and_fail()
        return state.batch

    assert train(state) == basics.rank()


def _leave_and_fail():
    """All ranks have arrived, then all fail."""
    _core.barrier()
    basics.shutdown()
    raise HorovodInternalError("here")


def test_a_failure_while_synchronizing_leads_to_another_reset():
    """One rank fails after it was reset; the others in the synchronization."""
    state, resets = elastic.ObjectState(batch=0), []

    def reset_callback():
        resets.append(len(resets))
        if len(resets) == 1:
            if basics.rank() == basics.size() - 1:
                basics.shutdown()
            _sum([1.0], "nobody there")

    state.register_reset_callbacks([reset_callback])

    @elastic.run
    def train(state):
        state.batch += 1
        state.commit()
        if not resets:
            _leave_and_fail()
        return state.batch

    assert train(state) == 2
    assert resets == [0, 1]


def test_what_a_user_changed_before_the_first_commit_is_kept():
    state = elastic.ObjectState(weights=0)
    state.weights = 5  # A loaded checkpoint.
    begun = []

    @elastic.run
    def train(state):
        begun.append(state.weights)
        state.weights = 6
        if len(begun) == 1:
            _leave_and_fail()

    train(state)
    assert begun == [5, 5]


def test_a_sync_of_the_users_own_is_called_as_upstream_calls_it():
    class Mine(elastic.State):
        calls = []

        def save(self):
            self.calls.append("save")

        def restore(self):
            self.calls.append("restore")

        def sync(self):
            self.calls.append("sync")

    state = Mine(broadcast_object, basics.rank)

    @elastic.run
    def train(state):
        state.calls.append("train")
        if state.calls.count("train") == 1:
            _leave_and_fail()
        if state.calls.count("train") == 2:
            raise HostsUpdatedInterrupt(skip_sync=True)

    train(state)
    assert state.calls == ["save", "sync", "train", "restore", "sync", "train", "train"]


def test_an_interrupt_without_a_commit_keeps_what_was_done():
    state, seen = elastic.ObjectState(batch=0), []

    @elastic.run
    def train(state):
        seen.append(state.batch)
        if len(seen) == 3:
            return
        if len(seen) == 2:
            _leave_and_fail()  # After it, training continues from the interrupt.
        state.batch = 4
        if basics.rank() == 0:
            notification_manager.handle_hosts_updated(1, HOSTS_REMOVED)
        state.check_host_updates()

    train(state)
    assert seen == [0, 4, 4]


def test_training_continues_after_hosts_were_added():
    state = elastic.ObjectState(batch=0)
    begun = []

    @elastic.run
    def train(state):
        begun.append(state.batch)
        while state.batch < 4:
            state.batch += 1
            if state.batch == 2 and basics.rank() == 0:
                notification_manager.handle_hosts_updated(len(begun), HOSTS_ADDED if len(begun) == 1 else 0)
            state.commit()

    train(state)
    assert begun == [0, 2], "nothing is lost"


def test_other_exceptions_propagate():
    @elastic.run
    def train(state):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train(elastic.ObjectState())
    assert train.__name__ == "train"


def test_exceptions_of_reset_end_the_training():
    def reset():
        raise ValueError("Horovod initialization failed: nobody came")

    from horovod.common.elastic import run_fn

    def train(state):
        raise HorovodInternalError("lost")

    with pytest.raises(ValueError, match="nobody came"):
        run_fn(train, reset)(CommonObjectState(lambda obj: obj, lambda: 0, a=1))
