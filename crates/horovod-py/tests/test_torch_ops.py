"""The collectives of horovod.torch against NumPy: every function, every dtype, grouped, in process sets. SPMD."""

import inspect

import numpy as np
import pytest
import torch

import horovod.torch as hvd
from horovod.torch import mpi_ops

INIT = {"process_sets": "dynamic"}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()

REDUCED = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
MOVED = REDUCED + [torch.bool]
SHAPES = [(), (1,), (17,), (3, 5), (2, 3, 4), (0,), (2, 0)]


def tensor_of(rank, shape=(4, 3), dtype=torch.float32):
    """The contribution of a rank: small integers, which every dtype represents exactly, also summed."""
    generator = np.random.default_rng(1000 + rank)
    values = generator.integers(0, 5, size=shape)
    return torch.as_tensor(np.asarray(values)).reshape(shape).to(dtype)


def of_all(shape=(4, 3), dtype=torch.float32, ranks=range(SIZE)):
    return np.stack([tensor_of(rank, shape, dtype).double().numpy() for rank in ranks])


def same(tensor, expected):
    assert tuple(tensor.shape) == expected.shape
    np.testing.assert_allclose(tensor.double().numpy(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("shape", SHAPES)
def test_allreduce_sums(dtype, shape):
    given = tensor_of(RANK, shape, dtype)
    kept = given.clone()
    result = hvd.allreduce(given, op=hvd.Sum)
    assert result.dtype == dtype
    same(result, of_all(shape, dtype).sum(0))
    assert torch.equal(given, kept), "the input of an out-of-place operation stays"
    again = hvd.allreduce_(given, op=hvd.Sum)
    assert again is given
    same(given, of_all(shape, dtype).sum(0))


@pytest.mark.parametrize("dtype", REDUCED)
def test_allreduce_minimum_maximum_product(dtype):
    given = tensor_of(RANK, (40,), dtype)
    same(hvd.allreduce(given, op=hvd.Min), of_all((40,), dtype).min(0))
    same(hvd.allreduce(given, op=hvd.Max), of_all((40,), dtype).max(0))
    # Zeros and ones only: larger products overflow the small dtypes.
    bits = (given > 0).to(dtype)
    same(hvd.allreduce(bits, op=hvd.Product), (of_all((40,), dtype) > 0).all(0).astype(float))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_allreduce_averages_by_default(dtype):
    given = tensor_of(RANK, (9, 2), dtype)
    result = hvd.allreduce(given)
    np.testing.assert_allclose(
        result.double().numpy(), of_all((9, 2), dtype).mean(0), rtol=1e-2 if torch.finfo(dtype).bits == 16 else 1e-6
    )


def test_integer_average_truncates():
    given = torch.tensor([-3, 3, 5, -5], dtype=torch.int32) if RANK == 0 else torch.zeros(4, dtype=torch.int32)
    expected = np.trunc(np.array([-3, 3, 5, -5]) / SIZE)
    same(hvd.allreduce(given), expected)


def test_bool_is_combined_but_not_averaged():
    given = torch.tensor([RANK == 0, True, False])
    assert hvd.allreduce(given, op=hvd.Max).tolist() == [True, True, False]
    assert hvd.allreduce(given, op=hvd.Min).tolist() == [SIZE == 1, True, False]
    with pytest.raises(ValueError, match="Tensor type torch.BoolTensor is not supported."):
        hvd.allreduce(given)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.float32, torch.float64])
def test_scales(dtype):
    given = tensor_of(RANK, (12,), dtype)
    prescaled = np.trunc(of_all((12,), dtype) * 0.5) if dtype == torch.int32 else of_all((12,), dtype) * 0.5
    same(hvd.allreduce(given, op=hvd.Sum, prescale_factor=0.5), prescaled.sum(0))
    same(hvd.allreduce(given, op=hvd.Sum, postscale_factor=2.0), of_all((12,), dtype).sum(0) * 2)


