"""Benchmark rank that trains the tutorial's network with Keras.

    keras_fit.py plain|horovod

`plain` exchanges nothing with other ranks. `horovod` has the lines of the tutorial's script: the wrapped optimizer and the broadcast callback.

Each line of standard input is a turn, `BATCH STEPS`. The response `took SECONDS` is the time of that many steps of one `model.fit` on
images that stay in memory, from the start of the first step to the end of the last. Time after the last step is not counted: `fit` returns
after 0.31, 0.63, 1.27... s, however long the steps took. Before the first turn the weights of all ranks are compared; if they differ, the
response is `cannot REASON`. Rank and rendezvous come from the variables RANK, WORLD_SIZE and HOROVOD_*. One thread runs on each processor
that the process is bound to.
"""

import functools
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["KERAS_BACKEND"] = "tensorflow"

import numpy as np
import tensorflow as tf
import keras
from keras import layers

engine = sys.argv[1]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
threads = len(os.sched_getaffinity(0))
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(threads)


def network():
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )


class StepTimer(keras.callbacks.Callback):
    """Measures the time of the steps of an epoch."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 0:
            self.began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.took = time.perf_counter() - self.began


@functools.lru_cache(maxsize=1)
def training(batch):
    """Returns a function that trains some steps and returns their time, and whether all ranks have the same weights after two steps."""
    keras.utils.set_random_seed(rank)
    optimizer, callbacks, same_weights = keras.optimizers.RMSprop(learning_rate=1e-4 * size), [], lambda weights: True
    if engine == "horovod":
        import horovod.keras as hvd

        hvd.init()
        optimizer, callbacks = hvd.DistributedOptimizer(optimizer), [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]

        def same_weights(weights):
            sums = np.array([float(np.abs(weight, dtype=np.float64).sum()) for weight in weights])
            return np.allclose(np.asarray(hvd.allreduce(sums, name="sums")), sums, rtol=1e-6, atol=0)

    model = network()
    model.compile(loss="categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    random = np.random.default_rng(rank)
    images = random.random((batch, 32, 32, 3), dtype=np.float32)
    labels = keras.utils.to_categorical(random.integers(0, 10, batch), 10)
    data = tf.data.Dataset.from_tensors((tf.constant(images), tf.constant(labels))).repeat()

    timer = StepTimer()

    def fit(steps):
        model.fit(data, steps_per_epoch=steps, epochs=1, callbacks=[*callbacks, timer], shuffle=False, verbose=0)
        callbacks.clear()  # weights are broadcast once
        return timer.took

    fit(2)
    return fit, same_weights(model.get_weights())


for line in sys.stdin:
    batch, steps = line.split()
    fit, is_same = training(int(batch))
    if not is_same:
        print("cannot train: ranks differ after a step", flush=True)
        continue
    print("took", fit(int(steps)), flush=True)
