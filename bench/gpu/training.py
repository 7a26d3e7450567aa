"""One rank of a training of ResNet-50 on one GPU: batches of 64 random images, bf16 autocast, SGD. The argument is plain (no exchange between
the ranks) or corro (DistributedOptimizer). Prints the seconds of each step."""

import json
import os
import sys
import time

import torch
from torchvision.models import resnet50

kind, quick = sys.argv[1], "--quick" in sys.argv
torch.cuda.set_device(0)
torch.manual_seed(1)
torch.backends.cudnn.benchmark = True
rank = int(os.environ["RANK"])
model = resnet50().cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
import horovod.torch as hvd  # Plain ranks only begin their measurement together.

hvd.init()
if kind == "corro":
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
labels = torch.randint(1000, (64,), device="cuda")
loss_of = torch.nn.CrossEntropyLoss()


def step():
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = loss_of(model(images), labels)
    loss.backward()
    optimizer.step()


for _ in range(10 if quick else 20):
    step()
torch.cuda.synchronize()
rounds, steps = (5, 10) if quick else (10, 20)
for _ in range(rounds):
    hvd.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / steps
    hvd.barrier()
    if rank == 0:
        print(json.dumps({"kind": kind, "ranks": hvd.size(), "seconds": seconds}), flush=True)
