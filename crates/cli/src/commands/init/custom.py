"""Fits a line to noisy points by gradient descent. Needs Python's standard library only."""

import argparse
import os
import pathlib
import random

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--rate", type=float, default=0.2)
options = parser.parse_args()

random.seed(1)
points = [(x / 100, 3 * x / 100 + 1 + random.gauss(0, 0.1)) for x in range(-100, 100)]
slope, intercept = 0.0, 0.0
for epoch in range(1, options.epochs + 1):
    loss = 0.0
    for x, y in random.sample(points, len(points)):
        error = slope * x + intercept - y
        loss += error**2 / len(points)
        slope -= options.rate * error * x
        intercept -= options.rate * error
    # 'corro job plot' and the dashboard draw such lines.
    print(f"epoch={epoch} loss={loss:.4f}", flush=True)

path = pathlib.Path(os.environ.get("AZ_BATCHAI_OUTPUT_MODEL", "."), "model.txt")
path.write_text(f"{slope:.3f} {intercept:.3f}\n")
print(f"saved {path}")
