"""Gradient buckets. A bucket holds gradients that are reduced together: of one parameter, or of a group. Autograd hooks
call `BucketParameter.on_gradient`; `_gradients` creates the buckets and waits for them. A gradient in flight is
never freed or replaced. The fast path for the common case is in `_single_bucket`."""

from typing import Any, Callable, List, Optional, Tuple, Type

import torch

from horovod import _core
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.torch import _device, _device_batch, _tensors
from horovod.torch._device_batch import DeviceBatch
from horovod.torch._reductions import sparse_allreduce_async
from horovod.torch.compression import Compression, Compressor


class ReducerState:
    """State that all buckets of an optimizer share: options, and buckets in flight."""

    def __init__(
        self,
        compression: Type[Compressor],
        op: int,
        gradient_predivide_factor: float,
        sparse_as_dense: bool,
        process_set: ProcessSet,
        passes: int,
    ) -> None:
        self.compression = compression
        self.op = op
        self.gradient_predivide_factor = gradient_predivide_factor
        # The division by the number of ranks is split before and after the sum, for values near the ends of their
        # range.
        self.prescale = 1.0 / gradient_predivide_factor if op == Average else 1.0
        self.postscale = gradient_predivide_factor if op == Average else 1.0
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self.passes = passes
        self.is_uncompressed = compression is Compression.none
        self.reset()

    def clone_idle(self) -> "ReducerState":
        """A copy of the options, with nothing in flight."""
        options = (self.compression, self.op, self.gradient_predivide_factor, self.sparse_as_dense)
        return ReducerState(*options, self.process_set, self.passes)

    def reset(self) -> None:
        """Nothing is in flight afterwards."""
        self.has_gradients = False
        """Whether any gradient was computed since the last wait."""
        self.batch: Optional[DeviceBatch] = None
        """Gradients in the memory of a GPU that are not submitted yet."""
        self.batches: List[DeviceBatch] = []
        """Submitted batches."""
        self.launched: List["Bucket"] = []
        self.copying: List["Bucket"] = []
        """Launched buckets whose gradients are still being copied from a GPU, in order of launch and thus of
        completion."""

    def submit(
        self,
        name: str,
        tensors: Tuple[_tensors.Entry, ...],
        grouped: bool,
        device: int,
        keep: object,
        stream: Optional[int] = None,
    ) -> int:
        number = self.process_set.process_set_id
        if number is None:
            number = process_set_id(self.process_set)  # Raises an error that names the problem.
        prefix = "grouped_allreduce" if grouped else "allreduce"
        scales = (self.prescale, self.postscale)
        return _core.submit(
            _core.ALLREDUCE, prefix, name, tensors, self.op, *scales, 0, None, number, grouped, device, keep, stream
        )

    def add_to_batch(self, name: str, entry: _tensors.Entry, gradient: torch.Tensor, index: int) -> DeviceBatch:
        """Queues a gradient in the memory of a GPU. It is submitted with others, at the latest after backward."""
        stream = _device.current_stream(index)
        batch = self.batch
        if batch is None or batch.stream != stream or batch.index != index:
            self.submit_batch()
            batch = self.batch = DeviceBatch(index, stream)
            try:
                torch.autograd.Variable._execution_engine.queue_callback(self.submit_batch)
            except RuntimeError:
                pass  # Not within backward: `wait` submits it.
        batch.add(name, entry, gradient)
        if batch.n_bytes >= _device_batch.BATCH_BYTES:
            self.submit_batch()
        return batch

    def submit_batch(self) -> None:
        """Submits the queued gradients, if there are any."""
        batch, self.batch = self.batch, None
        if batch is not None:
            number = self.process_set.process_set_id
            if number is None:
                number = process_set_id(self.process_set)  # Raises an error that names the problem.
            batch.submit(self.op, self.prescale, self.postscale, number)
            self.batches.append(batch)

    def submit_copied(self, wait: bool = True) -> None:
        """Submits buckets whose copies to main memory are complete; with `wait`, all of them."""
        while self.copying and (wait or self.copying[0].has_arrived()):
            self.copying.pop(0).submit()


