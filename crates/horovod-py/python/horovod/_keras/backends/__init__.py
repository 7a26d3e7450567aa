"""Gradient reduction for each Keras backend. One file per backend, each with the classes `Reduction` and `Aggregation`.

A backend's file is imported only if that backend is in use: TensorFlow is not imported for a PyTorch or JAX model.
"""

import importlib
from typing import Any


def backend_name(keras_object: Any) -> str:
    """The backend of an optimizer or a model: tensorflow, torch or jax. Keras 2 only has TensorFlow."""
    if any(kind.__module__.split(".")[0] == "keras" for kind in type(keras_object).__mro__):
        return of_keras()
    return "tensorflow"


def of_keras() -> str:
    import keras

    name = keras.backend.backend() if callable(getattr(keras.backend, "backend", None)) else "tensorflow"
    if name not in ("tensorflow", "torch", "jax"):
        raise ValueError(
            f"horovod.keras works with the Keras backends tensorflow, torch and jax, and this is {name!r}. Set KERAS_BACKEND before "
            "keras is imported."
        )
    return name


def load(name: str) -> Any:
    return importlib.import_module(f"horovod._keras.backends.{name}_backend")
