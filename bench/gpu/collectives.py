"""One rank of the measurement of collectives on tensors in the memory of one GPU. The argument is the library: corro, gloo or nccl. Prints the
times of rank 0 in microseconds; all ranks are synchronized before each."""

import json
import sys
import time

import torch

library, quick = sys.argv[1], "--quick" in sys.argv
torch.cuda.set_device(0)

if library == "corro":
    import horovod.torch as hvd

    hvd.init()
    rank, size, barrier = hvd.rank(), hvd.size(), hvd.barrier

    def reduce_(tensors, name):
        if len(tensors) == 1:
            hvd.allreduce_(tensors[0], op=hvd.Average, name=name)
        else:
            hvd.grouped_allreduce_(tensors, op=hvd.Average, name=name)

    def reduce_each_(tensors, name):
        handles = [hvd.allreduce_async_(tensor, op=hvd.Average, name=f"{name}.{i}") for i, tensor in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

else:
    import torch.distributed as dist

    dist.init_process_group(library)
    rank, size = dist.get_rank(), dist.get_world_size()

    def barrier():
        if library == "gloo":
            dist.barrier()
        else:
            dist.all_reduce(flag)
            torch.cuda.synchronize()

    flag = torch.zeros(1, device="cuda")

    def reduce_(tensors, name):
        # As DistributedDataParallel: one buffer for many tensors.
        if len(tensors) == 1:
            dist.all_reduce(tensors[0])
            tensors[0] /= size
            return
        flat = torch._utils._flatten_dense_tensors(tensors)
        dist.all_reduce(flat)
        flat /= size
        torch._foreach_copy_(tensors, list(torch._utils._unflatten_dense_tensors(flat, tensors)))

    reduce_each_ = None


def measure(case, work, warm, repetitions):
    times = []
    for repetition in range(warm + repetitions):
        torch.cuda.synchronize()
        barrier()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if repetition >= warm:
            times.append((time.perf_counter() - start) * 1e6)
    if rank == 0:
        print(json.dumps({"library": library, "ranks": size, "case": case, "times": times}), flush=True)


def check(tensors):
    """The averages of what the ranks hold."""
    for tensor in tensors:
        tensor.fill_(float(rank + 1))
    reduce_(tensors, "check")
    expected = (size + 1) / 2
    wrong = [tensor for tensor in tensors if not bool((tensor == expected).all())]
    assert not wrong, f"{len(wrong)} of {len(tensors)} tensors are wrong, for instance {wrong[0].flatten()[:4]}, not {expected}"


# The 161 parameters of ResNet-50, 25.6 million numbers.
def resnet50_shapes():
    shapes, width = [(64, 3, 7, 7), (64,), (64,)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        for block in range(blocks):
            shapes += [(inner, width, 1, 1), (inner,), (inner,), (inner, inner, 3, 3), (inner,), (inner,)]
            shapes += [(4 * inner, inner, 1, 1), (4 * inner,), (4 * inner,)]
            if block == 0:
                shapes += [(4 * inner, width, 1, 1), (4 * inner,), (4 * inner,)]
            width = 4 * inner
    return shapes + [(1000, 2048), (1000,)]


few = (1, 3) if quick else (3, 20)
many = (2, 10) if quick else (5, 100)
if library == "corro":
    few, many = (3, 20), (20, 300)
gradients = [torch.empty(shape, device="cuda") for shape in resnet50_shapes()]
assert len(gradients) == 161
check(gradients)
measure("ResNet-50, one group", lambda: reduce_(gradients, "group"), *(many if library == "corro" else few))
if reduce_each_ is not None:
    measure("ResNet-50, one by one", lambda: reduce_each_(gradients, "each"), *few)
for name, n in (("4 B", 1), ("1 MB", 1 << 18), ("16 MB", 1 << 22), ("256 MB", 1 << 26)):
    tensor = torch.empty(n, device="cuda")
    check([tensor])
    measure(name, lambda: reduce_([tensor], name), *(many if n == 1 else few))
if rank == 0 and size == 1:
    # What the memory allows: the traffic of an allreduce of 256 MB between two ranks is that of two copies.
    source, target = torch.empty(2 << 26, device="cuda"), torch.empty(2 << 26, device="cuda")
    measure("copy of 512 MB", lambda: target.copy_(source), 3, 20)