class BucketParameter:
    """A parameter in its bucket, with its gradient while that is in flight."""

    __slots__ = (
        "parameter",
        "name",
        "bucket",
        "remaining",
        "gradient",
        "sent",
        "context",
        "gathered",
        "is_staged",
        "n_sparse",
        "make_sparse",
        "host",
        "event",
    )

    def __init__(self, parameter: torch.Tensor, name: str) -> None:
        self.parameter = parameter
        self.name = name
        self.bucket: "Bucket" = None  # type: ignore[assignment]
        self.remaining = 0
        self.host: Any = None
        """Buffer in main memory for a GPU gradient; reused in the next step."""
        self.event: Any = None
        self.gradient: Any = None
        """Destination of the result."""
        self.sent: Any = None
        """The tensor to send: the gradient itself, or a tensor made from it. Reduced in place."""
        self.context: Any = None
        self.gathered: Optional[Callable[[], torch.Tensor]] = None
        self.is_staged = False
        self.n_sparse: Optional[int] = None
        """Number of sparse dimensions of a parameter with sparse gradients."""
        self.make_sparse = False
        """Whether a sparse gradient is sent dense (`sparse_as_dense`) and must be converted back."""

    def on_gradient(self, *_: Any) -> None:
        """Called after autograd has added to the parameter's gradient."""
        bucket = self.bucket
        bucket.shared.has_gradients = True
        remaining = self.remaining - 1
        if remaining < 0:
            raise AssertionError(
                f"The gradient of {self.name} was computed more than backward_passes_per_step={bucket.shared.passes} "
                "times before optimizer.step(). Increase backward_passes_per_step to accumulate gradients locally."
            )
        self.remaining = remaining
        if remaining == 0:
            bucket.missing -= 1
            if bucket.missing == 0:
                bucket.launch()

    def prepare(self, shared: ReducerState) -> Optional[torch.Tensor]:
        """The data to send, as a contiguous dense tensor; None if the gradient is sparse and already in flight on its
        own."""
        gradient = self.parameter.grad
        if gradient is None:
            gradient = self.parameter.grad = self._zero_gradient()
        if gradient.requires_grad:
            raise AssertionError(
                f"The gradient of {self.name} is part of a graph (backward(create_graph=True)): it cannot be reduced "
                "in place."
            )
        if gradient.layout is not torch.strided:
            if self.n_sparse is not None and gradient._nnz() == 0:
                # `zero_()` makes all dimensions sparse, and ranks can only gather gradients with the same sparse
                # dimensions.
                gradient = self._zero_gradient()
            self.n_sparse = gradient.sparse_dim()
            if not shared.sparse_as_dense:
                self.gathered = sparse_allreduce_async(gradient, self.name, shared.op, shared.process_set)
                return None
            self.make_sparse = True
            gradient = gradient.to_dense()
        sent, self.context = shared.compression.compress(gradient)
        self.gradient, self.sent = gradient, sent.contiguous()
        return self.sent

    def _zero_gradient(self) -> torch.Tensor:
        """A zero gradient in the usual layout, if this rank computed none but another one may have."""
        parameter = self.parameter.detach()
        if self.n_sparse is None:
            return torch.zeros_like(parameter)
        indices = torch.empty((self.n_sparse, 0), dtype=torch.int64, device=parameter.device)
        values = parameter.new_empty((0, *parameter.shape[self.n_sparse :]))
        return torch.sparse_coo_tensor(indices, values, parameter.shape)

    def finish(self, shared: ReducerState) -> None:
        """Stores the result in the parameter's gradient."""
        parameter, gradient = self.parameter, self.gradient
        if self.gathered is not None:
            parameter.grad = self.gathered()
            return
        if self.is_staged:
            _tensors.from_host(self.sent, self.host)
            self.event = _tensors.record_event(self.sent)
        result = shared.compression.decompress(self.sent, self.context)
        if result is not gradient:
            with torch.no_grad():
                gradient.copy_(result)
        if self.make_sparse:
            gradient = gradient.to_sparse(self.n_sparse)
        if parameter.grad is not gradient:
            parameter.grad = gradient

    def clear(self) -> None:
        """Drops references to the gradient."""
        self.gradient = self.sent = self.context = self.gathered = None
        self.is_staged = self.make_sparse = False


