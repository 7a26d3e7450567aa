"""DistributedOptimizer against one process with the data of all ranks. SPMD."""

import copy
import gc
import io

import pytest
import torch
from torch import nn

import horovod.torch as hvd

INIT = {"process_sets": "dynamic"}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()
together = pytest.mark.skipif(SIZE < 2, reason="a rank alone reduces nothing")
PER_RANK = 6


def network():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batch_of_all(step):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(SIZE * PER_RANK, 5, generator=generator, dtype=torch.float64)
    targets = torch.randn(SIZE * PER_RANK, 3, generator=generator, dtype=torch.float64)
    return inputs, targets


def own_batch(step, rank=RANK):
    inputs, targets = batch_of_all(step)
    rows = slice(rank * PER_RANK, (rank + 1) * PER_RANK)
    return inputs[rows], targets[rows]


def loss_of(model, batch):
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs), targets)


def train(model, optimizer, batches, passes=1):
    for step in range(len(batches) // passes):
        optimizer.zero_grad()
        for batch in batches[step * passes : (step + 1) * passes]:
            loss_of(model, batch).backward()
        optimizer.step()


def serial(make_optimizer, steps=4):
    """The same training in one process, on the batches of all ranks together."""
    model = network()
    train(model, make_optimizer(model.parameters()), [batch_of_all(step) for step in range(steps)])
    return model


def equal(model, expected, rtol=1e-9, atol=1e-12):
    for parameter, other in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(parameter.detach(), other.detach(), rtol=rtol, atol=atol)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


OWN_BATCHES = [own_batch(step) for step in range(4)]


@pytest.mark.parametrize(
    "make", [sgd, adam, lambda p: torch.optim.RMSprop(p, lr=0.01), lambda p: torch.optim.AdamW(p, lr=0.01)]
)
@pytest.mark.parametrize("named", [True, False])
def test_like_one_process(make, named):
    model = network()
    names = model.named_parameters() if named else None
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), named_parameters=names)
    train(model, optimizer, OWN_BATCHES)
    equal(model, serial(make))


@pytest.mark.parametrize(
    "groups",
    [
        0,
        1,
        2,
        100,
        lambda model: [[model[0].weight, model[4].bias], [model[2].weight]],
        lambda model: [list(model.parameters())],
    ],
)
def test_groups(groups):
    model = network()
    groups = groups(model) if callable(groups) else groups
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), groups=groups)
    train(model, optimizer, OWN_BATCHES)
    equal(model, serial(sgd))


@together
def test_groups_with_different_parameter_orders():
    model = network()
    parameters = list(model.named_parameters())
    if RANK % 2:
        parameters = parameters[::-1]
    optimizer = hvd.DistributedOptimizer(sgd([parameter for _, parameter in parameters]), parameters, groups=3)
    train(model, optimizer, OWN_BATCHES)
    equal(model, serial(sgd))


def test_num_groups_is_deprecated():
    model = network()
    with pytest.warns(DeprecationWarning):
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), num_groups=2)
    train(model, optimizer, OWN_BATCHES)
    equal(model, serial(sgd))


@pytest.mark.parametrize("groups", [None, 2])
def test_backward_passes_accumulate(groups):
    model = network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), backward_passes_per_step=2, groups=groups
    )
    train(model, optimizer, OWN_BATCHES, passes=2)
    expected = network()
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    train(expected, plain, [batch_of_all(step) for step in range(4)], passes=2)
    equal(model, expected)
    optimizer.set_backward_passes_per_step(1)
    assert optimizer.backward_passes_per_step == 1
    train(model, optimizer, OWN_BATCHES)
    train(expected, plain, [batch_of_all(step) for step in range(4)])
    equal(model, expected)


@pytest.mark.parametrize("op,factor", [(hvd.Average, 1.0), (hvd.Sum, float(SIZE))])
def test_sum_is_size_times_the_average(op, factor):
    model = network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1 / factor), model.named_parameters(), op=op
    )
    train(model, optimizer, OWN_BATCHES)
    equal(model, serial(lambda parameters: torch.optim.SGD(parameters, lr=0.1)))


