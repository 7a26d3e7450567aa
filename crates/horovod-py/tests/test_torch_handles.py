"""Handles, names and errors of horovod.torch: exception and text on every rank, and that the engine continues
afterwards. SPMD."""

import numpy as np
import pytest
import torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()
together = pytest.mark.skipif(SIZE < 2, reason="a rank alone agrees with itself")


@pytest.fixture(autouse=True)
def the_engine_goes_on():
    yield
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [SIZE] * 3


def fails_everywhere(call, text):
    with pytest.raises(HorovodInternalError) as caught:
        call()
    assert text in str(caught.value)


def test_a_handle_is_synchronized_once():
    handle = hvd.allreduce_async(torch.ones(4), op=hvd.Sum)
    assert isinstance(handle, int)
    assert hvd.synchronize(handle).tolist() == [SIZE] * 4
    assert hvd.synchronize(handle) is None
    with pytest.raises(ValueError, match=f"Handle {handle} was not created or has been cleared."):
        hvd.poll(handle)


def test_unknown_handles():
    assert hvd.synchronize(10**9) is None
    with pytest.raises(ValueError, match="Handle 1000000000 was not created or has been cleared."):
        hvd.poll(10**9)


def test_poll():
    handle = hvd.allreduce_async(torch.ones(4))
    hvd.barrier()
    while not hvd.poll(handle):
        hvd.barrier()
    assert hvd.synchronize(handle) is not None


def test_a_handle_keeps_its_tensors():
    handle = hvd.allreduce_async_(torch.full((100_000,), 2.0), op=hvd.Sum)  # No other reference exists.
    others = [torch.zeros(100_000) for _ in range(10)]
    assert hvd.synchronize(handle).sum().item() == 2.0 * SIZE * 100_000
    assert all(other.sum() == 0 for other in others)


def test_asynchronous_versions():
    ones = torch.ones(SIZE, 2)
    assert hvd.synchronize(hvd.allreduce_async_(ones.clone(), op=hvd.Sum)).sum() == SIZE * SIZE * 2
    assert hvd.synchronize(hvd.broadcast_async(ones * RANK, 0)).sum() == 0
    assert hvd.synchronize(hvd.broadcast_async_(ones * RANK, 0)).sum() == 0
    assert hvd.synchronize(hvd.allgather_async(ones)).shape == (SIZE * SIZE, 2)
    assert hvd.synchronize(hvd.reducescatter_async(ones, op=hvd.Sum)).tolist() == [[SIZE, SIZE]]
    output, received = hvd.synchronize(hvd.alltoall_async(ones))
    assert output.shape == (SIZE, 2) and received.tolist() == [1] * SIZE
    for start in (hvd.grouped_allreduce_async, hvd.grouped_allreduce_async_):
        assert [one.sum().item() for one in hvd.synchronize(start([torch.ones(2), torch.ones(3)], op=hvd.Sum))] == [
            2 * SIZE,
            3 * SIZE,
        ]
    assert [len(one) for one in hvd.synchronize(hvd.grouped_allgather_async([ones, ones]))] == [SIZE * SIZE] * 2
    assert [len(one) for one in hvd.synchronize(hvd.grouped_reducescatter_async([ones, ones]))] == [1, 1]


def test_a_duplicate_name_in_flight_is_rejected():
    # Rank 0 submits later, so that the first operation cannot end before the second is submitted.
    if SIZE == 1:
        pytest.skip("an operation of one rank may have ended at once")
    if RANK == 0:
        hvd.barrier()
        hvd.allreduce(torch.ones(2), name="twice")
    else:
        first = hvd.allreduce_async(torch.ones(2), name="twice")
        with pytest.raises(
            ValueError,
            match="Requested to allreduce, allgather, or broadcast a tensor with the same name as another tensor",
        ):
            hvd.allreduce_async(torch.ones(2), name="twice")
        hvd.barrier()
        hvd.synchronize(first)


def test_a_rejected_argument_does_not_shift_unnamed_names():
    if RANK == 0:
        with pytest.raises(ValueError):
            hvd.allreduce(torch.ones(4, 4).t()[1:])
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [SIZE] * 2


def test_rejected_tensors():
    with pytest.raises(ValueError, match="Tensor is required to be contiguous."):
        hvd.allreduce_(torch.ones(4, 3).t())
    with pytest.raises(ValueError, match="Tensor type torch.ComplexFloatTensor is not supported."):
        hvd.allreduce(torch.ones(4, dtype=torch.complex64))
    with pytest.raises(ValueError, match="Reducescatter does not support scalar inputs"):
        hvd.reducescatter(torch.tensor(1.0))
    with pytest.raises(IndexError, match="tuple index out of range"):
        hvd.allgather(torch.tensor(1.0))
    with pytest.raises((ValueError, HorovodInternalError)):
        hvd.alltoall(torch.tensor(1.0))


def test_rejected_splits():
    given = torch.ones(SIZE * 2, 2)
    with pytest.raises(ValueError, match="alltoall expects splits to contain 32-bit integer elements."):
        hvd.alltoall(given, torch.ones(SIZE, dtype=torch.int64))
    with pytest.raises(ValueError, match="alltoall expects a 1D splits tensor"):
        hvd.alltoall(given, torch.ones(SIZE, 1, dtype=torch.int32))
    with pytest.raises(ValueError, match="Sum of splits entries is greater than the first dimension of tensor."):
        hvd.alltoall(given, [3] * SIZE)
    with pytest.raises(ValueError, match="Number of entries in splits does not equal number of workers."):
        hvd.alltoall(given, [1] * (SIZE + 1))
    if SIZE > 1:
        with pytest.raises(
            ValueError,
            match="splits not provided, but first dimension of tensor is not an even multiple of the number of",
        ):
            hvd.alltoall(torch.ones(SIZE + 1, 2))


