"""Loads saved models with Keras: `saved_models.py DIRECTORY`. The directory has model.h5, checkpoint-3.h5, model.safetensors, images.f32
(NHWC) and labels.u8. Prints one JSON object. Saves by_keras.h5, the same network with new weights, whose sums are printed.
"""

import json
import pathlib
import sys

import keras
import numpy as np
from safetensors import safe_open

directory = pathlib.Path(sys.argv[1])
images = np.fromfile(directory / "images.f32", "<f4").reshape(-1, 32, 32, 3)
labels = np.fromfile(directory / "labels.u8", "u1")
wanted = keras.utils.to_categorical(labels, 10)


def evaluate(name):
    """Loads, summarises and evaluates a model, without compiling it again."""
    model = keras.models.load_model(directory / name)
    lines = []
    model.summary(print_fn=lambda line, line_break=True: lines.append(line))
    loss, accuracy = model.evaluate(images, wanted, verbose=0)
    return model, {
        "layers": [type(layer).__name__ for layer in model.layers],
        "names": [weight.path.removeprefix("sequential/") for weight in model.weights],
        "parameters": model.count_params(),
        "summary": "\n".join(lines),
        "probabilities": model.predict(images, verbose=0).tolist(),
        "loss": loss,
        "accuracy": accuracy,
        "optimizer": type(model.optimizer).__name__,
        "iterations": int(model.optimizer.iterations),
        "rate": float(model.optimizer.learning_rate),
    }


model, answer = evaluate("model.h5")
_, checkpoint = evaluate("checkpoint-3.h5")

# The same weights as safetensors.
with safe_open(directory / "model.safetensors", "numpy") as tensors:
    same = len(tensors.keys()) == len(model.weights)
    for name, weight in zip(answer["names"], model.weights):
        same = same and np.array_equal(tensors.get_tensor(name), np.asarray(weight))
    notes = tensors.metadata()

# Training can continue, and the model that Keras saves then must be readable.
before = [np.asarray(weight).copy() for weight in model.weights]
model.fit(images, wanted, epochs=1, verbose=0)
trained = any(not np.array_equal(old, np.asarray(new)) for old, new in zip(before, model.weights))
model.save(directory / "by_keras.h5")
sums = [float(np.asarray(weight, "f8").sum()) for weight in model.weights]

print(json.dumps({"model": answer, "checkpoint": checkpoint, "same": same, "notes": notes, "trained": trained, "sums": sums}))
