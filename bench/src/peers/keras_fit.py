"""One rank that trains the tutorial's network with Keras, as many steps as it is told.

    keras_fit.py plain|horovod

`plain` knows no other rank. `horovod` has the lines of the tutorial's script: the wrapped optimizer and the callback that broadcasts.

Every line that comes in is a turn, `BATCH STEPS`; it is answered by a line `took SECONDS`, the time of so many steps of one `model.fit` on
images that stay in memory, from the begin of the first to the end of the last. What comes after them is not counted: `fit` returns after
0.31, 0.63, 1.27... s, whatever the steps took. Before the first turn is answered, all ranks have the same weights, or it is said that they
have not. Where it runs comes from the variables RANK, WORLD_SIZE and HOROVOD_*. It uses the processors it is bound to, with a thread on each.
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


class Clock(keras.callbacks.Callback):
    """What the steps of an epoch took."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 0:
            self.began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.took = time.perf_counter() - self.began


@functools.lru_cache(maxsize=1)
def training(batch):
    """A function that trains so many steps and says what they took, and whether all ranks have the same weights after some."""
    keras.utils.set_random_seed(rank)
    optimizer, callbacks, same = keras.optimizers.RMSprop(learning_rate=1e-4 * size), [], lambda weights: True
    if engine == "horovod":
        import horovod.keras as hvd

        hvd.init()
        optimizer, callbacks = hvd.DistributedOptimizer(optimizer), [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]

        def same(weights):
            sums = np.array([float(np.abs(each, dtype=np.float64).sum()) for each in weights])
            return np.allclose(np.asarray(hvd.allreduce(sums, name="sums")), sums, rtol=1e-6, atol=0)

    model = network()
    model.compile(loss="categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    random = np.random.default_rng(rank)
    images = random.random((batch, 32, 32, 3), dtype=np.float32)
    labels = keras.utils.to_categorical(random.integers(0, 10, batch), 10)
    data = tf.data.Dataset.from_tensors((tf.constant(images), tf.constant(labels))).repeat()

    clock = Clock()

    def fit(steps):
        model.fit(data, steps_per_epoch=steps, epochs=1, callbacks=[*callbacks, clock], shuffle=False, verbose=0)
        callbacks.clear()  # weights are broadcast once
        return clock.took

    fit(2)
    return fit, same(model.get_weights())


for line in sys.stdin:
    batch, steps = line.split()
    fit, same = training(int(batch))
    if not same:
        print("cannot train: ranks differ after a step", flush=True)
        continue
    print("took", fit(int(steps)), flush=True)