def test_rejected_roots():
    with pytest.raises(ValueError, match="broadcast received invalid root rank 99 for provided process set"):
        hvd.broadcast(torch.ones(2), root_rank=99)


@together
def test_shapes_differ():
    fails_everywhere(
        lambda: hvd.allreduce(torch.ones(3 + min(RANK, 1)), name="shapes"),
        "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [",
    )
    fails_everywhere(
        lambda: hvd.broadcast(torch.ones(3 + min(RANK, 1)), 0, name="shapes"), "Mismatched BROADCAST tensor shapes"
    )
    fails_everywhere(
        lambda: hvd.reducescatter(torch.ones(3 + min(RANK, 1), 2), name="shapes.rs"),
        "Mismatched REDUCESCATTER tensor shapes",
    )
    fails_everywhere(
        lambda: hvd.allgather(torch.ones(2, 3 + min(RANK, 1)), name="shapes"),
        "Mismatched ALLGATHER tensor shapes: One rank sent a tensor with dimension 1 equal to",
    )
    fails_everywhere(
        lambda: hvd.allgather(torch.ones([2] * (1 + min(RANK, 1))), name="ranks"),
        "Mismatched ALLGATHER tensor shapes: One rank sent a tensor of rank",
    )
    fails_everywhere(
        lambda: hvd.alltoall(torch.ones(SIZE, 3 + min(RANK, 1)), name="shapes"), "Mismatched ALLTOALL tensor shapes"
    )


@together
def test_dtypes_differ():
    given = torch.ones(3, dtype=torch.float32 if RANK == 0 else torch.float64)
    fails_everywhere(lambda: hvd.allreduce(given, name="dtypes"), "Mismatched data types: One rank had type float")


@together
def test_operations_differ():
    def call():
        if RANK == 0:
            hvd.synchronize(hvd.allreduce_async(torch.ones(2), name="same"))
        else:
            from horovod import _core

            tensor = torch.ones(2)
            entry = (tensor.data_ptr(), 0, 7, (2,))
            handle = _core.submit(_core.ALLGATHER, "allreduce", "same", (entry,), keep=tensor)
            _core.synchronize(handle)

    fails_everywhere(call, "Mismatched operations: One rank did an AL")


@together
def test_ops_scales_and_roots_differ():
    fails_everywhere(
        lambda: hvd.allreduce(torch.ones(2), name="ops", op=hvd.Sum if RANK == 0 else hvd.Max),
        "Mismatched reduction operation: One rank sent reduction op",
    )
    fails_everywhere(
        lambda: hvd.allreduce(torch.ones(2), name="scales", op=hvd.Sum, prescale_factor=1.0 + min(RANK, 1)),
        "Mismatched prescale and/or postscale factors: One rank sent factors (",
    )
    fails_everywhere(
        lambda: hvd.broadcast(torch.ones(2), min(RANK, 1), name="roots"),
        "Mismatched BROADCAST root ranks: One rank specified root rank",
    )


@together
def test_one_invalid_tensor_fails_its_group():
    given = [torch.ones(2), torch.ones(3 + min(RANK, 1))]
    fails_everywhere(lambda: hvd.grouped_allreduce(given, name="bad.group"), "Mismatched ALLREDUCE tensor shapes")


def test_reducescatter_supports_sum_and_average():
    fails_everywhere(
        lambda: hvd.reducescatter(torch.ones(SIZE), op=hvd.Max),
        "Reducescatter currently only supports AVERAGE and SUM.",
    )


def test_an_op_that_does_not_exist():
    fails_everywhere(lambda: hvd.allreduce(torch.ones(2), op=17, name="op.17"), "Reduction op type not supported.")


def test_adasum_needs_all_ranks_and_a_power_of_two():
    if SIZE & (SIZE - 1):
        with pytest.raises(NotImplementedError, match="Running Adasum with non-power of 2 ranks is not supported yet."):
            hvd.allreduce(torch.ones(2), op=hvd.Adasum)
    with pytest.raises(NotImplementedError, match="Adasum does not support non-global process sets yet."):
        hvd.allreduce(torch.ones(2), op=hvd.Adasum, process_set=hvd.ProcessSet([0]))


def test_an_unregistered_process_set_is_named():
    with pytest.raises(ValueError, match="regist"):
        hvd.allreduce(torch.ones(2), process_set=hvd.ProcessSet([0]))


def test_join_with_uneven_data():
    steps = RANK + 1
    for step in range(steps):
        result = hvd.allreduce(torch.full((3,), 2.0), name="uneven")
        still = SIZE - step  # Ranks that joined contribute zeros; the average is over all.
        assert result.tolist() == pytest.approx([2.0 * still / SIZE] * 3)
    last = hvd.join()
    assert last == SIZE - 1


@together
def test_operations_not_supported_with_join():
    if RANK == 0:
        hvd.join()
    else:
        for call, name in ((hvd.allgather, "Allgather"), (lambda given: hvd.broadcast(given, 1), "Broadcast")):
            with pytest.raises(HorovodInternalError, match=f"{name} is not supported with Join at this time."):
                call(torch.ones(2))
        hvd.join()


def test_shutdown_and_restart():
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(HorovodInternalError, match="Horovod has not been initialized; use hvd.init()."):
        hvd.allreduce(torch.ones(2))
    with pytest.raises(ValueError, match="Horovod has not been initialized; use hvd.init()."):
        hvd.rank()
    hvd.init()
    np.testing.assert_allclose(hvd.allreduce(torch.ones(2) * hvd.rank(), op=hvd.Sum).numpy(), sum(range(SIZE)))
