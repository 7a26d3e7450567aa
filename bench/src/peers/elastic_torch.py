"""A rank under torchrun, which restarts all ranks when one dies: sums a gradient with Gloo step by step. Reports the same events as our rank
(`elastic/events.rs`)."""

import os
import sys
import time

import torch
import torch.distributed as dist

GENERATION = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def report(kind, rank, size):
    line = f"{kind} {GENERATION} {rank} {size} {os.getpid()} {time.time_ns()}\n"
    descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


report("ready", 0, 0)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
is_first = True
while True:
    gradient = torch.zeros(256 * 1024)
    dist.all_reduce(gradient)
    if is_first:
        report("step", rank, size)
        is_first = False
