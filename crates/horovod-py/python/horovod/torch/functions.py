"""Synchronizes state over ranks: parameters, optimizer state, Python objects. Used before training, and after every
reset in elastic training. Afterwards all ranks have exactly the root's state."""

import ctypes
from collections import Counter
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

import cloudpickle
import torch

from horovod.common import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._data_movement import allgather_async, broadcast_async_
from horovod.torch._handles import synchronize


def broadcast_parameters(
    params: Union[Dict[str, torch.Tensor], List[torch.Tensor], List[Tuple[str, torch.Tensor]]], root_rank: int
) -> None:
    """Broadcasts the root's values in place. Accepts `model.state_dict()`, `dict(model.named_parameters())`, or a list
    of tensors or of (name, tensor)."""
    named: List[Tuple[Optional[str], torch.Tensor]]
    if isinstance(params, dict):
        named = sorted(params.items())
    elif isinstance(params, list):
        named = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    _broadcast_all(named, root_rank)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: Optional[torch.nn.Module] = None
) -> None:
    """Broadcasts the root's optimizer state and options (learning rate etc.).

    The root describes its state, so other ranks may have none or another one. An empty state stays empty, so that
    the first step is like that of a single process; upstream creates it by a step with zero gradients, and as there,
    gradients are zero afterwards. `model` tells which gradients are sparse: those of its sparse embeddings.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        # LBFGS keeps its history in lists that grow with the steps, and expects it on one device.
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    is_root = basics.rank() == root_rank
    state_dict = optimizer.state_dict()
    if not state_dict["state"]:
        _zero_gradients(optimizer, model)
    described, found = _describe(state_dict["state"]) if is_root else (None, [])
    message = (described, state_dict["param_groups"]) if is_root else None
    described, groups = broadcast_object(message, root_rank, name="broadcast_optimizer_state")
    if is_root:
        tensors = found
    else:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        device = parameters[0].device if parameters else torch.device("cpu")
        state_dict, tensors = _rebuild(described, groups, device)
    occurrences: Counter = Counter()
    named = []
    for key, tensor in tensors:
        occurrences[key] += 1
        named.append((f"{key}.{occurrences[key]}", tensor))
    _broadcast_all(named, root_rank)
    if not is_root:
        optimizer.load_state_dict(state_dict)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Broadcasts the root's object to every rank of the set with cloudpickle. Objects of other ranks are ignored."""
    # Not the name of the type, which may differ between ranks.
    name = "broadcast_object" if name is None else name
    if basics.rank() == root_rank:
        sent = _pickled(obj)
        length = torch.tensor([sent.numel()])
        synchronize(broadcast_async_(length, root_rank, f"{name}.sz", process_set))
        synchronize(broadcast_async_(sent, root_rank, f"{name}.t", process_set))
        return obj
    length = torch.zeros(1, dtype=torch.int64)
    synchronize(broadcast_async_(length, root_rank, f"{name}.sz", process_set))
    received = torch.empty(int(length.item()), dtype=torch.uint8)
    synchronize(broadcast_async_(received, root_rank, f"{name}.t", process_set))
    return _unpickled(received)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> List[Any]:
    """Gathers the objects of all ranks of the set, in order, with cloudpickle."""
    name = "allgather_object" if name is None else name
    sent = _pickled(obj)
    lengths = synchronize(allgather_async(torch.tensor([sent.numel()]), f"{name}.sz", process_set))
    gathered = synchronize(allgather_async(sent, f"{name}.t", process_set))
    return [_unpickled(part) for part in torch.split(gathered, lengths.tolist())]


def _zero_gradients(optimizer: torch.optim.Optimizer, model: Optional[torch.nn.Module]) -> None:
    """Gives every trained parameter a zero gradient in the layout that the optimizer expects."""
    embeddings = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)] if model else []
    sparse = {id(parameter) for embedding in embeddings if embedding.sparse for parameter in embedding.parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not parameter.requires_grad:
                continue
            zero = torch.zeros_like(parameter)
            is_sparse = isinstance(optimizer, torch.optim.SparseAdam) or (
                isinstance(optimizer, torch.optim.SGD) and id(parameter) in sparse
            )
            # Sparse in the first dimension, as gradients of embeddings: autograd only adds equal sparse dimensions.
            parameter.grad = zero.to_sparse(min(1, zero.dim())) if is_sparse else zero


class _TensorSlot(NamedTuple):
    """Placeholder for a tensor in the description of a state."""

    key: str
    shape: Tuple[int, ...]
    dtype: torch.dtype
    on_cpu: bool


def _describe(state: Dict[Any, Any]) -> Tuple[Any, List[Tuple[str, torch.Tensor]]]:
    """The state with placeholders instead of tensors, and the tensors in order."""
    tensors: List[Tuple[str, torch.Tensor]] = []

    def describe(value: Any, key: str) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append((key, value))
            return _TensorSlot(key, tuple(value.shape), value.dtype, value.device.type == "cpu")
        if isinstance(value, dict):
            return {inner: describe(held, str(inner)) for inner, held in value.items()}
        if type(value) in (list, tuple):
            return type(value)(describe(held, key) for held in value)
        return value

    return describe(state, "state"), tensors


def _rebuild(
    described: Any, groups: List[Dict[str, Any]], device: torch.device
) -> Tuple[Dict[str, Any], List[Tuple[str, torch.Tensor]]]:
    """A state dict with allocated tensors for the root's placeholders, and those tensors in order."""
    tensors: List[Tuple[str, torch.Tensor]] = []

    def rebuild(value: Any) -> Any:
        if isinstance(value, _TensorSlot):
            allocated = torch.zeros(value.shape, dtype=value.dtype, device="cpu" if value.on_cpu else device)
            tensors.append((value.key, allocated))
            return allocated
        if isinstance(value, dict):
            return {inner: rebuild(held) for inner, held in value.items()}
        if type(value) in (list, tuple):
            return type(value)(rebuild(held) for held in value)
        return value

    return {"state": rebuild(described), "param_groups": groups}, tensors


def _broadcast_all(named: Iterable[Tuple[Optional[str], torch.Tensor]], root_rank: int) -> None:
    """Broadcasts all tensors at once and waits. Noncontiguous tensors are copied."""
    started = []
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"invalid params: {name} is of type {type(tensor)}, but only tensors can be broadcast")
        sent = tensor.detach().contiguous()
        started.append((broadcast_async_(sent, root_rank, name), tensor, sent))
    for handle, tensor, sent in started:
        synchronize(handle)
        if sent.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(sent)


def _pickled(obj: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(cloudpickle.dumps(obj)), dtype=torch.uint8)


def _unpickled(received: torch.Tensor) -> Any:
    return cloudpickle.loads(ctypes.string_at(received.data_ptr(), received.numel()))
