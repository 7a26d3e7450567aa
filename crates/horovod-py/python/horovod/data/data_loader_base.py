"""Base class for data loaders, and a mixin that prefetches on a thread of its own. Knows no framework and no ranks."""

import queue
import threading
from typing import Any, Iterator


class BaseDataLoader:
    """Subclasses define the number of batches and how to iterate over them."""

    def __len__(self) -> int:
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        """The batches of one epoch."""
        raise NotImplementedError

    def _process_batch(self, batch: Any) -> Any:
        """Final processing on the consuming thread; for example a copy to a device."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)


class _End:
    """End marker of an epoch, with the exception that ended it, if any."""

    def __init__(self, failure: Any = None) -> None:
        self.failure = failure


class AsyncDataLoaderMixin:
    """Prefetches up to `async_loader_queue_size` batches; 0 disables prefetching. Must come first in the list of bases:

        class AsyncLoader(AsyncDataLoaderMixin, Loader): ...
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._readers: "set[_Reader]" = set()
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Stops prefetching. Running iterations end early."""
        for reader in list(self._readers):
            reader.stop()

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        reader = _Reader(self._iterate(), self.async_loader_queue_size)  # type: ignore[attr-defined]
        self._readers.add(reader)
        try:
            for batch in reader.batches():
                if self.debug_data_loader:
                    print(f"data loader: {reader.n_ahead()} batches ahead")
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            # Also if the loop over this iterator was left early.
            reader.stop()
            self._readers.discard(reader)


class _Reader:
    """One epoch, read on a thread."""

    def __init__(self, batches: Iterator[Any], most_ahead: int) -> None:
        self._ahead: "queue.Queue[Any]" = queue.Queue(most_ahead)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(batches,), name="data loader", daemon=True)
        self._thread.start()

    def batches(self) -> Iterator[Any]:
        while not self._stopped.is_set():
            item = self._ahead.get()
            if not isinstance(item, _End):
                yield item
            elif item.failure is not None:
                raise item.failure
            else:
                return

    def n_ahead(self) -> int:
        return self._ahead.qsize()

    def stop(self) -> None:
        """Does not wait: the thread ends after its current batch."""
        self._stopped.set()
        try:
            self._ahead.put_nowait(_End())  # Wakes the consumer; a full queue needs no wakeup.
        except queue.Full:
            pass

    def _read(self, batches: Iterator[Any]) -> None:
        try:
            for batch in batches:
                if not self._put(batch):
                    return
            self._put(_End())
        except BaseException as failure:  # Raised in the consumer.
            self._put(_End(failure))

    def _put(self, item: Any) -> bool:
        """False if the consumer has stopped."""
        while not self._stopped.is_set():
            try:
                self._ahead.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
