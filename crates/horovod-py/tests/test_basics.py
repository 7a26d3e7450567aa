"""SPMD: every rank runs this file. Initialization, operations and process sets, without a framework."""

import os
import threading
from typing import Iterator

import numpy as np
import pytest

from horovod import _core
from horovod.common import basics as hvd
from horovod.common import process_sets, util
from horovod.common.exceptions import HorovodInternalError, HorovodVersionMismatchError, HostsUpdatedInterrupt

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."
DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    hvd.init()
    yield
    _core.barrier()
    hvd.shutdown()


def allreduce(array: np.ndarray, name: object = None, op: int = 1, **options: object) -> np.ndarray:
    result = np.empty_like(array)
    tensor = (array.ctypes.data, result.ctypes.data, DTYPES.index(array.dtype.name), array.shape)
    handle = _core.submit(_core.ALLREDUCE, "allreduce", name, [tensor], op=op, keep=(array, result), **options)
    assert _core.synchronize(handle) == [None]
    return result


def submit(kind: int, array: np.ndarray, name: object = None, **options: object) -> int:
    tensor = (array.ctypes.data, 0, DTYPES.index(array.dtype.name), array.shape)
    return _core.submit(kind, "test", name, [tensor], keep=array, **options)


def test_functions_fail_before_init() -> None:
    assert not hvd.is_initialized()
    for ask in [hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size, hvd.is_homogeneous,
                hvd.stop_timeline, lambda: hvd.start_timeline("file")]:
        with pytest.raises(ValueError, match=NOT_INITIALIZED):
            ask()
    for ask in [_core.barrier, _core.join, lambda: submit(_core.ALLREDUCE, np.zeros(1))]:
        with pytest.raises(HorovodInternalError, match=NOT_INITIALIZED):
            ask()
    hvd.shutdown()
    assert not hvd.is_initialized()


def test_ranks_come_from_the_launcher(job: None) -> None:
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    assert hvd.is_initialized() and hvd.is_homogeneous()
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (rank, size, rank, size)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    hvd.init()
    assert hvd.size() == size
    assert process_sets.global_process_set.ranks == list(range(size))


def test_build_flags() -> None:
    assert (hvd.mpi_enabled(), hvd.mpi_built(), hvd.gloo_enabled(), hvd.gloo_built()) == (False, False, True, True)
    assert hvd.nccl_built() == 0
    assert not any([hvd.ddl_built(), hvd.ccl_built(), hvd.cuda_built(), hvd.rocm_built()])
    with pytest.raises(ValueError, match="Horovod MPI is not enabled; Please make sure it's installed and enabled."):
        hvd.mpi_threads_supported()
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == list(range(6))


def test_init_and_shutdown_can_be_repeated() -> None:
    for _ in range(20):
        hvd.init()
        assert allreduce(np.ones(3)).tolist() == [hvd.size()] * 3
        _core.barrier()
        hvd.shutdown()
        hvd.shutdown()
    assert not hvd.is_initialized()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_in_all_dtypes(job: None, dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    expected = sum(np.asarray(array) for _ in range(hvd.size()))
    result = allreduce(array)
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, expected.astype(dtype))


@pytest.mark.parametrize("op, expected", [(0, lambda each: np.mean(each, 0)), (1, lambda each: np.sum(each, 0)),
                                          (3, lambda each: np.min(each, 0)), (4, lambda each: np.max(each, 0)),
                                          (5, lambda each: np.prod(each, 0))])
def test_operations(job: None, op: int, expected) -> None:
    each = [np.arange(5) + rank + 1.0 for rank in range(hvd.size())]
    np.testing.assert_allclose(allreduce(each[hvd.rank()], f"op{op}", op), expected(each))


def test_scale_factors(job: None) -> None:
    result = allreduce(np.full(4, 3.0), prescale=2.0, postscale=0.5)
    np.testing.assert_array_equal(result, np.full(4, 3.0 * hvd.size()))


