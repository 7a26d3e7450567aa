"""Adasum: the operation against its formula, and the optimizer that combines steps. SPMD."""

import numpy as np
import pytest
import torch
from torch import nn

import horovod.torch as hvd

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()
pytestmark = pytest.mark.skipif(SIZE & (SIZE - 1) != 0, reason="Adasum wants a power of two")


def adasum(vectors):
    """Reference: pairs of neighbours, then pairs of pairs."""
    while len(vectors) > 1:
        vectors = [combined(one, other) for one, other in zip(vectors[::2], vectors[1::2])]
    return vectors[0]


def combined(one, other):
    dot, one_norm, other_norm = (one * other).sum(), (one * one).sum(), (other * other).sum()
    one_part = 1 - dot / (2 * one_norm) if one_norm > 0 else 1.0
    other_part = 1 - dot / (2 * other_norm) if other_norm > 0 else 1.0
    return one_part * one + other_part * other


def vector_of(rank, count=50):
    return np.random.default_rng(rank).standard_normal(count)


@pytest.mark.parametrize("dtype,tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.float16, 1e-2)])
def test_allreduce(dtype, tolerance):
    result = hvd.allreduce(torch.tensor(vector_of(RANK)).to(dtype), op=hvd.Adasum)
    expected = adasum([vector_of(rank) for rank in range(SIZE)])
    np.testing.assert_allclose(result.double().numpy(), expected, rtol=tolerance, atol=tolerance)


def test_equal_vectors_are_averaged_and_orthogonal_ones_added():
    assert hvd.allreduce(torch.ones(4), op=hvd.Adasum).tolist() == pytest.approx([1.0] * 4)
    result = hvd.allreduce(torch.eye(SIZE)[RANK].contiguous(), op=hvd.Adasum)
    assert result.tolist() == pytest.approx([1.0] * SIZE)


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)).double()


def inputs_of(rank, step):
    return torch.tensor(np.random.default_rng(100 * step + rank).standard_normal((5, 4)))


@pytest.mark.parametrize("passes", [1, 2])
def test_the_steps_of_the_ranks_are_combined(passes):
    model = network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.1),
        model.named_parameters(),
        op=hvd.Adasum,
        backward_passes_per_step=passes,
    )
    assert isinstance(optimizer, torch.optim.Adam)
    replicas = [network() for _ in range(SIZE)]
    locals_ = [torch.optim.Adam(replica.parameters(), lr=0.1) for replica in replicas]
    for step in range(3):
        optimizer.zero_grad()
        for _ in range(passes):
            model(inputs_of(RANK, step)).square().mean().backward()
        optimizer.step()
        before = [parameter.detach().numpy().copy() for parameter in replicas[0].parameters()]
        for rank, (replica, local) in enumerate(zip(replicas, locals_)):
            local.zero_grad()
            for _ in range(passes):
                replica(inputs_of(rank, step)).square().mean().backward()
            local.step()
        for idx, start in enumerate(before):
            changes = [list(replica.parameters())[idx].detach().numpy() - start for replica in replicas]
            for replica in replicas:
                list(replica.parameters())[idx].data.copy_(torch.tensor(start + adasum(changes)))
    for parameter, expected in zip(model.parameters(), replicas[0].parameters()):
        torch.testing.assert_close(parameter.detach(), expected.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(SIZE < 2, reason="a rank alone takes the ordinary optimizer")
def test_rejected_arguments():
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
    optimizer.synchronize()
    with pytest.raises(AssertionError):
        with optimizer.skip_synchronize():
            pass
    with pytest.raises(NotImplementedError, match="Adasum does not support non-global process sets yet."):
        some = hvd.ProcessSet([0])
        some.process_set_id = 1
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum, process_set=some)
    hvd.barrier()