def test_average_is_deprecated():
    given = tensor_of(RANK)
    with pytest.warns(DeprecationWarning):
        same(hvd.allreduce(given, average=False), of_all().sum(0))
    with pytest.raises(ValueError, match="The op parameter supersedes average. Please provide only one of them."):
        hvd.allreduce(given, average=True, op=hvd.Sum)


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16])
def test_compression_restores_the_dtype(compression):
    for dtype in (torch.float32, torch.float64, torch.int64):
        result = hvd.allreduce(tensor_of(RANK, (8,), dtype), op=hvd.Sum, compression=compression)
        assert result.dtype == dtype
        same(result, of_all((8,), dtype).sum(0))
    scattered = hvd.reducescatter(tensor_of(RANK, (SIZE, 2)), op=hvd.Sum, compression=compression)
    same(scattered, of_all((SIZE, 2)).sum(0)[RANK : RANK + 1])


def test_grouped_allreduce_of_mixed_dtypes():
    dtypes = [torch.float32, torch.int64, torch.float32, torch.float16]
    shapes = [(3,), (2, 2), (0,), ()]
    given = [tensor_of(RANK, shape, dtype) for shape, dtype in zip(shapes, dtypes)]
    results = hvd.grouped_allreduce(given, op=hvd.Sum, name="mixed")
    assert isinstance(results, list)
    for result, shape, dtype in zip(results, shapes, dtypes):
        assert result.dtype == dtype
        same(result, of_all(shape, dtype).sum(0))
    in_place = hvd.grouped_allreduce_(given, op=hvd.Sum)
    assert isinstance(in_place, tuple) and all(one is other for one, other in zip(in_place, given))
    for result, shape, dtype in zip(given, shapes, dtypes):
        same(result, of_all(shape, dtype).sum(0))


@pytest.mark.parametrize("call", [hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter])
def test_an_empty_group_is_rejected(call):
    with pytest.raises(ValueError):
        call([])


@pytest.mark.parametrize("dtype", MOVED)
def test_allgather(dtype):
    rows = RANK + 1
    result = hvd.allgather(tensor_of(RANK, (rows, 3), dtype))
    assert result.dtype == dtype
    same(result, np.concatenate([of_all((rank + 1, 3), dtype, [rank])[0] for rank in range(SIZE)]))
    result.zero_()  # Results belong to the caller.


def test_allgather_of_empty_tensors():
    rows = 0 if RANK == 0 else 2
    result = hvd.allgather(torch.ones(rows, 3))
    assert result.shape == (2 * (SIZE - 1), 3)
    assert hvd.allgather(torch.ones(0, 3)).shape == (0, 3)


def test_grouped_allgather():
    given = [tensor_of(RANK, (2, 2)), tensor_of(RANK, (RANK,), torch.int32)]
    results = hvd.grouped_allgather(given, name="gathered")
    assert isinstance(results, tuple)
    same(results[0], np.concatenate(list(of_all((2, 2)))))
    same(results[1], np.concatenate([of_all((rank,), torch.int32, [rank])[0] for rank in range(SIZE)]))


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("shape", SHAPES)
def test_broadcast(dtype, shape):
    for root in range(SIZE):
        given = tensor_of(RANK, shape, dtype)
        kept = given.clone()
        result = hvd.broadcast(given, root_rank=root)
        assert result is not given and torch.equal(given, kept)
        same(result, of_all(shape, dtype, [root])[0])
        assert hvd.broadcast_(given, root_rank=root) is given
        same(given, of_all(shape, dtype, [root])[0])


@pytest.mark.parametrize("dtype", MOVED)
def test_alltoall_with_even_parts(dtype):
    result = hvd.alltoall(tensor_of(RANK, (SIZE * 2, 3), dtype))
    assert result.dtype == dtype
    same(result, np.concatenate([part[RANK * 2 : RANK * 2 + 2] for part in of_all((SIZE * 2, 3), dtype)]))


@pytest.mark.parametrize("as_tensor", [False, True])
def test_alltoall_with_splits(as_tensor):
    splits = [(RANK + to) % 3 for to in range(SIZE)]
    total = sum(splits) + 1  # The last row is sent to no rank.
    given = torch.arange(total * 2, dtype=torch.float32).reshape(total, 2) + 100 * RANK
    result, received = hvd.alltoall(given, torch.tensor(splits, dtype=torch.int32) if as_tensor else splits)
    expected = []
    for sender in range(SIZE):
        theirs = [(sender + to) % 3 for to in range(SIZE)]
        rows = np.arange((sum(theirs) + 1) * 2, dtype=np.float64).reshape(-1, 2) + 100 * sender
        expected.append(rows[sum(theirs[:RANK]) : sum(theirs[: RANK + 1])])
    same(result, np.concatenate(expected))
    assert received.dtype == torch.int32
    assert received.tolist() == [(sender + RANK) % 3 for sender in range(SIZE)]


