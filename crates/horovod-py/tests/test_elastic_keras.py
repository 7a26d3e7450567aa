"""KerasState on a backend other than TensorFlow (JAX, unless KERAS_BACKEND is set), and recovery from failures. Run on
1, 2 and 4 ranks with spmd.py. For TensorFlow see test_elastic_tensorflow.py."""

import os

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
pytest.importorskip(os.environ["KERAS_BACKEND"])
keras = pytest.importorskip("keras", minversion="3.0")

import horovod.keras as hvd
from horovod.common.exceptions import HorovodInternalError


@pytest.fixture(autouse=True)
def engine():
    hvd.init()
    yield
    hvd.allgather(np.zeros(1, dtype="float32"), name="all are here")
    hvd.shutdown()


def _model(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)), loss="mse")
    return model


def _data():
    random = np.random.RandomState(hvd.rank())
    return random.rand(32, 3).astype("float32"), random.rand(32, 1).astype("float32")


def test_model_and_optimizer_are_restored():
    model, (x, y) = _model(0), _data()
    state = hvd.elastic.KerasState(model, epoch=0)
    model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    state.epoch = 1
    state.commit()
    saved = model.get_weights()
    model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    expected = model.get_weights()
    state.epoch = 2
    state.restore()
    assert state.epoch == 1
    for seen, wanted in zip(model.get_weights(), saved):
        np.testing.assert_array_equal(seen, wanted)
    model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    for seen, wanted in zip(model.get_weights(), expected):
        np.testing.assert_allclose(seen, wanted, rtol=1e-6, err_msg="the momentum came back too")


def test_sync_broadcasts_rank_0():
    model = _model(hvd.rank())
    state = hvd.elastic.KerasState(model, epoch=hvd.rank())
    state.sync()
    assert state.epoch == 0
    for seen, wanted in zip(model.get_weights(), _model(0).get_weights()):
        np.testing.assert_array_equal(seen, wanted)


def test_fit_continues_after_a_failure():
    """Fails in the middle of the second epoch; the result equals that of a training without a failure."""
    x, y = _data()
    expected = _model(0)
    expected.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)

    model = _model(0)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    begun = []

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if len(begun) == 1 and (state.epoch, state.batch) == (1, 2):
                # The others notice in their next batch.
                if hvd.rank() == hvd.size() - 1:
                    hvd.shutdown()
                    raise HorovodInternalError("one rank left")

    @hvd.elastic.run
    def train(state):
        begun.append((state.epoch, state.batch))
        while state.epoch < 3:
            model.fit(
                x[8 * state.batch :],
                y[8 * state.batch :],
                batch_size=8,
                epochs=1,
                shuffle=False,
                verbose=0,
                callbacks=[
                    hvd.elastic.UpdateBatchStateCallback(state),
                    hvd.elastic.CommitStateCallback(state, batches_per_commit=1),
                    hvd.elastic.UpdateEpochStateCallback(state),
                    Fail(),
                ],
            )

    train(state)
    assert begun == [(0, 0), (1, 2)]
    assert (state.epoch, state.batch) == (3, 0)
    for seen, wanted in zip(model.get_weights(), expected.get_weights()):
        np.testing.assert_allclose(seen, wanted, rtol=1e-5, atol=1e-6)
