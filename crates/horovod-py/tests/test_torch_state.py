"""Broadcast of parameters, optimizer state and objects. SPMD."""

import pytest
import torch
from torch import nn

import horovod.torch as hvd

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()
ROOT = SIZE - 1


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))


def step(model, optimizer, scale=1.0):
    optimizer.zero_grad()
    torch.manual_seed(0)
    (model(torch.randn(8, 4)) * scale).square().mean().backward()
    optimizer.step()


def equal_everywhere(value):
    values = hvd.allgather_object(value)
    for other in values[1:]:
        compare(values[0], other)


def compare(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            compare(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other):
            compare(mine, theirs)
    else:
        assert one == other


@pytest.mark.parametrize("form", ["state_dict", "named", "tensors"])
def test_broadcast_parameters(form):
    model = network(seed=RANK)
    expected = network(seed=ROOT)
    if form == "state_dict":
        hvd.broadcast_parameters(model.state_dict(), root_rank=ROOT)
    elif form == "named":
        hvd.broadcast_parameters(list(model.named_parameters()), root_rank=ROOT)
    else:
        hvd.broadcast_parameters([parameter.data for parameter in model.parameters()], root_rank=ROOT)
    for parameter, other in zip(model.parameters(), expected.parameters()):
        assert torch.equal(parameter, other)


def test_broadcast_noncontiguous_parameters():
    model = nn.Conv2d(3, 2, 3).to(memory_format=torch.channels_last)
    nn.init.constant_(model.weight, float(RANK))
    hvd.broadcast_parameters(model.state_dict(), root_rank=ROOT)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert (model.weight == ROOT).all()


def test_broadcast_parameters_rejects_invalid_input():
    with pytest.raises(ValueError, match="invalid params of type: "):
        hvd.broadcast_parameters(torch.ones(1), root_rank=0)
    with pytest.raises(ValueError, match="only tensors"):
        hvd.broadcast_parameters({"a": 3}, root_rank=0)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01 * (RANK + 1)),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1 * RANK),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.9, 0.9 + 0.01 * RANK)),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01 * (RANK + 1), amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("trained", ["root", "all", "others", "none"])
@pytest.mark.parametrize("distributed", [True, False])
def test_broadcast_optimizer_state(kind, trained, distributed):
    model = network(seed=1)
    optimizer = OPTIMIZERS[kind](model.parameters())
    if trained == "all" or trained == ("root" if RANK == ROOT else "others"):
        for _ in range(1 + RANK):
            step(model, optimizer, scale=1.0 + 0.1 * RANK)
    if distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=ROOT)
    hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT)
    equal_everywhere(optimizer.state_dict())
    equal_everywhere(model.state_dict())
    assert len(optimizer.param_groups[0]["params"]) == len(list(model.parameters()))
    for _ in range(2):
        step(model, optimizer)
    equal_everywhere(model.state_dict())


def test_parameters_of_other_kinds_and_without_gradient():
    model = nn.ParameterDict(
        {
            "whole": nn.Parameter(torch.tensor([RANK]), requires_grad=False),
            "short": nn.Parameter(torch.full((2,), float(RANK), dtype=torch.float16)),
        }
    )
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=ROOT)
    hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT)
    assert model["whole"].item() == ROOT and model["short"].tolist() == [ROOT, ROOT]


@pytest.mark.parametrize("distributed", [True, False])
def test_a_fresh_optimizer_gets_zero_gradients(distributed):
    model = network(seed=1)
    model[0].bias.requires_grad_(False)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    if distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT)
    for parameter, value in zip(model.parameters(), before):
        assert torch.equal(parameter.detach(), value)
        if parameter.requires_grad:
            assert torch.equal(parameter.grad, torch.zeros_like(parameter))
        else:
            assert parameter.grad is None
    # An optimizer with existing state keeps its gradients.
    step(model, optimizer)
    gradient = model[2].weight.grad.clone()
    assert gradient.any()
    hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT)
    assert torch.equal(model[2].weight.grad, gradient)


@pytest.mark.parametrize("kind", ["sgd", "sparse_adam", "dense"])
def test_zero_gradients_of_embeddings_are_sparse(kind):
    table = nn.Embedding(4, 2, sparse=True)
    if kind == "sparse_adam":
        optimizer, model = torch.optim.SparseAdam(list(table.parameters()), lr=0.1), None
    else:
        optimizer, model = torch.optim.SGD(table.parameters(), lr=0.1), table if kind == "sgd" else None
    hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT, model=model)
    assert table.weight.grad.is_sparse == (kind != "dense")
    assert not table.weight.grad.to_dense().any()
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert table.weight.grad.to_dense()[1].tolist() == [1.0, 1.0]


def test_lbfgs_is_rejected():
    with pytest.raises(ValueError, match="cannot broadcast torch.optim.LBFGS state"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(network(0).parameters()), root_rank=0)


def test_objects():
    thing = {"rank": RANK, "text": "ä" * RANK, "function": lambda x: x + RANK}
    got = hvd.broadcast_object(thing if RANK == ROOT else None, root_rank=ROOT)
    assert got["rank"] == ROOT and got["function"](1) == ROOT + 1
    assert (got is thing) == (RANK == ROOT)
    everyone = hvd.allgather_object({"rank": RANK, "long": [0] * RANK * 1000}, name="things")
    assert [one["rank"] for one in everyone] == list(range(SIZE))
    assert [len(one["long"]) for one in everyone] == [1000 * rank for rank in range(SIZE)]
    assert hvd.broadcast_object("x" * 3_000_000 if RANK == 0 else None) == "x" * 3_000_000