def test_allgather_of_different_lengths(job: None) -> None:
    each = [np.full((rank + 1, 2), rank, "int32") for rank in range(hvd.size())]
    [output] = _core.synchronize(submit(_core.ALLGATHER, each[hvd.rank()]))
    np.testing.assert_array_equal(np.asarray(output), np.concatenate(each))
    assert (output.dtype, output.nbytes) == (4, np.concatenate(each).nbytes)
    assert output.shape == np.concatenate(each).shape


def test_broadcast_into_an_allocated_output(job: None) -> None:
    root = hvd.size() - 1
    [output] = _core.synchronize(submit(_core.BROADCAST, np.full((2, 2), hvd.rank(), "int64"), root=root))
    np.testing.assert_array_equal(np.asarray(output), np.full((2, 2), root))


def test_alltoall_with_splits(job: None) -> None:
    rank, size = hvd.rank(), hvd.size()
    # i + 1 rows go to member i; their values are the sender's rank.
    array = np.full((sum(range(size + 1)), 2), rank, "float32")
    [output] = _core.synchronize(submit(_core.ALLTOALL, array, splits=list(range(1, size + 1))))
    assert output.received == (rank + 1,) * size
    np.testing.assert_array_equal(np.asarray(output)[:, 0], np.repeat(np.arange(size), rank + 1))


def test_reducescatter_of_uneven_rows(job: None) -> None:
    rank, size = hvd.rank(), hvd.size()
    array = np.arange(2.0 * (size + 1)).reshape(size + 1, 2)
    [output] = _core.synchronize(submit(_core.REDUCESCATTER, array))
    np.testing.assert_array_equal(np.asarray(output), np.array_split(array * size, size)[rank])


def test_empty_tensors(job: None) -> None:
    assert allreduce(np.empty((2, 0))).shape == (2, 0)
    for kind in [_core.ALLGATHER, _core.ALLTOALL, _core.REDUCESCATTER]:
        [output] = _core.synchronize(submit(kind, np.empty((0, 3))))
        assert np.asarray(output).shape == (0, 3) and output.address % 16 == 0
    handle = _core.submit(_core.ALLREDUCE, "allreduce", "no address", [(0, 0, 7, (0,))])
    assert _core.synchronize(handle)[0].shape == (0,)


def test_a_group_has_one_handle(job: None) -> None:
    arrays = [np.full(n, n, dtype) for n, dtype in [(1, "float32"), (2, "float64"), (3, "int32")]]
    tensors = [(array.ctypes.data, array.ctypes.data, DTYPES.index(array.dtype.name), array.shape) for array in arrays]
    handle = _core.submit(_core.ALLREDUCE, "grouped_allreduce", "g", tensors, grouped=True, keep=arrays)
    assert _core.synchronize(handle) == [None, None, None]
    for n, array in enumerate(arrays, 1):
        np.testing.assert_array_equal(array, np.full(n, n * hvd.size()))
    assert _core.synchronize(_core.submit(_core.ALLREDUCE, "grouped_allreduce", "none", [], grouped=True)) == []


def test_handles(job: None) -> None:
    handle = submit(_core.ALLGATHER, np.zeros(1))
    assert isinstance(_core.poll(handle), bool)
    _core.synchronize(handle)
    with pytest.raises(ValueError, match=f"Handle {handle} was not created or has been cleared."):
        _core.poll(handle)
    assert _core.synchronize(handle) is None
    assert _core.synchronize(-1) is None


