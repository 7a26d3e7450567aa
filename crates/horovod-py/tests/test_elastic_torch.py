"""TorchState and ElasticSampler, and recovery of PyTorch trainings from failures. Run on 1, 2 and 4 ranks with spmd.py."""

import random

import pytest

torch = pytest.importorskip("torch")

import horovod.torch as hvd
from horovod.elastic.objects import _split, broadcast_object
from horovod.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry


@pytest.fixture(autouse=True)
def engine():
    hvd.init()
    yield
    hvd.barrier()
    hvd.shutdown()


def _model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))


def _weights(model):
    return torch.cat([value.flatten().double() for value in model.state_dict().values()])


def _step(model, optimizer, seed):
    torch.manual_seed(seed)
    optimizer.zero_grad()
    model(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()


def test_model_and_optimizer_are_restored():
    model = _model(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)
    _step(model, optimizer, 1)
    state.batch = 1
    state.commit()
    saved = _weights(model).clone()
    _step(model, optimizer, 2)
    expected = _weights(model).clone()
    state.batch = 2
    assert not torch.equal(saved, expected)
    for _ in range(2):
        state.restore()
        assert state.batch == 1 and torch.equal(_weights(model), saved)
        _step(model, optimizer, 2)
        assert torch.equal(_weights(model), expected), "the momentum came back too"


def test_sync_broadcasts_rank_0():
    model = _model(hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + hvd.rank()), momentum=0.9)
    _step(model, optimizer, hvd.rank())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=hvd.rank())
    state.sync()
    reference = _model(0)
    _step(reference, torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9), 0)
    assert torch.equal(_weights(model), _weights(reference))
    assert optimizer.param_groups[0]["lr"] == 0.1 and state.epoch == 0
    state.restore()
    assert torch.equal(_weights(model), _weights(reference)), "sync saves"


def test_assigning_a_model_saves_it():
    state = hvd.elastic.TorchState(model=_model(0), step=3)
    other = _model(1)
    state.model = other
    before = _weights(other).clone()
    with torch.no_grad():
        other[0].weight.zero_()
    state.restore()
    assert state.model is other and torch.equal(_weights(other), before)


def test_custom_state_handlers():
    class Counter:
        n = 0

        def state_dict(self):
            return {"n": self.n}

        def load_state_dict(self, state):
            self.n = state["n"]

    class CounterHandler(StateHandler):
        def sync(self):
            self.value.load_state_dict(hvd.broadcast_object(self.value.state_dict()))
            self.save()

    before = get_handler_registry()
    set_handler_registry([(Counter, CounterHandler), *before])
    try:
        counter = Counter()
        counter.n = hvd.rank() + 5
        state = hvd.elastic.TorchState(counter=counter)
        state.sync()
        assert counter.n == 5 and state.counter is counter
        assert not state.accepts_any_sender(), "its sync broadcasts from rank 0"
    finally:
        set_handler_registry(before)


def test_training_continues_after_a_failure():
    """An operation of a wrapped optimizer fails; the result equals that of a training without a failure."""

    def train_on(model, optimizer, seed):
        _step(model, optimizer, seed * 100 + hvd.rank())

    def new():
        model = _model(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        return model, hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    expected, optimizer = new()
    for batch in range(6):
        train_on(expected, optimizer, batch)

    model, optimizer = new()
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)
    begun = []

    @hvd.elastic.run
    def train(state):
        begun.append(state.batch)
        while state.batch < 6:
            if state.batch == 3 and len(begun) == 1:
                # Some gradients are in flight when the last rank leaves.
                model(torch.randn(8, 3)).square().mean().backward()
                if hvd.rank() == hvd.size() - 1:
                    hvd.shutdown()
                hvd.allreduce(torch.ones(3), name="nobody there")
            train_on(model, optimizer, state.batch)
            state.batch += 1
            state.commit()

    train(state)
    assert begun == [0, 3]
    # Not the statistics of batch norm: those are local until the sync after the failure.
    for seen, wanted in zip(model.parameters(), expected.parameters()):
        assert torch.allclose(seen, wanted, rtol=1e-6, atol=1e-7)