class Bucket:
    """Parameters whose gradients are reduced together. Launched when the last of them has its gradient."""

    def __init__(self, shared: ReducerState, members: List[BucketParameter], grouped: bool) -> None:
        self.shared = shared
        self.members = members
        self.grouped = grouped
        self.handle: Optional[int] = None
        self.is_launched = False
        self.entry: Tuple[_tensors.Entry, ...] = ()
        """The entry submitted last; below, the address and dtype of its first tensor."""
        self.address = 0
        self.dtype: Optional[torch.dtype] = None
        self.index = _tensors.CPU
        """Number of the GPU with the tensors submitted last; -1 for main memory."""
        self.batch: Optional[DeviceBatch] = None
        """The batch of the gradient in flight, if it is in the memory of a GPU."""
        for member in members:
            member.bucket = self
        self.reset()

    def reset(self) -> None:
        """Prepares for the gradients of the next step."""
        if self.handle is not None:
            # The operation was not waited for: the engine still uses the buffers.
            for member in self.members:
                member.host = None
        self.handle = self.batch = None
        self.is_launched = False
        self.missing = len(self.members)
        for member in self.members:
            member.remaining = self.shared.passes
            member.clear()

    def launch(self) -> None:
        """Starts the reduction of all parameters, with zeros for those without a gradient."""
        shared = self.shared
        sent = [tensor for tensor in (member.prepare(shared) for member in self.members) if tensor is not None]
        for tensor in sent:
            _tensors.checked_dtype(tensor)
        self.is_launched = True
        shared.launched.append(self)
        if not sent:
            return
        if all(_tensors.in_main_memory(tensor) for tensor in sent):
            self.entry = _tensors.entries(sent, sent)
            self.address, self.dtype = (sent[0].data_ptr() or -1), sent[0].dtype
            self.index = _tensors.CPU
            self.handle = shared.submit(self.members[0].name, self.entry, self.grouped, _tensors.CPU, sent)
            return
        if all(_device.in_engine_memory(tensor) for tensor in sent):
            self.entry = _tensors.entries(sent, sent)
            self.address, self.dtype = (sent[0].data_ptr() or -1), sent[0].dtype
            self.index = sent[0].device.index
            if len(sent) == 1 and not self.grouped:
                self.batch = shared.add_to_batch(self.members[0].name, self.entry[0], sent[0], self.index)
                return
            stream = _device.current_stream(self.index)
            self.handle = shared.submit(self.members[0].name, self.entry, self.grouped, self.index, sent, stream)
            return
        for member in self.members:
            if member.sent is not None:
                self._start_copy(member)
        shared.copying.append(self)
        shared.submit_copied(wait=False)

    @staticmethod
    def _start_copy(member: BucketParameter) -> None:
        sent = member.sent
        host = member.host
        if host is None or host.shape != sent.shape or host.dtype != sent.dtype:
            member.host = host = _tensors.allocate_buffer(sent)
        elif member.event is not None:
            # The copy back in the last step may have used another stream.
            _tensors.wait_in_stream(sent, member.event)
        member.event = _tensors.start_copy_to_host(sent, host)
        member.is_staged = True

    def has_arrived(self) -> bool:
        return all(member.event.query() for member in self.members if member.sent is not None)

    def submit(self) -> None:
        """Waits for the copies to main memory, and starts the reduction there."""
        in_flight = [member for member in self.members if member.sent is not None]
        for member in in_flight:
            member.event.synchronize()
        hosts = [member.host for member in in_flight]
        devices = {_tensors.device_number(member.sent) for member in in_flight}
        # A group on several GPUs is reduced in main memory like any other; the ranks compare one device number.
        entries = _tensors.entries(hosts, hosts)
        stream = _tensors.stream_of(hosts[0])
        self.index = _tensors.CPU if stream is None else hosts[0].device.index
        self.handle = self.shared.submit(self.members[0].name, entries, self.grouped, min(devices), hosts, stream)

    def finish_batch(self) -> None:
        """Waits for the batch."""
        batch, self.batch = self.batch, None
        if batch is not None:
            batch.finish(_device.current_stream(batch.index))

    def finish(self) -> None:
        """Waits for the result."""
        self.finish_batch()
        if self.handle is not None:
            handle, self.handle = self.handle, None
            _core.synchronize(handle, None if self.index < 0 else _device.current_stream(self.index))
        for member in self.members:
            member.finish(self.shared)
