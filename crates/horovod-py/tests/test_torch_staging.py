"""Staging of tensors that the engine cannot access, tested with CPU tensors: as much of the GPU path as can be tested
without one. SPMD."""

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.torch import _tensors

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()


class Late:
    """Event of a copy that is not complete until it is waited for."""

    waited_for = 0

    def __init__(self, tensor, host):
        self.tensor, self.host = tensor, host
        self.is_over = False

    def query(self):
        return self.is_over

    def synchronize(self):
        if not self.is_over:
            Late.waited_for += 1
            self.host.copy_(self.tensor.detach())
            self.is_over = True


@pytest.fixture(autouse=True, params=["at once", "late"])
def far_away(request, monkeypatch):
    """Makes tensors appear to be on another device; their copies complete at once, or when they are waited for."""
    monkeypatch.setattr(_tensors, "in_main_memory", lambda tensor: False)
    if request.param == "late":
        monkeypatch.setattr(_tensors, "start_copy_to_host", Late)
        monkeypatch.setattr(_tensors, "wait_in_stream", lambda tensor, event: None)
    return request.param


def own(rank=RANK, rows=2):
    return torch.arange(rows * 3, dtype=torch.float32).reshape(rows, 3) + rank


def of_all(rows=2):
    return torch.stack([own(rank, rows) for rank in range(SIZE)])


def test_collectives():
    given = own()
    assert torch.equal(hvd.allreduce(given, op=hvd.Sum), of_all().sum(0))
    assert torch.equal(given, own())
    assert hvd.allreduce_(given, op=hvd.Sum) is given
    assert torch.equal(given, of_all().sum(0))
    assert torch.equal(hvd.broadcast(own(), SIZE - 1), own(SIZE - 1))
    assert torch.equal(hvd.broadcast_(own(), SIZE - 1), own(SIZE - 1))
    assert torch.equal(hvd.allgather(own()), of_all().reshape(-1, 3))
    assert torch.equal(hvd.alltoall(own(rows=SIZE)), of_all(rows=SIZE)[:, RANK])
    assert torch.equal(hvd.reducescatter(own(rows=SIZE), op=hvd.Sum), of_all(rows=SIZE).sum(0)[RANK : RANK + 1])
    for result in hvd.grouped_allreduce([own(), own()], op=hvd.Sum):
        assert torch.equal(result, of_all().sum(0))
    members = [own(), own()]
    assert hvd.grouped_allreduce_(members, op=hvd.Sum)[1] is members[1]
    assert torch.equal(members[1], of_all().sum(0))
    assert hvd.allreduce(torch.ones(0, 2)).shape == (0, 2)


def network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(4 * 16, 3)).double()


def images(step):
    return torch.randn(2 * SIZE, 2, 6, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


OPTIONS = {
    "plain": {},
    "groups": {"groups": 2},
    "passes": {"backward_passes_per_step": 2},
    "fp16": {"compression": hvd.Compression.fp16},
    "bf16 in groups": {"compression": hvd.Compression.bf16, "groups": 1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_optimizer_like_one_process(options, memory_format, far_away):
    passes = options.get("backward_passes_per_step", 1)
    tolerance = {hvd.Compression.fp16: 2e-3, hvd.Compression.bf16: 2e-2}.get(options.get("compression"), 1e-9)
    model, expected = network().to(memory_format=memory_format), network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model.named_parameters(), **options
    )
    plain = torch.optim.SGD(expected.parameters(), lr=0.05, momentum=0.9)
    before = Late.waited_for
    for step in range(3):
        optimizer.zero_grad(set_to_none=step == 1)
        for _ in range(passes):
            model(images(step)[RANK * 2 : RANK * 2 + 2]).square().mean().backward()
        optimizer.step()
        plain.zero_grad()
        for _ in range(passes):
            expected(images(step)).square().mean().backward()
        plain.step()
    for parameter, other in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(parameter.detach(), other.detach(), rtol=tolerance, atol=tolerance)
    if far_away == "late" and SIZE > 1:
        assert Late.waited_for - before == 3 * len(list(model.parameters()))


@pytest.mark.skipif(SIZE < 2, reason="a rank alone agrees with itself")
def test_recovery_after_a_failure():
    torch.manual_seed(0)
    odd = nn.Linear(3, 2 + min(RANK, 1))
    named = [(f"far.odd.{name}", parameter) for name, parameter in odd.named_parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(odd.parameters(), lr=0.1), named)
    for _ in range(2):
        odd(torch.ones(1, 3)).sum().backward()
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
            optimizer.step()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