def test_invalid_arguments_raise_at_submission(job: None) -> None:
    size = hvd.size()
    first = submit(_core.ALLREDUCE, np.zeros(1), "number")
    x = np.zeros((size + 1, 2))
    cases = [
        (ValueError, f"broadcast received invalid root rank {size}", _core.BROADCAST, dict(root=size)),
        (ValueError, "broadcast received invalid root rank -1", _core.BROADCAST, dict(root=-1)),
        (ValueError, "Number of entries in splits does not equal", _core.ALLTOALL, dict(splits=[0] * (size + 1))),
        (ValueError, "Number of entries in splits does not equal", _core.ALLTOALL, dict(splits=[])),
        (ValueError, "Sum of splits entries is greater", _core.ALLTOALL, dict(splits=[9] * size)),
        (ValueError, "splits must not be negative", _core.ALLTOALL, dict(splits=[-1] * size)),
        (ValueError, "Allreduce: Process set provided does not exist", _core.ALLREDUCE, dict(process_set=7)),
        (ValueError, "Allgather: Process set provided does not exist", _core.ALLGATHER, dict(process_set=-7)),
        (HorovodInternalError, "Reducescatter currently only supports AVERAGE and SUM.", _core.REDUCESCATTER, dict(op=3)),
        (HorovodInternalError, "Reduction op type not supported.", _core.ALLREDUCE, dict(op=9)),
        (ValueError, "9 is not a kind of operation", 9, {}),
    ]
    if size > 1:
        cases.append((ValueError, "splits not provided, but first dimension", _core.ALLTOALL, {}))
    for error, text, kind, options in cases:
        with pytest.raises(error, match=text):
            submit(kind, x, **options)
    # None of them consumed a number, so unnamed operations still match.
    second = submit(_core.ALLREDUCE, np.zeros(1))
    assert second == first + 1
    _core.synchronize(first)
    _core.synchronize(second)


def test_a_duplicate_name_raises_at_submission(job: None) -> None:
    _core.barrier()
    if hvd.rank() == 0 and hvd.size() > 1:
        # The other ranks have not submitted it, so it cannot have ended.
        held = submit(_core.ALLREDUCE, np.zeros(2), "held")
        with pytest.raises(ValueError, match="same name as another tensor that is currently being processed.  If you want"):
            submit(_core.ALLREDUCE, np.zeros(2), "held")
        tensors = [(1, 0, 7, (0,)), (1, 0, 7, (0,))]
        with pytest.raises(ValueError, match="same name"):
            _core.submit(_core.ALLREDUCE, "", "twice", tensors)
        _core.barrier()
    else:
        _core.barrier()
        held = submit(_core.ALLREDUCE, np.zeros(2), "held")
    _core.synchronize(held)
    _core.synchronize(submit(_core.ALLREDUCE, np.zeros(2), "held"))


