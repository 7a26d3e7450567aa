"""Estimates pi: each rank counts random points in a circle, and writes its share. Needs Python's
standard library only; with mpi4py the ranks could add up their counts themselves."""

import argparse
import os
import pathlib
import random

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()


def first(*names):
    """Value of the first variable that is set: each MPI has names of its own."""
    return next((int(os.environ[name]) for name in names if name in os.environ), None)


rank = first("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK") or 0
size = first("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE") or 1

random.seed(rank)
points, inside = 0, 0
for epoch in range(1, options.epochs + 1):
    inside += sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(100_000))
    points += 100_000
    print(f"rank {rank} of {size}: epoch={epoch} pi={4 * inside / points:.4f}", flush=True)

path = pathlib.Path(os.environ.get("AZ_BATCHAI_OUTPUT_MODEL", "."), f"rank-{rank}.txt")
path.write_text(f"{inside} {points}\n")
print(f"saved {path}")
