"""A real DataLoader whose workers are forked while the engine runs and gradients are in flight. SPMD."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()


class Numbers(Dataset):
    """Each sample contains the id of the process that made it."""

    def __len__(self):
        return 16 * SIZE

    def __getitem__(self, idx):
        generator = torch.Generator().manual_seed(idx)
        return torch.randn(6, generator=generator, dtype=torch.float64), os.getpid()


def network():
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1)).double()


def test_forked_workers_during_training():
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    sampler = DistributedSampler(Numbers(), num_replicas=SIZE, rank=RANK, shuffle=False)
    makers = set()
    for _ in range(3):  # New workers for each epoch: forked while the engine is at work.
        for inputs, pids in DataLoader(
            Numbers(), batch_size=4, sampler=sampler, num_workers=2, multiprocessing_context="fork"
        ):
            makers.update(pids.tolist())
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    assert len(makers) == 6 and os.getpid() not in makers
    expected = network()
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(3):
        for step in range(4):
            plain.zero_grad()
            # The sampler distributes samples round-robin.
            rows = [(step * 4 + row) * SIZE + rank for rank in range(SIZE) for row in range(4)]
            expected(torch.stack([Numbers()[row][0] for row in rows])).square().mean().backward()
            plain.step()
    for parameter, other in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(parameter.detach(), other.detach(), rtol=1e-9, atol=1e-12)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE


def test_a_forked_child_may_exit_immediately():
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.ones(3).sum().item() == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
