"""Prefetching data loaders. Not run by spmd.py: no ranks, no engine."""

import threading
import time

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False


class Loader(BaseDataLoader):
    def __init__(self, n_batches, fail_at=None):
        super().__init__()
        self.n_batches, self.fail_at = n_batches, fail_at
        self.read = []

    def __len__(self):
        return self.n_batches

    def _iterate(self):
        for batch in range(self.n_batches):
            if batch == self.fail_at:
                raise KeyError("unreadable")
            self.read.append((batch, threading.current_thread().name))
            yield batch

    def _process_batch(self, batch):
        return batch * 10


class AsyncLoader(AsyncDataLoaderMixin, Loader):
    pass


def _await(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_loader():
    loader = Loader(3)
    assert (len(loader), list(loader), list(loader)) == (3, [0, 10, 20], [0, 10, 20])


@pytest.mark.parametrize("queue_size", [0, 1, 2, 64])
def test_prefetching_only_changes_the_thread(queue_size):
    loader = AsyncLoader(queue_size, False, 5)
    for _ in range(2):
        assert list(loader) == [0, 10, 20, 30, 40]
    assert len(loader) == 5
    threads = {name for _, name in loader.read}
    assert threads == ({threading.current_thread().name} if queue_size == 0 else {"data loader"})


def test_prefetch_depth():
    loader = AsyncLoader(async_loader_queue_size=2, n_batches=100)
    batches = iter(loader)
    assert next(batches) == 0
    # Two are queued, and one waits for a free slot.
    _await(lambda: len(loader.read) == 4)
    batches.close()
    _await(lambda: not any(thread.name == "data loader" for thread in threading.enumerate()))
    assert len(loader.read) == 4


def test_a_failure_is_raised_in_the_consumer():
    batches = iter(AsyncLoader(async_loader_queue_size=8, n_batches=5, fail_at=2))
    assert [next(batches), next(batches)] == [0, 10]
    with pytest.raises(KeyError, match="unreadable"):
        next(batches)


def test_closing_ends_running_iterations():
    loader = AsyncLoader(async_loader_queue_size=1, n_batches=1000)
    seen = []
    for batch in loader:
        seen.append(batch)
        if len(seen) == 3:
            loader.close_async_loader()
    assert seen[:3] == [0, 10, 20] and len(seen) <= 4
    _await(lambda: not any(thread.name == "data loader" for thread in threading.enumerate()))