def test_mismatches_fail_on_all_ranks_and_the_engine_continues(job: None) -> None:
    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")
    handle = submit(_core.ALLREDUCE, np.zeros(3 + (hvd.rank() > 0)), "shapes")
    with pytest.raises(HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape"):
        _core.synchronize(handle)
    assert allreduce(np.ones(1)).tolist() == [hvd.size()]


def test_join_returns_the_last_rank(job: None) -> None:
    for _ in range(hvd.rank()):
        allreduce(np.ones(1))
    assert _core.join() == hvd.size() - 1 or hvd.size() == 1


def test_threads_wait_concurrently(job: None) -> None:
    results: list = [None] * 8

    def work(number: int) -> None:
        results[number] = allreduce(np.full(4, number), f"thread{number}")

    order = range(8) if hvd.rank() % 2 else reversed(range(8))
    threads = [threading.Thread(target=work, args=(number,)) for number in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        np.testing.assert_array_equal(results[number], np.full(4, number * hvd.size()))


def test_shutdown_fails_pending_operations_of_other_ranks() -> None:
    hvd.init()
    if hvd.size() == 1:
        hvd.shutdown()
        pytest.skip("nothing waits with one rank")
    pending = submit(_core.ALLREDUCE, np.zeros(1), f"never{hvd.rank()}")
    _core.barrier()
    if hvd.rank() == 0:
        hvd.shutdown()
        with pytest.raises(HorovodInternalError, match="Horovod has been shut down."):
            _core.synchronize(pending)
        with pytest.raises(HorovodInternalError, match=NOT_INITIALIZED):
            submit(_core.ALLREDUCE, np.zeros(1))
    else:
        with pytest.raises(HorovodInternalError, match="Horovod has been shut down.*Rank 0 was the first"):
            _core.synchronize(pending)
        with pytest.raises(HorovodInternalError, match="Horovod has been shut down."):
            submit(_core.ALLREDUCE, np.zeros(1))
        hvd.shutdown()


def test_shutdown_while_another_thread_waits() -> None:
    hvd.init()
    if hvd.size() == 1:
        hvd.shutdown()
        pytest.skip("nothing waits with one rank")
    errors: list = []
    begun = threading.Event()

    def wait() -> None:
        handle = submit(_core.ALLREDUCE, np.zeros(1), f"only{hvd.rank()}")
        begun.set()
        try:
            _core.synchronize(handle)
        except HorovodInternalError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    _core.barrier()
    hvd.shutdown()
    thread.join(20)
    assert not thread.is_alive() and errors[0].startswith("Horovod has been shut down.")


def test_initial_process_sets() -> None:
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        pytest.skip("the only set is the global one")
    evens, odds = process_sets.ProcessSet(range(0, size, 2)), process_sets.ProcessSet(range(1, size, 2))
    assert (evens.size(), evens.rank(), evens.process_set_id) == (None, None, None)
    hvd.init(process_sets=[evens, odds])
    assert (evens.process_set_id, odds.process_set_id) == (1, 2)
    mine, other = (odds, evens) if hvd.rank() % 2 else (evens, odds)
    assert (mine.size(), mine.rank(), mine.included(), other.included()) == (len(mine.ranks), hvd.rank() // 2, True, False)
    with pytest.raises(ValueError, match="Process is not part of provided process set."):
        other.rank()
    result = allreduce(np.full(2, float(hvd.rank())), "set", 0, process_set=process_sets.process_set_id(mine))
    np.testing.assert_array_equal(result, np.full(2, np.mean(mine.ranks)))
    with pytest.raises(ValueError, match=f"Allreduce: Rank {hvd.rank()} is not a member of the provided process set."):
        submit(_core.ALLREDUCE, np.zeros(1), process_set=other.process_set_id)
    with pytest.raises(ValueError, match="Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow adding/removing process sets after"):
        process_sets.add_process_set([0])
    assert str(evens) == f"ProcessSet(process_set_id=1, ranks={evens.ranks}, mpi_comm=None)"
    _core.barrier()
    hvd.shutdown()
    assert evens.process_set_id is None
    with pytest.raises(ValueError, match="is not registered: pass it to hvd.init"):
        process_sets.process_set_id(evens)


def test_duplicate_initial_sets() -> None:
    size = int(os.environ.get("WORLD_SIZE", "1"))
    text = "Horovod could not be initialized because process_sets entry number {} is a duplicate: "
    with pytest.raises(ValueError, match=text.format(0)):
        hvd.init(process_sets=[process_sets.ProcessSet(range(size))])
    assert hvd.is_initialized()
    if size > 1:
        with pytest.raises(ValueError, match=text.format(1)):
            hvd.init(process_sets=[[0], [0]])
        good = process_sets.ProcessSet([1])
        hvd.init(process_sets=[good])
        assert process_sets.process_set_id(good) == 2
    _core.barrier()
    hvd.shutdown()


def test_invalid_sets_raise_at_init() -> None:
    with pytest.raises(ValueError, match="^Horovod initialization failed: .*: Tried to register process set with invalid rank: 99"):
        hvd.init(process_sets=[[0, 99]])
    assert not hvd.is_initialized()
    hvd.init()
    _core.barrier()
    hvd.shutdown()


def test_the_full_list_and_the_same_ranks_are_duplicates(job: None) -> None:
    with pytest.raises(ValueError, match="Attempted to add a duplicate process set: "):
        process_sets.add_process_set(range(hvd.size()))
    if hvd.size() > 1:
        first = process_sets.add_process_set([1])
        with pytest.raises(ValueError, match="Attempted to add a duplicate process set: "):
            process_sets.add_process_set([1])
        assert process_sets.remove_process_set(first) is True
        assert first.process_set_id is None
        assert process_sets.remove_process_set(first) is False
        assert process_sets.add_process_set([0]).process_set_id == 1
    assert process_sets.remove_process_set(process_sets.global_process_set) is False


def test_process_set_objects() -> None:
    for wrong in [5, ["a"], [None], "ab"]:
        with pytest.raises(ValueError, match="ProcessSet should be initialized with a list of process ranks or an mpi4py Comm"):
            process_sets.ProcessSet(wrong)
    assert process_sets.ProcessSet([2, 0, 2]).ranks == [0, 2, 2]
    assert (process_sets.ProcessSet.process_set_id, process_sets.ProcessSet.ranks, process_sets.ProcessSet.mpi_comm) == (None,) * 3


def test_timeline_needs_the_dynamic_setting(job: None) -> None:
    with pytest.raises(ValueError, match="Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage."):
        hvd.start_timeline("somewhere")


def test_timeline(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    hvd.init()
    for name in ("first", "second"):
        path = tmp_path / f"{name}.json"
        hvd.start_timeline(str(path), mark_cycles=True)
        allreduce(np.ones(2), name)
        hvd.stop_timeline()
        if hvd.rank() == 0:
            text = path.read_text()
            assert f"allreduce.{name}" in text
            # Including the first operation after the start.
            for event in ("NEGOTIATE_ALLREDUCE", "ALLREDUCE", "CYCLE_START"):
                assert f'"{event}"' in text, text
        _core.barrier()
    hvd.shutdown()


def test_comm_must_contain_all_ranks() -> None:
    size = int(os.environ.get("WORLD_SIZE", "1"))
    with pytest.raises(ValueError, match="comm must be a list of ranks"):
        hvd.init(comm=object())
    hvd.init(comm=list(range(size)))
    with pytest.raises(ValueError, match="without MPI all .* ranks of the job take part"):
        hvd.init(comm=[size])
    _core.barrier()
    hvd.shutdown()


def test_exceptions() -> None:
    assert issubclass(HorovodInternalError, RuntimeError)
    assert (HostsUpdatedInterrupt(True).skip_sync, HostsUpdatedInterrupt().skip_sync) == (True, False)
    mismatch = HorovodVersionMismatchError("horovod", "1", "2")
    assert isinstance(mismatch, ImportError) and (mismatch.version, mismatch.installed_version) == ("1", "2")


def test_util() -> None:
    assert [list(part) for part in util.split_list(list(range(7)), 3)] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [n for n in range(9) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert util.is_iterable([]) and not util.is_iterable(3)
    assert util.is_version_greater_equal_than("2.10.0rc1", "2.9.3") and not util.is_version_greater_equal_than("1.13", "1.13.1")
    for wrong in ["2.4", "2.4.0.1", 2]:
        with pytest.raises(ValueError):
            util.is_version_greater_equal_than("2.4.0", wrong)
    os.environ["KEPT"] = "before"
    with util.env(KEPT="within", NEW="x", OTHER=None):
        assert (os.environ["KEPT"], os.environ["NEW"], "OTHER" in os.environ) == ("within", "x", False)
    assert os.environ.pop("KEPT") == "before" and "NEW" not in os.environ
    which = util.get_average_backwards_compatibility_fun(hvd)
    assert (which(None, None), which(4, None)) == (hvd.Average, 4)
    with pytest.warns(DeprecationWarning):
        assert which(None, False) == hvd.Sum
    with pytest.raises(ValueError, match="The op parameter supersedes average. Please provide only one of them."):
        which(1, True)