def test_a_sampler_distributes_every_sample():
    for n_samples, shuffle in [(20, True), (7, False), (1, True), (0, True)]:
        sampler = hvd.elastic.ElasticSampler(range(n_samples), shuffle=shuffle, seed=3)
        mine = list(sampler)
        assert len(mine) == len(sampler) == -(-n_samples // hvd.size())
        everyones = hvd.allgather_object(mine)
        dealt = [everyones[rank][step] for step in range(len(mine)) for rank in range(hvd.size())]
        order = list(range(n_samples))
        if shuffle:
            random.Random(3).shuffle(order)
        assert dealt[:n_samples] == order
        assert set(dealt[n_samples:]) <= set(order), "what is repeated are samples"


def test_a_sampler_continues_with_the_rest():
    sampler = hvd.elastic.ElasticSampler(range(64), seed=1)
    order = list(range(64))
    random.Random(1).shuffle(order)
    state = hvd.elastic.TorchState(sampler=sampler)
    sampler.record_batch(0, 4)
    state.commit()
    sampler.record_batch(1, 4)
    state.restore()
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 4 * hvd.size()}
    assert sampler.remaining_indices == order[4 * hvd.size() :]
    state.on_reset()
    assert len(sampler) == (64 - 4 * hvd.size()) // hvd.size()
    sampler.set_epoch(1)
    order = list(range(64))
    random.Random(2).shuffle(order)
    assert sampler.remaining_indices == order and sampler.state_dict() == {"epoch": 1, "processed_num": 0}


@pytest.mark.parametrize("sizes", [[1], [2, 3], [4, 1, 2], [3, 4, 2, 1, 6]])
def test_every_sample_of_an_epoch_is_used_once_while_the_number_of_ranks_changes(monkeypatch, sizes):
    """Each world takes two batches of 5 on every rank, the last one takes the rest. Ranks are simulated."""
    n_samples, batch_size, used = 480, 5, []
    world = {"rank": 0, "size": 1}
    monkeypatch.setattr(hvd, "size", lambda: world["size"])
    monkeypatch.setattr(hvd, "rank", lambda: world["rank"])
    position = {"epoch": 2, "processed_num": 0}
    for number, n_ranks in enumerate(sizes):
        after = []
        for rank in range(n_ranks):
            world.update(rank=rank, size=n_ranks)
            sampler = hvd.elastic.ElasticSampler(range(n_samples), seed=7)
            sampler.load_state_dict(position)
            indices = list(sampler)
            n_batches = -(-len(indices) // batch_size) if number == len(sizes) - 1 else 2
            for batch in range(n_batches):
                mine = indices[batch * batch_size : (batch + 1) * batch_size]
                used += mine
                sampler.record_batch(batch, len(mine))
            after.append(sampler.state_dict())
        position = after[0]
        assert all(state == position for state in after)
    padding = position["processed_num"] - n_samples
    assert 0 <= padding < sizes[-1] and len(used) == n_samples + padding
    assert set(used) == set(range(n_samples)), "only what fills the last round is repeated"


def test_tensors_are_sent_as_tensors():
    sent = [
        torch.arange(5000, dtype=torch.bfloat16),
        torch.tensor(3.5),
        torch.zeros(0, 4),
        torch.ones(100, 200).t(),
        torch.ones(2000, requires_grad=True),
    ]
    received = broadcast_object(sent if hvd.rank() == 0 else None)
    for there, here in zip(received, sent):
        assert torch.equal(there, here) and there.dtype == here.dtype and there.requires_grad == here.requires_grad
        if not there.requires_grad:
            there += 1  # What arrives can be changed.
    structure, parts = _split([torch.arange(5000), torch.ones(3)])
    assert [part.nbytes for part in parts] == [40_000] and len(structure) < 1000


def test_the_rank_that_is_ahead_sends_model_and_optimizer():
    last = hvd.size() - 1
    model = _model(hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + hvd.rank()), momentum=0.9)
    _step(model, optimizer, hvd.rank())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=hvd.rank())
    state.sync_from(last)
    reference = _model(last)
    _step(reference, torch.optim.SGD(reference.parameters(), lr=0.1 * (1 + last), momentum=0.9), last)
    assert torch.equal(_weights(model), _weights(reference)) and state.epoch == last
    assert optimizer.param_groups[0]["lr"] == 0.1 * (1 + last)


def test_a_failure_in_the_middle_of_a_sync_leaves_the_saved_copy_whole(monkeypatch):
    model = _model(hvd.rank())
    before = _weights(model).clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer)

    def fail(*args, **kwargs):
        raise hvd.HorovodInternalError("in the middle")

    monkeypatch.setattr(hvd, "broadcast_optimizer_state", fail)
    with pytest.raises(hvd.HorovodInternalError):
        state.sync()
    state.restore()
    assert torch.equal(_weights(model), before)


def test_the_position_of_rank_0_is_used():
    sampler = hvd.elastic.ElasticSampler(range(64))
    sampler.record_batch(0, 1 + hvd.rank())
    hvd.elastic.TorchState(sampler=sampler).sync()
    assert sampler.processed_num == hvd.size()
