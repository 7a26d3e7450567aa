"""Trains a small Keras network on synthetic data with Horovod: every rank has its own part of the data,
and gradients are averaged over all ranks."""

import argparse
import os
import pathlib

import horovod.keras as hvd
import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--rate", type=float, default=0.05)
options = parser.parse_args()

hvd.init()
rng = np.random.default_rng(hvd.rank())
inputs = rng.standard_normal((512, 8)).astype("float32")
targets = np.tanh(inputs.sum(axis=1, keepdims=True))

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
# A larger batch allows a larger learning rate.
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(options.rate * hvd.size()))
model.compile(optimizer=optimizer, loss="mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
# One rank prints the progress, which 'corro job plot' and the dashboard draw.
model.fit(inputs, targets, batch_size=32, epochs=options.epochs, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)

if hvd.rank() == 0:  # one rank saves the result
    path = pathlib.Path(os.environ.get("AZ_BATCHAI_OUTPUT_MODEL", "."), "model.keras")
    model.save(path)
    print(f"saved {path}")