def test_alltoall_of_empty_tensors():
    assert hvd.alltoall(torch.ones(0, 2)).shape == (0, 2)


@pytest.mark.parametrize("dtype", REDUCED)
def test_reducescatter(dtype):
    rows = 2 * SIZE + 1
    result = hvd.reducescatter(tensor_of(RANK, (rows, 3), dtype), op=hvd.Sum)
    assert result.dtype == dtype
    same(result, np.array_split(of_all((rows, 3), dtype).sum(0), SIZE)[RANK])


def test_reducescatter_averages_by_default_and_may_return_empty_tensors():
    result = hvd.reducescatter(tensor_of(RANK, (1, 4)))
    np.testing.assert_allclose(result.numpy(), of_all((1, 4)).mean(0)[:1] if RANK == 0 else np.zeros((0, 4)), rtol=1e-6)
    assert hvd.reducescatter(torch.ones(0, 2)).shape == (0, 2)


def test_grouped_reducescatter():
    given = [tensor_of(RANK, (SIZE, 2)), tensor_of(RANK, (3,), torch.int32)]
    results = hvd.grouped_reducescatter(given, op=hvd.Sum)
    assert isinstance(results, list)
    same(results[0], of_all((SIZE, 2)).sum(0)[RANK : RANK + 1])
    same(results[1], np.array_split(of_all((3,), torch.int32).sum(0), SIZE)[RANK])


def test_many_concurrent_operations_in_different_orders():
    count = 200
    order = np.random.default_rng(RANK).permutation(count)
    handles = {
        number: hvd.allreduce_async(torch.full((5,), float(number + RANK)), op=hvd.Sum, name=f"many.{number}")
        for number in order
    }
    for number in range(count):
        result = hvd.synchronize(handles[number])
        same(result, np.full(5, float(sum(number + rank for rank in range(SIZE)))))


def test_a_large_tensor():
    given = torch.arange(1_500_000, dtype=torch.float32) + RANK
    same(hvd.allreduce(given, op=hvd.Sum), np.arange(1_500_000) * float(SIZE) + sum(range(SIZE)))


def test_sparse_allreduce():
    indices = torch.tensor([[0, RANK + 1]])
    given = torch.sparse_coo_tensor(indices, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (SIZE + 1, 2))
    summed = hvd.sparse_allreduce_async(given, "sparse.sum", hvd.Sum)()
    expected = np.zeros((SIZE + 1, 2))
    expected[0] = np.array([1.0, 2.0]) * SIZE
    expected[1:] = [3.0, 4.0]
    same(summed.to_dense(), expected)
    averaged = hvd.sparse_allreduce_async(given, "sparse.average", hvd.Average)()
    np.testing.assert_allclose(averaged.to_dense().numpy(), expected / SIZE, rtol=1e-6)
    with pytest.raises(NotImplementedError):
        hvd.sparse_allreduce_async(given, "sparse.max", hvd.Max)


