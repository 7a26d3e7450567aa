"""SyncBatchNorm against BatchNorm on the batches of all ranks together. SPMD."""

import pytest
import torch
from torch import nn

import horovod.torch as hvd

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()

SHAPES = {"2d": (5,), "3d": (5, 7), "4d": (5, 3, 4), "5d": (5, 2, 3, 2)}
PLAIN = {"2d": nn.BatchNorm1d, "3d": nn.BatchNorm1d, "4d": nn.BatchNorm2d, "5d": nn.BatchNorm3d}


def rows_of(rank):
    return 3 + rank  # Different on each rank.


def batch(shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(4)
    rows = sum(rows_of(rank) for rank in range(SIZE))
    return (torch.randn((rows, *shape), generator=generator, dtype=torch.float64) * 3 + 50).to(dtype)


def own(tensor):
    start = sum(rows_of(rank) for rank in range(RANK))
    return tensor[start : start + rows_of(RANK)]


def pair(kind, **options):
    torch.manual_seed(0)
    expected = PLAIN[kind](5, **options).double()
    if expected.affine:
        nn.init.uniform_(expected.weight)
        nn.init.uniform_(expected.bias)
    synchronized = hvd.SyncBatchNorm(5, **options).double()
    synchronized.load_state_dict(expected.state_dict())
    return synchronized, expected


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.1, "momentum": 0.3}],
)
def test_like_one_process(kind, options):
    synchronized, expected = pair(kind, **options)
    whole = batch(SHAPES[kind])
    for step in range(2):
        given = own(whole + step).clone().requires_grad_()
        reference = (whole + step).clone().requires_grad_()
        weights = torch.sin(torch.arange(whole.numel(), dtype=torch.float64)).reshape(whole.shape)
        result, wanted = synchronized(given), expected(reference)
        torch.testing.assert_close(result, own(wanted), rtol=1e-7, atol=1e-9)
        (result * own(weights)).sum().backward()
        (wanted * weights).sum().backward()
        torch.testing.assert_close(given.grad, own(reference.grad), rtol=1e-7, atol=1e-9)
    for name, buffer in expected.named_buffers():
        torch.testing.assert_close(dict(synchronized.named_buffers())[name], buffer, rtol=1e-9, atol=1e-9)
    if expected.affine:
        for parameter, other in zip(synchronized.parameters(), expected.parameters()):
            torch.testing.assert_close(hvd.allreduce(parameter.grad, op=hvd.Sum), other.grad, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 5e-2)])
def test_other_precisions(dtype, tolerance):
    if SIZE == 1 and dtype == torch.bfloat16:
        pytest.skip("with one rank it is PyTorch's own")
    synchronized, expected = pair("4d")
    synchronized = synchronized.to(dtype)
    whole = batch(SHAPES["4d"], dtype)
    result = synchronized(own(whole))
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), own(expected(whole.double())), rtol=tolerance, atol=tolerance)


def test_evaluation_uses_the_ordinary_batch_norm():
    synchronized, expected = pair("4d")
    synchronized.eval()
    expected.eval()
    given = batch(SHAPES["4d"])[: RANK + 1]  # No communication.
    torch.testing.assert_close(synchronized(given), expected(given))


@pytest.mark.skipif(SIZE < 2, reason="PyTorch refuses an empty batch")
def test_a_rank_without_samples():
    synchronized, expected = pair("2d")
    whole = batch((5,))
    given = (whole if RANK == 0 else whole[:0]).clone().requires_grad_()
    result = synchronized(given)
    result.sum().backward()
    wanted = expected(whole)
    torch.testing.assert_close(result, wanted if RANK == 0 else wanted[:0])
    torch.testing.assert_close(synchronized.running_var, expected.running_var)


def test_invalid_dimensions():
    with pytest.raises(ValueError, match=r"expected at least 2D input \(got 1D input\)"):
        hvd.SyncBatchNorm(5)(torch.ones(5))


def test_in_a_model_with_a_distributed_optimizer():
    def network(norm):
        torch.manual_seed(9)
        return nn.Sequential(nn.Conv2d(5, 5, 3), norm, nn.ReLU(), nn.Flatten(), nn.LazyLinear(1)).double()

    # The same number of rows on each rank: the average over ranks is that over samples.
    images = torch.randn((2 * SIZE, 5, 6, 6), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    model, expected = network(hvd.SyncBatchNorm(5)), network(nn.BatchNorm2d(5))
    for one in (model, expected):
        torch.manual_seed(3)
        one(images)
    hvd.broadcast_parameters(expected.state_dict(), 0)
    model.load_state_dict(expected.state_dict())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(images[RANK * 2 : RANK * 2 + 2]).square().mean().backward()
        optimizer.step()
        plain.zero_grad()
        expected(images).square().mean().backward()
        plain.step()
    for parameter, other in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(parameter.detach(), other.detach(), rtol=1e-6, atol=1e-8)
