"""Benchmark rank that trains ResNet-50 with PyTorch.

    optimizer.py plain|ddp|ddp-views|horovod

`plain` exchanges nothing with other ranks. `ddp` is DistributedDataParallel over Gloo, `ddp-views` the same with gradient_as_bucket_view;
both leave the statistics of normalisation alone, as Horovod does. `horovod` is the horovod.torch that this Python imports, ours or
upstream's.

Each line of standard input is a turn, `MODEL BATCH STEPS`; the response is `took SECONDS`. The model is `resnet50` (the real one, on images
of 32 pixels) or `shapes` (its 161 parameters with one matrix product for each layer: less to compute, as much to exchange). A step is
forward, backward, exchange and SGD with momentum, on a batch that stays in memory. Before the first turn of a model the weights of all
ranks are compared; if they differ, the response is `cannot REASON`. Only the last model stays in memory. Rank and rendezvous come from the
variables RANK, WORLD_SIZE, MASTER_* and HOROVOD_*. One thread runs on each processor that the process is bound to.
"""

import functools
import math
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional

engine = sys.argv[1]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(len(os.sched_getaffinity(0)))
# Training on a constant batch drives gradients towards zero, and subnormal numbers are slow to compute with.
torch.set_flush_denormal(True)
BLOCKS, CLASSES, PIXELS = (3, 4, 6, 3), 1000, 32


class Convolution(nn.Sequential):
    def __init__(self, channels, to, kernel, stride=1):
        super().__init__(nn.Conv2d(channels, to, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(to))


class Block(nn.Module):
    def __init__(self, channels, width, stride, widen):
        super().__init__()
        self.one, self.two = Convolution(channels, width, 1), Convolution(width, width, 3, stride)
        self.three = Convolution(width, 4 * width, 1)
        self.shortcut = Convolution(channels, 4 * width, 1, stride) if widen else nn.Identity()

    def forward(self, x):
        inner = functional.relu(self.two(functional.relu(self.one(x))))
        return functional.relu(self.three(inner) + self.shortcut(x))


def resnet50():
    layers, channels = [Convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate(BLOCKS):
        for block in range(blocks):
            width, stride = 64 << stage, 2 if stage and not block else 1
            layers.append(Block(channels, width, stride, not block))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class ShapesLayer(nn.Module):
    """A matrix product with the parameters of a convolution and its normalisation."""

    def __init__(self, channels, to, kernel):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(to, channels, kernel, kernel) * math.sqrt(2 / (channels * kernel**2)))
        self.scale, self.shift = nn.Parameter(torch.ones(to)), nn.Parameter(torch.zeros(to))

    def forward(self, x):
        weight = self.weight.flatten(1)
        wide = x.repeat(1, -(-weight.shape[1] // x.shape[1])).narrow(1, 0, weight.shape[1])
        return functional.relu(functional.linear(wide, weight) * self.scale + self.shift)


def shapes():
    convolutions = [module for module in resnet50().modules() if isinstance(module, nn.Conv2d)]
    layers = [ShapesLayer(item.in_channels, item.out_channels, item.kernel_size[0]) for item in convolutions]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(2048, CLASSES))


def make_sum_over_ranks():
    """Connects; returns a function that sums a number over all ranks."""
    if engine == "plain" or (engine != "horovod" and size == 1):
        return lambda value: value * size
    if engine == "horovod":
        import horovod.torch as hvd

        hvd.init()
        return lambda value: float(hvd.allreduce(torch.tensor([value], dtype=torch.float64), op=hvd.Sum, name="sum")[0])
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="env://")

    def sum_by_gloo(value):
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor)
        return float(tensor[0])

    return sum_by_gloo


@functools.lru_cache(maxsize=1)
def training(name, batch):
    """Creates a model and its optimizer; returns the training step, and whether all ranks have the same weights after one step."""
    torch.manual_seed(7)
    model = {"resnet50": resnet50, "shapes": shapes}[name]()
    parameters = list(model.parameters())
    assert (len(parameters), sum(item.numel() for item in parameters)) == (161, 25_557_032)
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    if engine == "horovod":
        import horovod.torch as hvd

        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    elif engine != "plain":
        views = engine == "ddp-views"
        model = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=views)
    torch.manual_seed(rank)
    images, labels = torch.rand(batch, 3, PIXELS, PIXELS), torch.randint(0, CLASSES, (batch,))

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()
    # Images differ, so weights are the same only where gradients were exchanged.
    check = sum(float(item.double().abs().sum()) for item in parameters)
    return step, math.isclose(sum_over_ranks(check), size * check, rel_tol=1e-12)


sum_over_ranks = make_sum_over_ranks()
for line in sys.stdin:
    name, batch, steps = line.split()
    step, is_same = training(name, int(batch))
    if not is_same:
        print("cannot train: ranks differ after a step", flush=True)
        continue
    began = time.perf_counter()
    for _ in range(int(steps)):
        step()
    print("took", time.perf_counter() - began, flush=True)
