"""Errors of DistributedOptimizer, with their texts, and that training continues afterwards. SPMD."""

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()
together = pytest.mark.skipif(SIZE < 2, reason="a rank alone has no hooks")


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))


def wrapped(model, **options):
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(), **options
    )


def backward(model):
    model(torch.ones(2, 3)).sum().backward()


def refused(text, **options):
    model = network()
    with pytest.raises(ValueError) as caught:
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)
    assert text in str(caught.value)


def test_named_parameters():
    model = network()
    refused(
        "named_parameters should be a sequence of tuples (name, parameter)", named_parameters=list(model.parameters())
    )
    twice = [("same", parameter) for parameter in model.parameters()]
    refused("Parameter names in named_parameters must be unique. ", named_parameters=twice)
    refused(
        "named_parameters was specified, but one or more model parameters were not named",
        named_parameters=network().named_parameters(),
    )


def test_options():
    refused("backward_passes_per_step must be > 0", backward_passes_per_step=0)
    refused("gradient_predivide_factor not supported with op != Average", gradient_predivide_factor=2.0, op=hvd.Sum)
    text = "groups should be a non-negative integer or a list of list of torch.Tensor."
    refused(text, groups=-1)
    refused(text, groups="all")
    refused(text, groups=[1, 2])
    refused("groups must consist of torch.Tensor.", groups=[["a"]])
    parameter = nn.Parameter(torch.ones(1))
    refused("A parameter can only appear once in groups.", groups=[[parameter], [parameter]])
    refused("regist", process_set=hvd.ProcessSet([0]))


def test_wrapping_twice():
    model = network()
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(wrapped(model))


def test_invalid_backward_passes_per_step():
    with pytest.raises(ValueError, match="must be > 0"):
        wrapped(network()).set_backward_passes_per_step(0)


@together
@pytest.mark.parametrize("passes", [1, 2])
def test_more_passes_than_announced(passes):
    model = network()
    optimizer = wrapped(model, backward_passes_per_step=passes)
    for _ in range(passes):
        backward(model)
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        backward(model)
    optimizer.step()
    for _ in range(passes):
        backward(model)
    optimizer.step()


@together
@pytest.mark.parametrize("passes", [1, 2])
def test_zero_grad_between_backward_and_step(passes):
    model = network()
    optimizer = wrapped(model, backward_passes_per_step=passes)
    backward(model)
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()


def test_zero_grad_alone():
    model = network()
    optimizer = wrapped(model)
    if SIZE == 1:
        backward(model)
        optimizer.zero_grad()
    backward(model)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    assert next(model.parameters()).grad is None


@together
def test_a_gradient_with_a_graph():
    model = network()
    optimizer = wrapped(model)
    with pytest.raises(AssertionError, match="create_graph"):
        model(torch.ones(2, 3)).square().sum().backward(create_graph=True)
    for parameter in model.parameters():
        parameter.grad = None
    optimizer.step()


@together
def test_shape_mismatches_fail_on_all_ranks_and_training_continues():
    torch.manual_seed(0)
    odd = nn.Linear(3, 2 + min(RANK, 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(odd.parameters(), lr=0.1), [(f"odd.{n}", p) for n, p in odd.named_parameters()]
    )
    odd(torch.ones(1, 3)).sum().backward()
    with pytest.raises(HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
        optimizer.step()
    model = network()
    optimizer = wrapped(model)
    for _ in range(2):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
    totals = hvd.allgather(torch.stack([parameter.detach().sum() for parameter in model.parameters()]).unsqueeze(0))
    assert all(torch.equal(one, totals[0]) for one in totals)


@together
def test_loading_a_state_drops_pending_gradients():
    model = network()
    optimizer = wrapped(model, backward_passes_per_step=2)
    backward(model)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    backward(model)
    backward(model)
    optimizer.step()
