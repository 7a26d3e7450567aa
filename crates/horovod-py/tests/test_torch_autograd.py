"""Gradients of the collectives by Horovod's rules. SPMD."""

import numpy as np
import pytest
import torch

import horovod.torch as hvd

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()


def leaf(shape, dtype=torch.float64):
    return torch.arange(int(np.prod(shape)), dtype=dtype).reshape(shape).add_(RANK).requires_grad_()


def upstream(shape, rank=RANK):
    """The incoming gradient: another one on each rank."""
    return torch.arange(int(np.prod(shape)), dtype=torch.float64).reshape(shape) * (rank + 1)


def over_ranks(shape):
    return torch.stack([upstream(shape, rank) for rank in range(SIZE)])


@pytest.mark.parametrize("op,expected", [(None, "mean"), (hvd.Average, "mean"), (hvd.Sum, "sum")])
def test_allreduce(op, expected):
    given = leaf((4, 2))
    hvd.allreduce(given, op=op, name="g.allreduce").backward(upstream((4, 2)))
    torch.testing.assert_close(given.grad, getattr(over_ranks((4, 2)), expected)(0))


def test_allreduce_with_scales_and_a_gradient_that_is_not_contiguous():
    given = leaf((3, 3))
    hvd.allreduce(given, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0).sum().backward()
    torch.testing.assert_close(given.grad, torch.full((3, 3), 1.5 * SIZE, dtype=torch.float64))


