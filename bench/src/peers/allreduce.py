"""Benchmark rank for Gloo (through torch.distributed) and upstream Horovod: repeated in-place sums of floats.

    allreduce.py gloo|horovod NAME:BUDGET_US:LENGTH[,LENGTH...] ...

The contract is that of allreduce.c beside this file. Rank and rendezvous come from the variables RANK, WORLD_SIZE, MASTER_* and
HOROVOD_*.
"""

import sys
import time

import torch

BATCHES, MIN_BATCHES = 10, 3


def gloo():
    """Connects; returns rank, size, and a function that sums a list of tensors over all ranks."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="env://")

    def call(tensors):
        if len(tensors) == 1:
            dist.all_reduce(tensors[0])
        else:
            for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                work.wait()

    return dist.get_rank(), dist.get_world_size(), call


def horovod():
    """Like `gloo`, through the horovod.torch that this Python imports."""
    import horovod.torch as hvd

    hvd.init()

    def call(tensors):
        if len(tensors) == 1:
            hvd.allreduce_(tensors[0], op=hvd.Sum, name="one")
        else:
            for handle in [hvd.allreduce_async_(t, op=hvd.Sum, name=f"t{i}") for i, t in enumerate(tensors)]:
                hvd.synchronize(handle)

    return hvd.rank(), hvd.size(), call


def measure(rank, size, call, name, budget_us, lengths):
    pattern = [torch.arange(length) % 7 for length in lengths]
    tensors = [(remainder + rank + 1).float() for remainder in pattern]
    call(tensors)
    for tensor, remainder in zip(tensors, pattern):
        if not torch.equal(tensor, (size * (size + 1) // 2 + size * remainder).float()):
            sys.exit(f"rank {rank}: case {name}: wrong sum")
        tensor.zero_()
    del pattern

    def time_calls(calls):
        began = time.perf_counter_ns()
        for _ in range(calls):
            call(tensors)
        return (time.perf_counter_ns() - began) / 1e3

    def broadcast(value):
        tensors[0][0] = value if rank == 0 else 0
        call(tensors)
        value = float(tensors[0][0])
        tensors[0][0] = 0
        return value

    calls, rounds, each, took, total = 1, 0, 1e12, 0.0, 0.0
    while (took < budget_us / 8 or rounds < 3) and total < 2 * budget_us:
        if took < budget_us / 8 and rounds > 0:
            calls *= 2
        took = broadcast(time_calls(calls))
        total += took
        rounds += 1
        each = min(each, took / calls)
    in_batch, batches = int(budget_us / BATCHES / each), BATCHES
    if in_batch < 1:
        in_batch, batches = 1, max(MIN_BATCHES, int(budget_us / each))
    times_us = [time_calls(in_batch) / in_batch for _ in range(batches)]
    if rank == 0:
        print("case", name, "async" if len(lengths) > 1 else "sync", *[f"{us * 1e3:.0f}" for us in times_us], flush=True)


def main():
    rank, size, call = {"gloo": gloo, "horovod": horovod}[sys.argv[1]]()
    for case in sys.argv[2:]:
        name, budget_us, lengths = case.split(":")
        measure(rank, size, call, name, float(budget_us), [int(length) for length in lengths.split(",")])


main()
