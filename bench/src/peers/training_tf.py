"""Benchmark rank that trains the tutorial's network with TensorFlow.

    training_tf.py [PORT PORT...]

Each line of standard input is a turn, `WAY PRECISION BATCH STEPS`; the response is `took SECONDS`. The way `alone` exchanges no gradients,
`together` exchanges them by MultiWorkerMirroredStrategy (a ring over gRPC). The precision is `f32` or `bf16` (Keras' mixed_bfloat16). The
batch stays in memory: no input pipeline is measured. XLA is not used: it makes this step five times slower on a CPU. Ranks listen at the
ports; the rank of this process comes from the variables RANK and WORLD_SIZE. One thread runs on each processor that the process is bound to.
"""

import functools
import json
import os
import sys
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if size > 1:
    workers = [f"127.0.0.1:{port}" for port in sys.argv[1:]]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf
import keras
from keras import layers

threads = len(os.sched_getaffinity(0))
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(threads)


# Created by all ranks before any computation: this is their rendezvous.
all_ranks = tf.distribute.MultiWorkerMirroredStrategy() if size > 1 else None


@functools.cache
def training(way, precision):
    """Creates a network and its optimizer; returns the training step."""
    strategy = all_ranks if way == "together" else tf.distribute.get_strategy()
    keras.mixed_precision.set_dtype_policy({"f32": "float32", "bf16": "mixed_bfloat16"}[precision])
    with strategy.scope():
        model = keras.Sequential(
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
                layers.Dense(10, activation="softmax", dtype="float32"),
            ]
        )
        optimizer = keras.optimizers.RMSprop(learning_rate=1e-4 * size)
        optimizer.build(model.trainable_variables)

    def step(images, labels):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True))
            loss = tf.reduce_mean(losses)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    return tf.function(lambda images, labels: strategy.run(step, (images, labels)))


@functools.cache
def random_batch(batch):
    random = np.random.default_rng(rank)
    images = random.random((batch, 32, 32, 3), dtype=np.float32)
    return tf.constant(images), tf.constant(random.integers(0, 10, batch))


for line in sys.stdin:
    way, precision, batch, steps = line.split()
    step, (images, labels) = training(way, precision), random_batch(int(batch))
    began = time.perf_counter()
    for _ in range(int(steps)):
        loss = step(images, labels)
    float(loss)  # waits for the asynchronous steps
    took = time.perf_counter() - began
    print("took", took, flush=True)
