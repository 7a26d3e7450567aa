"""Elastic training with PyTorch in an elastic job: every sample of an epoch is used once while the number of ranks changes, and the
model is the same on all ranks. Not run by spmd.py: the tests start processes themselves."""

import collections
import json
import os
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from elastic_job import Job, await_that

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False

N_SAMPLES, BATCH = 1200, 4
DONE = Path("done")


def _train():
    import torch

    import horovod.torch as hvd
    from elastic_job import note
    from horovod import _core

    hvd.init()
    torch.manual_seed(hvd.rank())
    torch.set_num_threads(1)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    samples = torch.randn(N_SAMPLES, 3, generator=torch.Generator().manual_seed(0))
    sampler = hvd.elastic.ElasticSampler(range(N_SAMPLES), seed=5)
    # Which samples were used: part of the state, so that what a failure undoes is undone here, too.
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, batch=0, used=[])

    def note_step(state):
        place = {"generation": _core.generation(), "rank": hvd.rank(), "size": hvd.size()}
        note(process=int(os.environ["CORRO_ELASTIC_PROCESS"]), pid=os.getpid(), batch=state.batch, **place)

    def hold(state):
        """Leaves samples for later generations until the test says stop; all ranks do the same."""
        most = N_SAMPLES * min(_core.generation(), 3) / 4
        while state.sampler.processed_num >= most and not hvd.broadcast_object(os.path.exists("stop")):
            note_step(state)
            time.sleep(0.01)
            state.commit()

    @hvd.elastic.run
    def train(state):
        loader = torch.utils.data.DataLoader(range(N_SAMPLES), batch_size=BATCH, sampler=state.sampler)
        for batch, indices in enumerate(loader):
            hold(state)
            optimizer.zero_grad()
            loss = (model(samples[indices]) - samples[indices].sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            state.sampler.record_batch(batch, len(indices))
            state.used = [*state.used, hvd.allgather(indices, name="used").tolist()]
            state.batch += 1
            note_step(state)
            state.commit()
        return state.used

    used = train(state)
    weights = torch.cat([value.flatten() for value in model.state_dict().values()])
    mine = hvd.allgather_object(weights.tolist())
    if hvd.rank() == 0:
        DONE.with_suffix(".new").write_text(json.dumps({"used": used, "weights": mine, "size": hvd.size()}))
        DONE.with_suffix(".new").rename(DONE)


@pytest.fixture
def start(tmp_path):
    jobs = []

    def start(*options, **kwargs):
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        jobs.append(Job(tmp_path, *options, script=__file__, PYTHONPATH=path, **kwargs))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def _check(job, n_sizes):
    assert job.stop() == 0, job.output()
    done = json.loads((job.folder / "done").read_text())
    counts = collections.Counter(index for step in done["used"] for index in step)
    padding = sum(counts.values()) - N_SAMPLES
    assert set(counts) == set(range(N_SAMPLES)), "every sample was used"
    assert 0 <= padding < done["size"], "and none twice, but for those that fill the last batch"
    assert all(weights == done["weights"][0] for weights in done["weights"])
    assert len({step["size"] for step in job.steps()}) >= n_sizes


def test_every_sample_is_used_once_when_a_process_is_killed(start):
    job = start("--min-np", "1", "-H", "localhost:3")
    first, before = job.await_size(3)
    job.kill(before[0])
    second, after = job.await_size(2, after=first)
    job.kill(after[1])
    await_that(lambda: len({step["generation"] for step in job.steps()}) >= 3, "a third generation", job)
    _check(job, 2)


def test_every_sample_is_used_once_when_hosts_come_and_go(start):
    job = start("--min-np", "1", hosts="localhost:1")
    first, _ = job.await_size(1)
    job.set_hosts("localhost:1,127.0.0.1:2")
    second, _ = job.await_size(3, after=first)
    job.set_hosts("127.0.0.1:2")
    job.await_size(2, after=second)
    _check(job, 3)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _train()
