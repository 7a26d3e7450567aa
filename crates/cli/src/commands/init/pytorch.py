"""Trains a small network on synthetic data with torch.distributed: every rank has its own part of the
data, and DistributedDataParallel averages gradients over all ranks."""

import argparse
import os
import pathlib

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--rate", type=float, default=0.05)
options = parser.parse_args()

# RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set in jobs, by 'corro run' and by torchrun.
local_rank, local_size = (int(os.environ.get(name, 0)) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
# One GPU for each rank of this machine, or none.
has_gpu = 0 < local_size <= torch.cuda.device_count()
dist.init_process_group("nccl" if has_gpu else "gloo")
rank, size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", local_rank) if has_gpu else torch.device("cpu")
torch.manual_seed(rank)
inputs = torch.randn(512, 8, device=device)
targets = inputs.sum(dim=1, keepdim=True).tanh()

model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
model = torch.nn.parallel.DistributedDataParallel(model)
# A larger batch allows a larger learning rate.
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate * size)

for epoch in range(1, options.epochs + 1):
    for batch in torch.randperm(len(inputs)).split(32):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch])
        loss.backward()
        optimizer.step()
    average = loss.detach().clone()
    dist.all_reduce(average)
    if rank == 0:
        print(f"epoch={epoch} loss={average.item() / size:.4f}", flush=True)

if rank == 0:  # one rank saves the result
    path = pathlib.Path(os.environ.get("AZ_BATCHAI_OUTPUT_MODEL", "."), "model.pt")
    torch.save(model.module.state_dict(), path)
    print(f"saved {path}")
dist.destroy_process_group()
