"""Runs one step of the tutorial's network with Keras, for comparison: `step.py FOLDER`.

Reads from the folder, as raw little-endian numbers, `weights`, `accumulators` and `images` (float32), `labels` (uint8), `kept`
(float32: the dropout factor of every value; all 1 for a step without dropout) and `settings.json`. Writes `gradients` and `after`
(float64): the mean gradients over the batch, and the weights after the step. Prints the score, and the names, shapes and initial
values of Keras' weights.

Everything is computed in double precision, so that remaining differences are due to the other side.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import keras
from keras.layers import Activation, Conv2D, Dense, Dropout, Flatten, MaxPooling2D

keras.config.set_floatx("float64")
keras.utils.set_random_seed(1)

folder = Path(sys.argv[1])
settings = json.loads((folder / "settings.json").read_text())


def read(name, dtype="<f4"):
    return np.fromfile(folder / name, dtype=dtype)


def split(values, shapes):
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    assert ends[-1] == len(values)
    return [part.reshape(shape) for part, shape in zip(np.split(values, ends[:-1]), shapes)]


# The model of the tutorial's script.
model = keras.Sequential()
model.add(keras.Input((32, 32, 3)))
model.add(Conv2D(32, (3, 3), padding="same"))
model.add(Activation("relu"))
model.add(Conv2D(32, (3, 3)))
model.add(Activation("relu"))
model.add(MaxPooling2D(pool_size=(2, 2)))
model.add(Dropout(0.25))
model.add(Conv2D(64, (3, 3), padding="same"))
model.add(Activation("relu"))
model.add(Conv2D(64, (3, 3)))
model.add(Activation("relu"))
model.add(MaxPooling2D(pool_size=(2, 2)))
model.add(Dropout(0.25))
model.add(Flatten())
model.add(Dense(512))
model.add(Activation("relu"))
model.add(Dropout(0.5))
model.add(Dense(10))
model.add(Activation("softmax"))

shapes = [tuple(variable.shape) for variable in model.trainable_variables]
names = [variable.path.replace("sequential/", "") for variable in model.trainable_variables]
drawn = [np.asarray(variable) for variable in model.trainable_variables]

weights = split(read("weights").astype("f8"), shapes)
labels = read("labels", "u1")
images = read("images").astype("f8").reshape(-1, 32, 32, 3)
wanted = keras.utils.to_categorical(labels, 10)
dropouts = [layer.output.shape[1:] for layer in model.layers if isinstance(layer, Dropout)]
kept = split(read("kept").astype("f8"), [(len(labels), *shape) for shape in dropouts])


def loss_of(weights):
    """Loss of the batch. Calls the model's layers one by one; only the dropout masks are given."""
    values, weights, masks = images, list(weights), list(kept)
    for layer in model.layers:
        if isinstance(layer, Dropout):
            values = values * masks.pop(0)
        else:
            own = [weights.pop(0) for _ in layer.trainable_variables]
            values, _ = layer.stateless_call(own, [], values)
    loss = keras.losses.categorical_crossentropy(wanted, values).sum()
    return loss / len(labels), (loss, values)


gradients, (loss, chances) = jax.jit(jax.grad(loss_of, has_aux=True))(weights)
gradients = [np.asarray(gradient) for gradient in gradients]

# RMSprop as in Keras 2.2, for which the tutorial was written. Keras 3 has epsilon inside of the root, and no decay.
rate = settings["rate"] / (1 + settings["decay"] * settings["iterations"])
after = []
for weight, accumulator, gradient in zip(weights, split(read("accumulators").astype("f8"), shapes), gradients):
    accumulator = 0.9 * accumulator + 0.1 * gradient**2
    after.append(weight - rate * gradient / (np.sqrt(accumulator) + 1e-7))

for name, values in [("gradients", gradients), ("after", after)]:
    np.concatenate([value.ravel() for value in values]).astype("<f8").tofile(folder / name)
answer = {
    "loss": float(loss),
    "correct": int((np.asarray(chances).argmax(axis=1) == labels).sum()),
    "names": names,
    "shapes": shapes,
    "largest": [float(np.abs(values).max()) for values in drawn],
    "variance": [float(np.square(values).mean()) for values in drawn],
}
print(json.dumps(answer))