def test_predivide_only_changes_rounding():
    model = network()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), gradient_predivide_factor=3.0
    )
    train(model, optimizer, OWN_BATCHES)
    equal(model, serial(sgd))


@pytest.mark.parametrize("compression,tolerance", [(hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)])
@pytest.mark.parametrize("groups", [None, 2])
def test_compression(compression, tolerance, groups):
    model = network()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), compression=compression, groups=groups
    )
    train(model, optimizer, OWN_BATCHES)
    equal(model, serial(sgd), rtol=tolerance, atol=tolerance)
    copies = hvd.allgather_object([parameter.detach() for parameter in model.parameters()])
    for copy_of_rank in copies:
        assert all(torch.equal(one, other) for one, other in zip(copy_of_rank, copies[0])), (
            "equal to the last bit on all ranks"
        )


def test_a_parameter_without_gradient_on_some_ranks():
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    start = model[2].weight.detach().clone()
    optimizer.zero_grad()
    # Only the last rank uses the middle layer.
    inputs, targets = own_batch(0)
    hidden = model[0](inputs)
    hidden = model[2](hidden) if RANK == SIZE - 1 else hidden
    loss = nn.functional.mse_loss(model[4](hidden), targets)
    loss.backward()
    own = model[2].weight.grad.clone() if RANK == SIZE - 1 and SIZE == 1 else None
    optimizer.step()
    if own is not None:
        torch.testing.assert_close(model[2].weight.detach(), start - 0.1 * own)
    weights = hvd.allgather(model[2].weight.detach().unsqueeze(0))
    assert all(torch.equal(weight, weights[0]) for weight in weights)
    assert not torch.equal(weights[0], start)


@pytest.mark.parametrize("sparse_as_dense", [False, True])
@pytest.mark.parametrize("groups", [None, 1])
def test_sparse_gradients(sparse_as_dense, groups):
    def embedding():
        torch.manual_seed(3)
        return nn.ModuleDict({"table": nn.Embedding(10, 4, sparse=True), "head": nn.Linear(4, 1)}).double()

    def loss(model, words):
        return model["head"](model["table"](words)).mean()

    words = torch.arange(3 * SIZE) % 7
    model, expected = embedding(), embedding()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model.named_parameters(),
        sparse_as_dense=sparse_as_dense,
        groups=groups,
    )
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss(model, words[RANK * 3 : RANK * 3 + 3]).backward()
        optimizer.step()
        plain.zero_grad()
        loss(expected, words).backward()
        plain.step()
    equal(model, expected)
    gradient = model["table"].weight.grad
    assert gradient.is_sparse and gradient.sparse_dim() == 1


@pytest.mark.parametrize("sparse_as_dense", [False, True])
@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.bf16])
def test_a_sparse_only_optimizer(sparse_as_dense, groups, compression):
    def table():
        torch.manual_seed(3)
        return nn.Embedding(10, 3, sparse=True)

    own, expected = table(), table()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SparseAdam(list(own.parameters()), lr=0.1),
        sparse_as_dense=sparse_as_dense,
        compression=compression,
        groups=groups,
    )
    plain = torch.optim.SparseAdam(list(expected.parameters()), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        plain.zero_grad()
        # Each rank has other words, and from the second step on only the first rank has any.
        if step == 0 or RANK == 0:
            own(torch.tensor([RANK, 8])).sum().backward()
        ranks = range(SIZE) if step == 0 else [0]
        (sum(expected(torch.tensor([rank, 8])).sum() for rank in ranks) / SIZE).backward()
        optimizer.step()
        plain.step()
        assert own.weight.grad.is_sparse
    equal(own, expected, rtol=1e-5, atol=1e-5)


@together
def test_a_sparse_gradient_missing_on_one_rank():
    table = nn.Embedding(5, 2, sparse=True)
    hvd.broadcast_parameters(table.state_dict(), 0)
    start = table.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), [("table", table.weight)])
    for step in range(2):
        optimizer.zero_grad(set_to_none=True)
        if RANK == 0 or step == 0:
            table(torch.tensor([1])).sum().backward()
        optimizer.step()
    expected = start.clone()
    expected[1] -= 1.0 + 1.0 / SIZE
    torch.testing.assert_close(table.weight.detach(), expected)


