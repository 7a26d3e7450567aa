"""Benchmark rank that trains the tutorial's network with PyTorch.

    training_torch.py

Each line of standard input is a turn, `WAY PRECISION BATCH STEPS`; the response is `took SECONDS`. The way `alone` exchanges no gradients,
`together` exchanges them by DistributedDataParallel over Gloo. The precision is `f32` or `bf16` (autocast). Images are in memory, channels
last. Rank and rendezvous come from the variables RANK, WORLD_SIZE and MASTER_*. One thread runs on each processor that the process is bound
to.
"""

import functools
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(len(os.sched_getaffinity(0)))


@functools.cache
def training(way):
    """Creates a network and its optimizer; returns the training step."""
    model = nn.Sequential(
        *[nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)],
        *[nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)],
        *[nn.Flatten(), nn.Linear(64 * 6 * 6, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)],
    ).to(memory_format=torch.channels_last)
    if way == "together":
        if not dist.is_initialized():
            dist.init_process_group("gloo", init_method="env://")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4 * size, alpha=0.9, eps=1e-7)
    entropy = nn.CrossEntropyLoss()

    def step(images, labels, use_bf16):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=use_bf16):
            scores = model(images)
        entropy(scores.float(), labels).backward()
        optimizer.step()

    return step


@functools.cache
def random_batch(batch):
    torch.manual_seed(rank)
    images = torch.rand(batch, 3, 32, 32).to(memory_format=torch.channels_last)
    return images, torch.randint(0, 10, (batch,))


for line in sys.stdin:
    way, precision, batch, steps = line.split()
    step, (images, labels) = training(way), random_batch(int(batch))
    began = time.perf_counter()
    for _ in range(int(steps)):
        step(images, labels, precision == "bf16")
    print("took", time.perf_counter() - began, flush=True)
