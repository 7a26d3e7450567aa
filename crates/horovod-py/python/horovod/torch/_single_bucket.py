"""Fast path for the common bucket: one parameter, whose gradient the engine can access and which is sent uncompressed.
Hundreds of them are launched between the kernels of backward in each step. Anything unusual falls back to the general
bucket."""

from typing import Any, Optional

import torch

from horovod import _core
from horovod.torch._buckets import Bucket, BucketParameter, ReducerState

_submit = _core.submit
_synchronize = _core.synchronize
_ALLREDUCE = _core.ALLREDUCE
_STRIDED = torch.strided


class SingleBucket(Bucket):
    """Remembers the entry submitted last, and submits it again if the gradient has the same address."""

    def __init__(self, shared: ReducerState, member: BucketParameter) -> None:
        self.member = member
        self.parameter = member.parameter
        self.in_flight: Optional[torch.Tensor] = None
        """The gradient in flight by the fast path."""
        super().__init__(shared, [member], grouped=False)

    def on_gradient(self, *_: Any) -> None:
        """Called after autograd has added to the parameter's gradient."""
        shared = self.shared
        member = self.member
        gradient = self.parameter.grad
        process_set = shared.process_set.process_set_id
        if (
            member.remaining != 1
            or gradient is None
            or gradient.layout is not _STRIDED
            or gradient.dtype is not self.dtype
            or gradient.requires_grad
            or not gradient.is_contiguous()
            or (gradient.data_ptr() != self.address and not self._update_address(gradient))
            or process_set is None
        ):
            member.on_gradient()
            return
        if self.index >= 0:
            self.batch = shared.add_to_batch(member.name, self.entry[0], gradient, self.index)
        else:
            # Positional arguments save half a microsecond.
            self.handle = _submit(
                _ALLREDUCE,
                "allreduce",
                member.name,
                self.entry,
                shared.op,
                shared.prescale,
                shared.postscale,
                0,
                None,
                process_set,
                False,
                -1,
                gradient,
            )
        self.in_flight = gradient
        self.is_launched = shared.has_gradients = True
        member.remaining = 0
        shared.launched.append(self)

    def _update_address(self, gradient: torch.Tensor) -> bool:
        """Updates the entry to a new address; false if the gradient is on another device than before."""
        address = gradient.data_ptr()
        index = gradient.device.index
        if address == 0 or (-1 if index is None else index) != self.index:
            return False
        _, _, number, shape = self.entry[0]
        self.entry = ((address, address, number, shape),)
        self.address = address
        return True

    def finish(self) -> None:
        gradient = self.in_flight
        if gradient is None:
            super().finish()
            return
        if self.batch is not None:
            self.finish_batch()
        else:
            handle, self.handle = self.handle, None
            _synchronize(handle)  # type: ignore[arg-type]
        if self.parameter.grad is not gradient:
            self.parameter.grad = gradient

    def reset(self) -> None:
        if self.in_flight is None:
            super().reset()
        else:
            self.handle = self.in_flight = self.batch = None
            self.is_launched = False
            self.member.remaining = self.shared.passes
