"""Handles of asynchronous operations: `poll` and `synchronize`. Handles are the engine's numbers; this module stores
how to convert results to tensors. Waits only in `synchronize`."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from horovod import _core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.torch import _device, _tensors

Finish = Callable[[List[torch.Tensor], List[Optional["_core.Output"]]], Any]
"""Makes the return value of `synchronize` from the results and the engine's outputs. By default the result, or the
tuple of a group's results."""

_finishes: Dict[int, Tuple[Callable[[List[Optional["_core.Output"]]], Any], Optional[int]]] = {}
"""How to convert the outputs of a handle, and the engine's GPU if the tensors are in its memory."""


def poll(handle: int) -> bool:
    """Whether the operation has ended, so that `synchronize` would not wait. ValueError for an unknown handle."""
    return _core.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for the operation and returns its result; None for a handle that is unknown or was synchronized before.

    HorovodInternalError if the collective failed.
    """
    found = _finishes.pop(handle, None)
    if found is None:
        return None
    finish, index = found
    stream = None if index is None else _device.current_stream(index)
    # None: the engine was restarted and does not know the handle.
    outputs = _core.synchronize(handle, stream)
    return None if outputs is None else finish(outputs)


def start(
    kind: int,
    prefix: str,
    name: Optional[str],
    inputs: Sequence[torch.Tensor],
    results: Sequence[Optional[torch.Tensor]],
    process_set: ProcessSet,
    finish: Optional[Finish] = None,
    op: int = 1,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    root_rank: int = 0,
    splits: Optional[Sequence[int]] = None,
    grouped: bool = False,
) -> int:
    """Starts an operation and returns its handle. A result is the tensor to fill (it may be the input), or None if the
    engine allocates it."""
    home = inputs[0].device
    for tensor in inputs:
        if tensor.device != home:
            raise HorovodInternalError("Tensors in list must be on same device.")
    stream = None
    if _tensors.in_main_memory(inputs[0]):
        device, hosts, places = _tensors.CPU, inputs, results
    else:
        device = _tensors.device_number(inputs[0])
        for tensor in inputs:
            _tensors.checked_dtype(tensor)
        hosts = _tensors.staged(inputs)
        # A copy belongs to the operation, so the engine may compute in place.
        places = [
            result if result is None or host is tensor else host for host, tensor, result in zip(hosts, inputs, results)
        ]
        stream = _tensors.stream_of(hosts[0])
        if stream is not None:
            device = hosts[0].device.index
    handle = _core.submit(
        kind,
        prefix,
        name,
        _tensors.entries(hosts, places),
        op,
        prescale_factor,
        postscale_factor,
        root_rank,
        splits,
        process_set_id(process_set),
        grouped,
        device,
        (hosts, places),
        stream,
    )

    def collect(outputs: List[Optional["_core.Output"]]) -> Any:
        tensors = []
        for result, place, output in zip(results, places, outputs):
            if result is not None and place is not None:
                tensors.append(result if result is place else _tensors.from_host(result, place))
            else:
                assert output is not None, "the engine allocates missing results"
                tensors.append(_tensors.tensor_from_output(output, home))
        if finish is not None:
            return finish(tensors, outputs)
        return tuple(tensors) if grouped else tensors[0]

    _finishes[handle] = (collect, None if stream is None else device)
    return handle