def test_a_custom_compressor():
    class Negative(hvd.Compression.none):
        """Works in place: the result must be converted back nevertheless."""

        @staticmethod
        def compress(tensor):
            return tensor.neg_(), "negative"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "negative"
            return tensor.neg()

    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), compression=Negative)
    train(model, optimizer, OWN_BATCHES)
    equal(model, serial(sgd))


def test_channels_last_gradients():
    def convolution():
        torch.manual_seed(5)
        return nn.Conv2d(3, 4, 3).double().to(memory_format=torch.channels_last)

    images = torch.randn(2 * SIZE, 3, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    images = images.contiguous(memory_format=torch.channels_last)
    model, expected = convolution(), convolution()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(images[RANK * 2 : RANK * 2 + 2]).square().mean().backward()
        optimizer.step()
        plain.zero_grad()
        expected(images).square().mean().backward()
        plain.step()
    equal(model, expected)


def test_a_closure_sees_reduced_gradients():
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for batch in OWN_BATCHES:

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        assert optimizer.step(closure) is not None
    equal(model, serial(sgd))


def test_clipping_between_synchronize_and_step():
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    expected = network()
    plain = sgd(expected.parameters())
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, own_batch(step)).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.zero_grad()
        loss_of(expected, batch_of_all(step)).backward()
        nn.utils.clip_grad_norm_(expected.parameters(), 0.05)
        plain.step()
    equal(model, expected)


@together
def test_step_after_synchronize_warns():
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()))
    loss_of(model, own_batch(0)).backward()
    optimizer.synchronize()
    start = (
        "optimizer.step\\(\\) called without optimizer.skip_synchronize\\(\\) context after optimizer.synchronize\\(\\)"
    )
    with pytest.warns(UserWarning, match=start):
        optimizer.step()


@together
def test_only_members_of_the_process_set_reduce():
    first = hvd.add_process_set([0])
    others = hvd.add_process_set(range(1, SIZE)) if SIZE > 2 else None
    try:
        own = first if RANK == 0 or others is None else others
        model = network()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), process_set=own
        )
        optimizer.zero_grad()
        loss_of(model, own_batch(0)).backward()
        optimizer.step()
        members = [RANK] if others is None or RANK == 0 else range(1, SIZE)
        expected = network()
        losses = [loss_of(expected, own_batch(0, rank)) for rank in members]
        (sum(losses) / len(losses)).backward()
        torch.optim.SGD(expected.parameters(), lr=0.1).step()
        equal(model, expected)
    finally:
        assert hvd.remove_process_set(first)
        assert others is None or hvd.remove_process_set(others)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_parameters_have_names(op):
    model = network()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters()}]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1), op=op)
    names = optimizer._parameter_names
    assert [names[parameter] for layer in (0, 2) for parameter in model[layer].parameters()] == [
        "allreduce.noname.0.0",
        "allreduce.noname.0.1",
        "allreduce.noname.1.0",
        "allreduce.noname.1.1",
    ]
    optimizer.add_param_group({"params": model[4].parameters()})
    assert optimizer._parameter_names[model[4].bias] == "allreduce.noname.2.1"
    named = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=op)
    assert named._parameter_names == {parameter: name for name, parameter in model.named_parameters()}
    assert copy.deepcopy((model, named))[1]._parameter_names.keys().isdisjoint(names)


def test_the_class_is_preserved():
    model = network()
    plain = sgd(model.parameters())
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD)
    assert type(optimizer).__name__ == "SGD"
    assert optimizer.param_groups[0] is plain.param_groups[0]
    plain.param_groups[0]["lr"] = 0.25
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert set(optimizer.state_dict()) == {"state", "param_groups"}


