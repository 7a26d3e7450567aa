"""horovod.keras on Keras' torch backend, on 1, 2 and 4 ranks. Run by spmd.py, in a process of its own. TensorFlow must
not be imported."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import pytest

pytest.importorskip("torch", reason="missing: torch")
keras = pytest.importorskip("keras", minversion="3.0", reason="missing: Keras 3", exc_type=ImportError)
if keras.backend.backend() != "torch":
    pytest.skip("Keras was already imported with another backend", allow_module_level=True)

sys.path.insert(0, os.path.dirname(__file__))
# Keras itself may import it, for example when it saves; our code may not.
had_tensorflow = "tensorflow" in sys.modules

from keras_cases import *  # noqa: F403
from keras_cases import hvd

hvd.DistributedOptimizer(keras.optimizers.SGD())
has_tensorflow = "tensorflow" in sys.modules


def test_tensorflow_is_not_imported():
    assert has_tensorflow == had_tensorflow
