"""Trains a small PyTorch network on synthetic data with Horovod: every rank has its own part of the
data, and gradients are averaged over all ranks."""

import argparse
import os
import pathlib

import horovod.torch as hvd
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--rate", type=float, default=0.05)
options = parser.parse_args()

hvd.init()
# One GPU for each rank of this machine, or none.
has_gpu = torch.cuda.device_count() >= hvd.local_size()
device = torch.device("cuda", hvd.local_rank()) if has_gpu else torch.device("cpu")
torch.manual_seed(hvd.rank())
inputs = torch.randn(512, 8, device=device)
targets = inputs.sum(dim=1, keepdim=True).tanh()

model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
# A larger batch allows a larger learning rate.
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate * hvd.size())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

for epoch in range(1, options.epochs + 1):
    for batch in torch.randperm(len(inputs)).split(32):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch])
        loss.backward()
        optimizer.step()
    average = hvd.allreduce(loss.detach(), name="loss")
    if hvd.rank() == 0:
        print(f"epoch={epoch} loss={average.item():.4f}", flush=True)

if hvd.rank() == 0:  # one rank saves the result
    path = pathlib.Path(os.environ.get("AZ_BATCHAI_OUTPUT_MODEL", "."), "model.pt")
    torch.save(model.state_dict(), path)
    print(f"saved {path}")