def test_allreduce_through_compression():
    given = leaf((5,), torch.float32)
    hvd.allreduce(given, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    assert given.grad.dtype == torch.float32
    assert given.grad.tolist() == [SIZE] * 5


def test_grouped_allreduce():
    given = [leaf((2,)), leaf((3, 2))]
    results = hvd.grouped_allreduce(given, op=hvd.Sum)
    torch.autograd.backward(results, [upstream((2,)), upstream((3, 2))])
    for tensor in given:
        torch.testing.assert_close(tensor.grad, over_ranks(tensor.shape).sum(0))


def test_allgather():
    rows = RANK + 1
    total = SIZE * (SIZE + 1) // 2
    given = leaf((rows, 2))
    hvd.allgather(given, name="g.allgather").backward(upstream((total, 2)))
    before = RANK * (RANK + 1) // 2
    torch.testing.assert_close(given.grad, over_ranks((total, 2)).mean(0)[before : before + rows])


def test_grouped_allgather():
    given = [leaf((RANK + 1, 2)), leaf((2,))]
    total = SIZE * (SIZE + 1) // 2
    torch.autograd.backward(hvd.grouped_allgather(given), [upstream((total, 2)), upstream((SIZE * 2,))])
    before = RANK * (RANK + 1) // 2
    torch.testing.assert_close(given[0].grad, over_ranks((total, 2)).mean(0)[before : before + RANK + 1])
    torch.testing.assert_close(given[1].grad, over_ranks((SIZE * 2,)).mean(0)[RANK * 2 : RANK * 2 + 2])


def test_broadcast():
    root = SIZE - 1
    given = leaf((4,))
    hvd.broadcast(given, root).backward(upstream((4,)))
    expected = over_ranks((4,)).mean(0) if RANK == root else torch.zeros(4, dtype=torch.float64)
    torch.testing.assert_close(given.grad, expected)


def test_alltoall():
    splits = [to + 1 for to in range(SIZE)]
    given = leaf((sum(splits) + 2, 2))  # Two rows are sent to no rank.
    output, received = hvd.alltoall(given, splits)
    assert received.tolist() == [RANK + 1] * SIZE
    (output * (RANK + 1)).sum().backward()
    expected = torch.cat([torch.full((to + 1, 2), float(to + 1)) for to in range(SIZE)] + [torch.zeros(2, 2)]).double()
    torch.testing.assert_close(given.grad, expected)


@pytest.mark.parametrize("op,factor", [(hvd.Average, 1), (hvd.Sum, SIZE)])
def test_reducescatter(op, factor):
    rows = SIZE + 1
    given = leaf((rows, 2))
    output = hvd.reducescatter(given, op=op, prescale_factor=2.0, name=f"g.rs.{op}")
    output.backward(torch.full(output.shape, float(RANK + 1), dtype=torch.float64))
    owners = np.concatenate(
        [np.full(len(part), rank + 1.0) for rank, part in enumerate(np.array_split(np.arange(rows), SIZE))]
    )
    torch.testing.assert_close(given.grad, torch.tensor(owners)[:, None].expand(rows, 2) * 2.0 * factor)


def test_grouped_reducescatter():
    given = [leaf((SIZE, 2)), leaf((SIZE,))]
    results = hvd.grouped_reducescatter(given)
    torch.autograd.backward(results, [torch.full(one.shape, float(RANK + 1), dtype=torch.float64) for one in results])
    owners = torch.arange(1, SIZE + 1, dtype=torch.float64)
    torch.testing.assert_close(given[0].grad, owners[:, None].expand(SIZE, 2))
    torch.testing.assert_close(given[1].grad, owners)


def test_functions_without_gradient():
    given = leaf((3,))
    assert not hvd.synchronize(hvd.allreduce_async(given)).requires_grad
    assert hvd.allreduce(given.detach()).grad_fn is None
    with torch.no_grad():
        assert not hvd.allreduce(given).requires_grad


@pytest.mark.filterwarnings("ignore:Parameter `average`:DeprecationWarning")
def test_upstreams_functions_and_the_order_of_their_arguments():
    """As other packages call them."""
    from horovod.torch import mpi_ops

    all_ranks = hvd.global_process_set
    rows = sum(range(1, SIZE + 1))

    def check(function, *arguments):
        given = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        results = function.apply(*arguments)
        results = results if isinstance(results, tuple) else (results,)
        floating = [result for result in results if result.is_floating_point()]
        sum(result.sum() for result in floating).backward()
        assert all(tensor.grad.shape == tensor.shape for tensor in given)
        return results

    for average, op in [(True, None), (None, hvd.Average)]:
        (reduced,) = check(mpi_ops.HorovodAllreduce, leaf((3,)), average, "u.allreduce", op, 2.0, 0.5, all_ranks)
        torch.testing.assert_close(reduced, sum(leaf((3,)).detach() - RANK + rank for rank in range(SIZE)) / SIZE)
        grouped = check(
            mpi_ops.HorovodGroupedAllreduce, average, None, op, 1.0, 1.0, all_ranks, leaf((3,)), leaf((2,))
        )
        torch.testing.assert_close(grouped[0], reduced)
    assert check(mpi_ops.HorovodAllgather, leaf((RANK + 1, 2)), "u.allgather", all_ranks)[0].shape == (rows, 2)
    gathered = check(mpi_ops.HorovodGroupedAllgather, None, all_ranks, leaf((RANK + 1, 2)), leaf((1,)))
    assert [tuple(one.shape) for one in gathered] == [(rows, 2), (SIZE,)]
    (sent,) = check(mpi_ops.HorovodBroadcast, leaf((2,)), SIZE - 1, "u.broadcast", all_ranks)
    assert sent.tolist() == [SIZE - 1, SIZE]
    output, received = check(mpi_ops.HorovodAlltoall, leaf((SIZE,)), None, None, all_ranks)
    assert output.shape == (SIZE,) and received.tolist() == [1] * SIZE
    (part,) = check(mpi_ops.HorovodReducescatter, leaf((SIZE, 2)), None, hvd.Sum, all_ranks, 1.0, 1.0)
    assert part.shape == (1, 2)
    parts = check(mpi_ops.HorovodGroupedReducescatter, None, hvd.Sum, all_ranks, 1.0, 1.0, leaf((SIZE,)), leaf((SIZE,)))
    assert [tuple(one.shape) for one in parts] == [(1,), (1,)]


def test_names_that_other_packages_import():
    import horovod
    from horovod.common.util import check_extension, gpu_available
    from horovod.torch import mpi_ops

    assert horovod.torch is hvd
    assert hvd.check_extension is check_extension and mpi_ops.gpu_available is gpu_available
    check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", hvd.__file__, "mpi_lib_v2")
    assert gpu_available("torch") == hvd._check_has_gpu() == torch.cuda.is_available()
    basics = mpi_ops._basics
    assert (basics.rank(), basics.size(), basics.is_initialized()) == (RANK, SIZE, True)
    assert (basics.Average, basics.Sum, basics.Adasum) == (hvd.Average, hvd.Sum, hvd.Adasum)
    assert (basics._process_set_rank(0), basics._process_set_size(0)) == (RANK, SIZE)
    assert basics._get_process_set_ids_and_ranks() == {0: list(range(SIZE))}
    assert mpi_ops.HorovodInternalError is hvd.HorovodInternalError