@pytest.mark.parametrize("before", [True, False])
def test_schedulers(before, recwarn):
    model = network()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5) if before else None
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    recwarn.clear()
    for batch in OWN_BATCHES[:3]:
        train(model, optimizer, [batch])
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 8)
    if not before:
        assert not [one for one in recwarn if "lr_scheduler" in str(one.message)]
    expected = network()
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)
    for step in range(3):
        train(expected, plain, [batch_of_all(step)])
        scheduler.step()
    equal(model, expected)


def test_a_pickle_is_the_plain_optimizer_and_a_copy_a_distributed_one():
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), groups=2)
    train(model, optimizer, OWN_BATCHES[:2])
    file = io.BytesIO()
    torch.save(optimizer, file)
    file.seek(0)
    loaded = torch.load(file, **({"weights_only": False} if torch.__version__ >= "2" else {}))
    assert type(loaded) is torch.optim.SGD
    assert loaded.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    other_model, other = copy.deepcopy((model, optimizer))
    assert other.param_groups[0]["params"][0] is next(other_model.parameters())
    train(other_model, other, OWN_BATCHES[2:])
    train(model, optimizer, OWN_BATCHES[2:])
    equal(other_model, model)
    equal(model, serial(sgd))


def test_state_is_taken_from_the_wrapped_optimizer_and_a_checkpoint():
    model = network()
    plain = adam(model.parameters())
    train(model, plain, [batch_of_all(step) for step in range(2)])
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    train(model, optimizer, OWN_BATCHES[2:3])
    saved = copy.deepcopy(optimizer.state_dict())
    fresh = hvd.DistributedOptimizer(adam(model.parameters()), model.named_parameters())
    del optimizer, plain
    gc.collect()
    fresh.load_state_dict(saved)
    train(model, fresh, OWN_BATCHES[3:])
    equal(model, serial(adam))


@together
def test_hooks_are_removed_with_their_optimizer():
    model = network()
    for _ in range(3):
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
        del optimizer
        gc.collect()
    loss_of(model, own_batch(0)).backward()
    own = [parameter.grad.clone() for parameter in model.parameters()]
    hvd.barrier()
    assert all(torch.equal(parameter.grad, one) for parameter, one in zip(model.parameters(), own))


def test_new_and_unfrozen_parameters_are_reduced():
    model = network()
    model[0].weight.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model[:4].parameters(), lr=0.1))
    expected = network()
    expected[0].weight.requires_grad_(False)
    plain = torch.optim.SGD(expected[:4].parameters(), lr=0.1)
    for step in range(4):
        if step == 1:
            optimizer.add_param_group({"params": list(model[4].parameters())})
            plain.add_param_group({"params": list(expected[4].parameters())})
        if step == 2:
            model[0].weight.requires_grad_(True)
            expected[0].weight.requires_grad_(True)
        train(model, optimizer, [own_batch(step)])
        train(expected, plain, [batch_of_all(step)])
    equal(model, expected)


def test_a_gradient_in_flight_may_be_dropped_by_the_model():
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    loss_of(model, own_batch(0)).backward()
    if SIZE > 1:
        # Not by optimizer.zero_grad(), which raises: the memory stays allocated until the reduction has ended.
        model.zero_grad(set_to_none=True)
        for _ in range(20):
            torch.zeros(8, 8, dtype=torch.float64)
    optimizer.step()
    equal(model, serial(lambda parameters: torch.optim.SGD(parameters, lr=0.1), steps=1))


def test_join_at_the_end_of_uneven_epochs():
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters())
    for step in range(2 + RANK):
        train(model, optimizer, [own_batch(step)])
    assert hvd.join() == SIZE - 1
    hvd.broadcast_parameters(model.state_dict(), root_rank=SIZE - 1)
    sums = hvd.allgather(torch.stack([parameter.detach().sum() for parameter in model.parameters()]).unsqueeze(0))
    assert all(torch.equal(one, sums[0]) for one in sums)
