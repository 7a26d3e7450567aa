"""Batch normalisation over the batches of all ranks, on CPU and GPU. With one rank, and in evaluation, it is PyTorch's
own batch norm."""

from typing import Any, Optional, Tuple

import torch
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.common import basics
from horovod.common.basics import Sum
from horovod.torch._data_movement import allgather_async
from horovod.torch._handles import synchronize
from horovod.torch._reductions import allreduce_async_


class SyncBatchNorm(_BatchNorm):
    """Accepts (N, C, ...) like BatchNorm1d to BatchNorm3d. Every rank has to run it equally often, with any number of
    samples."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)  # type: ignore[arg-type]

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training or basics.size() == 1:
            return super().forward(input)
        output, mean, variance, count = _SyncBatchNorm.apply(input, self.weight, self.bias, self.eps)
        if self.track_running_stats and self.running_mean is not None:
            self._track(mean, variance, float(count))
        return output

    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
        """Updates the running statistics as PyTorch does, with the unbiased variance."""
        assert self.num_batches_tracked is not None and self.running_mean is not None and self.running_var is not None
        self.num_batches_tracked.add_(1)
        # Without a momentum it is the average over all batches so far.
        weight = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * (count / max(count - 1.0, 1.0))
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), weight)


class _SyncBatchNorm(torch.autograd.Function):
    """Statistics are exchanged in float32, or float64 for float64 input, whatever the input's precision. One exchange
    in each direction."""

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor], eps: float
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
        mean, variance, count = _whole_statistics(input, dtype)
        ctx.save_for_backward(input, weight, mean, torch.rsqrt(variance + eps))
        ctx.count = float(count)
        scale, shift = (None if tensor is None else tensor.to(dtype) for tensor in (weight, bias))
        # Not in training mode, so it normalises with the given statistics.
        output = batch_norm(input.to(dtype), mean, variance, scale, shift, training=False, eps=eps).to(input.dtype)
        ctx.mark_non_differentiable(mean, variance, count)
        return output, mean, variance, count

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Tuple[Optional[torch.Tensor], ...]:
        input, weight, mean, inverse_std = ctx.saved_tensors
        dtype = mean.dtype
        others = _all_but_channels(input)
        gradient = gradient.to(dtype)
        deviation = input.to(dtype) - _per_channel(mean, input)
        sum_gradient = gradient.sum(others)
        sum_product = (gradient * deviation).sum(others)
        # These stay local: the optimizer reduces them like every parameter gradient.
        grad_weight = (sum_product * inverse_std).to(weight.dtype) if ctx.needs_input_grad[1] else None
        grad_bias = sum_gradient.to(weight.dtype) if ctx.needs_input_grad[2] else None
        grad_input = None
        if ctx.needs_input_grad[0]:
            sums = torch.cat([sum_gradient, sum_product])
            synchronize(allreduce_async_(sums, name="sync_batch_norm.backward", op=Sum))
            mean_gradient, mean_product = (sums / max(ctx.count, 1.0)).chunk(2)
            slope = _per_channel(mean_product * inverse_std * inverse_std, input)
            scale = inverse_std if weight is None else inverse_std * weight.to(dtype)
            grad_input = (gradient - _per_channel(mean_gradient, input) - deviation * slope) * _per_channel(
                scale, input
            )
            grad_input = grad_input.to(input.dtype)
        return grad_input, grad_weight, grad_bias, None


def _whole_statistics(input: torch.Tensor, dtype: torch.dtype) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean and biased variance of each channel over the samples of all ranks, and the number of samples.

    Each rank sends its mean, variance and count. Combining means and deviations instead of sums of squares avoids
    cancellation for large means.
    """
    channels = input.shape[1]
    others = _all_but_channels(input)
    samples = input.numel() // channels if channels else 0
    own = torch.zeros(1, 2 * channels + 1, dtype=dtype, device=input.device)
    if samples:
        values = input.detach().to(dtype)
        own[0, :channels] = values.mean(others)
        own[0, channels:-1] = values.var(others, unbiased=False)
        own[0, -1] = samples
    every = synchronize(allgather_async(own, name="sync_batch_norm.forward")).to(torch.float64)
    means, variances, counts = every[:, :channels], every[:, channels:-1], every[:, -1:]
    count = counts.sum()
    shares = counts / count.clamp(min=1.0)
    mean = (means * shares).sum(0)
    variance = ((variances + (means - mean) ** 2) * shares).sum(0)
    return mean.to(dtype), variance.to(dtype), count


def _all_but_channels(input: torch.Tensor) -> Tuple[int, ...]:
    return (0, *range(2, input.dim()))


def _per_channel(values: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """Reshapes values to broadcast over the input's channels."""
    return values.view(1, -1, *([1] * (input.dim() - 2)))
