"""Gradients in the memory of a GPU that are submitted together. Every operation on a GPU that several ranks share costs
changes between their processes, so a few large ones are faster than hundreds; a GPU is far behind the thread that
submits its work, so waiting for more gradients costs nothing."""

from typing import List, Optional

import torch

from horovod import _core
from horovod.torch import _tensors

BATCH_BYTES = 16 << 20
"""Bytes of gradients that are submitted without waiting for more."""


class DeviceBatch:
    """Gradients of one stream. Submitted once; all who wait for it share its handle."""

    def __init__(self, index: int, stream: int) -> None:
        self.index = index
        self.stream = stream
        self.n_bytes = 0
        self.handle: Optional[int] = None
        self._names: List[str] = []
        self._entries: List[_tensors.Entry] = []
        self._gradients: List[torch.Tensor] = []
        self._error: Optional[Exception] = None

    def add(self, name: str, entry: _tensors.Entry, gradient: torch.Tensor) -> None:
        """Adds a gradient that is reduced in place."""
        self._names.append(name)
        self._entries.append(entry)
        self._gradients.append(gradient)
        self.n_bytes += gradient.nbytes

    def submit(self, op: int, prescale: float, postscale: float, process_set: int) -> None:
        """Starts the reduction. An error is raised by those who wait, so that all of backward runs first."""
        try:
            self.handle = _core.submit(
                _core.ALLREDUCE,
                "allreduce",
                "",
                self._entries,
                op,
                prescale,
                postscale,
                0,
                None,
                process_set,
                False,
                self.index,
                self._gradients,
                self.stream,
                self._names,
            )
        except Exception as error:
            self._error = error

    def finish(self, stream: int) -> None:
        """Makes later work in the stream wait for the results. Raises the error of the reduction, if there was one."""
        handle, self.handle = self.handle, None
        if handle is not None:
            try:
                _core.synchronize(handle, stream)
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
