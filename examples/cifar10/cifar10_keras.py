"""The tutorial's training for today's Keras: a small network on CIFAR-10, shared among ranks by Horovod.

Run once for each rank, by a job (job.json beside it) or by `corro run -np 4 python cifar10_keras.py --dir out`. Works with
every backend of Keras (KERAS_BACKEND). What Horovod needs is marked HOROVOD. Rank 0 alone writes.
"""
import argparse
import math
import os

import cifar10_data

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("-d", "--dir", required=True, help="directory to save the model to, in saved_models/")
parser.add_argument("--data", default=os.environ.get("CIFAR10_DATA"),
                    help="CIFAR-10: an archive of its authors or a directory of batch files "
                         "[default: $CIFAR10_DATA, or what lies in --dir or beside this script]")
parser.add_argument("--epochs", type=int, help="[default: 100 divided by the number of ranks]")
parser.add_argument("--steps", type=int, help="batches an epoch [default: all]")
parser.add_argument("--limit", type=int, help="use only the first images of the training and the test set")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

# Nodes of one machine share its processors. Said before anything starts threads.
hosts = os.environ.get("AZ_BATCH_HOST_LIST", "").split(",")
beside_each_other = "HOROVOD_SIZE" if all(host.startswith("127.") for host in hosts) else "HOROVOD_LOCAL_SIZE"
threads = max(1, len(os.sched_getaffinity(0)) // int(os.environ.get(beside_each_other, 1)))
os.environ.setdefault("OMP_NUM_THREADS", str(threads))
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(threads))
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if threads == 1:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import keras
import numpy as np
from keras import layers

import horovod.keras as hvd

# HOROVOD: initialize Horovod.
hvd.init()

# HOROVOD: pin the GPU of this local rank (one GPU per process), before the backend looks for any.
visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
gpus = [gpu for gpu in visible.split(",") if gpu] or [str(hvd.local_rank())]
os.environ["CUDA_VISIBLE_DEVICES"] = gpus[hvd.local_rank() % len(gpus)]

batch_size = 32
num_classes = 10
# HOROVOD: adjust the number of epochs to the number of ranks.
epochs = args.epochs if args.epochs is not None else int(math.ceil(100.0 / hvd.size()))
save_dir = os.path.join(args.dir, "saved_models")
model_name = "keras_cifar10_trained_model.h5"
leads = hvd.rank() == 0


class Augmented(keras.utils.PyDataset):
    """Batches of images in a new order each epoch, shifted by up to a tenth and half of them mirrored."""

    def __init__(self, x, y, steps, seed, **keywords):
        super().__init__(**keywords)
        self.x, self.y, self.seed, self.epoch = x, y, seed, 0
        self.all_steps = int(math.ceil(len(x) / batch_size))
        self.steps = min(steps or self.all_steps, self.all_steps)
        self.on_epoch_end()

    def __len__(self):
        return self.steps

    def __getitem__(self, step):
        chosen = self.order[step * batch_size:(step + 1) * batch_size]
        chance = np.random.default_rng([self.seed, self.epoch, step])
        return augment(self.x[chosen], chance), self.y[chosen]

    def on_epoch_end(self):
        self.epoch += 1
        self.order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self.x))


def augment(images, chance):
    """Moves each image by a part of a pixel too, so pixels are mixed from their neighbours; edges are drawn out."""
    for axis in (1, 2):
        shift = chance.uniform(-0.1, 0.1, len(images)) * images.shape[axis]
        at = np.clip(np.arange(images.shape[axis]) + shift[:, None], 0, images.shape[axis] - 1)
        low = np.floor(at).astype(int)
        part = (at - low).astype("float32")
        high = np.minimum(low + 1, images.shape[axis] - 1)
        shape = [len(images), 1, 1, 1]
        shape[axis] = images.shape[axis]
        low, high, part = low.reshape(shape), high.reshape(shape), part.reshape(shape)
        images = np.take_along_axis(images, low, axis) * (1 - part) + np.take_along_axis(images, high, axis) * part
    mirrored = chance.random(len(images)) < 0.5
    images[mirrored] = images[mirrored, :, ::-1]
    return images


try:
    data = cifar10_data.find(args.data, args.dir, os.path.dirname(os.path.abspath(__file__)))
    (x_train, y_train), (x_test, y_test) = cifar10_data.load(data)
except cifar10_data.DataError as error:
    raise SystemExit("cifar10_keras.py: %s with --data" % error)
x_train, y_train = x_train[:args.limit], y_train[:args.limit]
x_test, y_test = x_test[:args.limit], y_test[:args.limit]
if leads:
    print("x_train shape:", x_train.shape)
    print(x_train.shape[0], "train samples")
    print(x_test.shape[0], "test samples")
x_train = x_train.astype("float32") / 255
x_test = x_test.astype("float32") / 255
y_train = keras.utils.to_categorical(y_train, num_classes)
y_test = keras.utils.to_categorical(y_test, num_classes)

keras.utils.set_random_seed(args.seed + hvd.rank())
model = keras.Sequential([
    layers.Input(x_train.shape[1:]),
    layers.Conv2D(32, (3, 3), padding="same"),
    layers.Activation("relu"),
    layers.Conv2D(32, (3, 3)),
    layers.Activation("relu"),
    layers.MaxPooling2D(pool_size=(2, 2)),
    layers.Dropout(0.25),
    layers.Conv2D(64, (3, 3), padding="same"),
    layers.Activation("relu"),
    layers.Conv2D(64, (3, 3)),
    layers.Activation("relu"),
    layers.MaxPooling2D(pool_size=(2, 2)),
    layers.Dropout(0.25),
    layers.Flatten(),
    layers.Dense(512),
    layers.Activation("relu"),
    layers.Dropout(0.5),
    layers.Dense(num_classes),
    layers.Activation("softmax"),
])

# HOROVOD: adjust the learning rate to the number of ranks. It falls as rate / (1 + decay * steps).
rate = keras.optimizers.schedules.InverseTimeDecay(0.0001 * hvd.size(), decay_steps=1, decay_rate=1e-6)
opt = keras.optimizers.RMSprop(learning_rate=rate, rho=0.9, epsilon=1e-7)

# HOROVOD: add the Horovod Distributed Optimizer.
opt = hvd.DistributedOptimizer(opt)

model.compile(loss="categorical_crossentropy", optimizer=opt, metrics=["accuracy"])

callbacks = [
    # HOROVOD: everybody begins with the weights of rank 0.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # HOROVOD: every rank has looked at its part of the test images; what is shown is for all of them.
    hvd.callbacks.MetricAverageCallback(),
]

# HOROVOD: save checkpoints only on rank 0, so that the others cannot damage them.
if leads:
    callbacks.append(keras.callbacks.ModelCheckpoint("./checkpoint-{epoch}.h5"))
    print("Using real-time data augmentation.")

mine = slice(hvd.rank(), None, hvd.size())
model.fit(Augmented(x_train, y_train, args.steps, args.seed + hvd.rank()),
          epochs=epochs,
          validation_data=(x_test[mine], y_test[mine]),
          callbacks=callbacks,
          verbose=1 if leads else 0)

if leads:
    # Save model and weights.
    os.makedirs(save_dir, exist_ok=True)
    model_path = os.path.join(save_dir, model_name)
    model.save(model_path)
    print("Saved trained model at %s " % model_path)

    # Score the trained model.
    scores = model.evaluate(x_test, y_test, verbose=1)
    print("Test loss:", scores[0])
    print("Test accuracy:", scores[1])