SIGNATURES = {
    "allreduce": "tensor average=None name=None compression op=None prescale_factor=1.0 postscale_factor=1.0 "
    "process_set",
    "allreduce_": "tensor average=None name=None op=None prescale_factor=1.0 postscale_factor=1.0 process_set",
    "grouped_allreduce": "tensors average=None name=None compression op=None prescale_factor=1.0 postscale_factor=1.0 "
    "process_set",
    "grouped_allreduce_": "tensors average=None name=None op=None prescale_factor=1.0 postscale_factor=1.0 process_set",
    "sparse_allreduce_async": "tensor name op process_set",
    "allgather": "tensor name=None process_set",
    "grouped_allgather": "tensors name=None process_set",
    "broadcast": "tensor root_rank name=None process_set",
    "alltoall": "tensor splits=None name=None process_set",
    "reducescatter": "tensor name=None compression op=0 process_set prescale_factor=1.0 postscale_factor=1.0",
    "reducescatter_async": "tensor name=None op=0 process_set prescale_factor=1.0 postscale_factor=1.0",
    "grouped_reducescatter": "tensors name=None compression op=0 process_set prescale_factor=1.0 postscale_factor=1.0",
    "grouped_reducescatter_async": "tensors name=None op=0 process_set prescale_factor=1.0 postscale_factor=1.0",
    "poll": "handle",
    "synchronize": "handle",
    "join": "device=-1",
    "barrier": "process_set",
    "broadcast_parameters": "params root_rank",
    "broadcast_optimizer_state": "optimizer root_rank model=None",
    "broadcast_object": "obj root_rank=0 name=None process_set",
    "allgather_object": "obj name=None process_set",
    "DistributedOptimizer": "optimizer named_parameters=None compression backward_passes_per_step=1 op=0 "
    "gradient_predivide_factor=1.0 num_groups=0 groups=None sparse_as_dense=False process_set",
    "SyncBatchNorm": "num_features eps=1e-05 momentum=0.1 affine=True track_running_stats=True",
}
SIGNATURES.update(
    {
        "allreduce_async": SIGNATURES["allreduce_"],
        "allreduce_async_": SIGNATURES["allreduce_"],
        "grouped_allreduce_async": SIGNATURES["grouped_allreduce_"],
        "grouped_allreduce_async_": SIGNATURES["grouped_allreduce_"],
        "allgather_async": SIGNATURES["allgather"],
        "grouped_allgather_async": SIGNATURES["grouped_allgather"],
        "broadcast_": SIGNATURES["broadcast"],
        "broadcast_async": SIGNATURES["broadcast"],
        "broadcast_async_": SIGNATURES["broadcast"],
        "alltoall_async": SIGNATURES["alltoall"],
    }
)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_match_upstream(name):
    found = []
    for parameter in inspect.signature(getattr(hvd, name)).parameters.values():
        if parameter.default is parameter.empty:
            found.append(parameter.name)
        elif parameter.name == "process_set":
            assert parameter.default is hvd.global_process_set
            found.append(parameter.name)
        elif parameter.name == "compression":
            assert parameter.default is hvd.Compression.none
            found.append(parameter.name)
        else:
            found.append(f"{parameter.name}={parameter.default!r}")
    assert " ".join(found) == SIGNATURES[name]


def test_barrier_and_names_of_the_modules():
    hvd.barrier()
    assert mpi_ops.rank() == RANK and mpi_ops.size() == SIZE
    assert mpi_ops.allreduce is hvd.allreduce and mpi_ops.synchronize is hvd.synchronize


@pytest.mark.skipif(SIZE < 2, reason="a part of one rank is all of it")
def test_process_sets():
    half = hvd.add_process_set(range(0, SIZE, 2)) if SIZE > 2 else hvd.add_process_set([0])
    members = half.ranks
    try:
        if half.included():
            same(hvd.allreduce(tensor_of(RANK), op=hvd.Sum, process_set=half), of_all(ranks=members).sum(0))
            np.testing.assert_allclose(
                hvd.allreduce(tensor_of(RANK), process_set=half).numpy(), of_all(ranks=members).mean(0), rtol=1e-6
            )
            same(hvd.allgather(tensor_of(RANK), process_set=half), np.concatenate(list(of_all(ranks=members))))
            same(hvd.broadcast(tensor_of(RANK), members[-1], process_set=half), of_all(ranks=members)[-1])
            scattered = hvd.reducescatter(tensor_of(RANK), op=hvd.Sum, process_set=half)
            same(scattered, np.array_split(of_all(ranks=members).sum(0), len(members))[half.rank()])
            sent = tensor_of(RANK, (len(members), 2))
            expected = of_all((len(members), 2), ranks=members)[:, half.rank()]
            same(hvd.alltoall(sent, process_set=half), expected)
            hvd.barrier(process_set=half)
        else:
            with pytest.raises(
                ValueError, match=f"Allreduce: Rank {RANK} is not a member of the provided process set."
            ):
                hvd.allreduce(tensor_of(RANK), process_set=half)
    finally:
        assert hvd.remove_process_set(half)
    with pytest.raises(ValueError, match="regist"):
        hvd.allreduce(tensor_of(RANK), process_set=half)
    # Operations of the members have not shifted the numbering of unnamed operations.
    same(hvd.allreduce(tensor_of(RANK), op=hvd.Sum), of_all().sum(0))
