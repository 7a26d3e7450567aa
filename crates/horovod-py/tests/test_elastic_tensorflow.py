"""Elastic states of TensorFlow and of Keras models, and recovery from failures. Run on 1, 2 and 4 ranks with spmd.py."""

import os

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf = pytest.importorskip("tensorflow")

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from horovod.common.exceptions import HorovodInternalError


@pytest.fixture(autouse=True)
def engine():
    hvd.init()
    yield
    hvd.allreduce(tf.zeros(1), name="all are here")
    hvd.shutdown()


def _model(seed):
    tf.keras.utils.set_random_seed(seed)
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
    model.compile(optimizer=hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.05, momentum=0.9)), loss="mse")
    return model


def _data():
    random = np.random.RandomState(hvd.rank())
    return random.rand(32, 3).astype("float32"), random.rand(32, 1).astype("float32")


def _values(model):
    return [np.array(value) for value in model.get_weights()]


def _same(left, right):
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right))


def test_model_and_optimizer_are_restored():
    model, (x, y) = _model(0), _data()
    state = hvd.elastic.TensorFlowKerasState(model, batch=0)
    model.train_on_batch(x, y)
    state.batch = 1
    state.commit()
    saved = _values(model)
    model.train_on_batch(x, y)
    expected = _values(model)
    assert not _same(saved, expected)
    for _ in range(2):
        state.batch = 9
        state.restore()
        assert state.batch == 1 and _same(_values(model), saved)
        model.train_on_batch(x, y)
        assert _same(_values(model), expected), "the momentum came back too"


def test_sync_broadcasts_rank_0():
    model = _model(hvd.rank())
    state = hvd_keras.elastic.KerasState(model, epoch=hvd.rank())
    state.sync()
    assert _same(_values(model), _values(_model(0))) and state.epoch == 0


def test_every_rank_can_send():
    last = hvd.size() - 1
    model = _model(hvd.rank())
    state = hvd_keras.elastic.KerasState(model, epoch=hvd.rank())
    variables = hvd.elastic.TensorFlowState(variables=[tf.Variable([1.0 + hvd.rank()])], step=hvd.rank())
    assert state.accepts_any_sender() and variables.accepts_any_sender()
    state.sync_from(last)
    variables.sync_from(last)
    assert _same(_values(model), _values(_model(last))) and state.epoch == last
    assert variables.variables[0].numpy().tolist() == [1.0 + last] and variables.step == last


def test_variables_are_restored_and_synced():
    variables = [tf.Variable([1.0 + hvd.rank()]), tf.Variable([[2, hvd.rank()]])]
    state = hvd.elastic.TensorFlowState(variables=variables, step=hvd.rank())
    state.sync()
    assert variables[0].numpy().tolist() == [1.0] and variables[1].numpy().tolist() == [[2, 0]] and state.step == 0
    variables[0].assign([7.0])
    state.restore()
    assert variables[0].numpy().tolist() == [1.0]
    with pytest.raises(ValueError, match="variables is missing"):
        hvd.elastic.TensorFlowState()


def test_fit_continues_after_a_failure():
    """Fails in the middle of the second epoch; the result equals that of a training without a failure."""
    x, y = _data()
    expected = _model(0)
    expected.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)

    model = _model(0)
    state = hvd_keras.elastic.KerasState(model, batch=0, epoch=0)
    begun = []

    class Fail(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if len(begun) == 1 and (state.epoch, state.batch) == (1, 2):
                # The others notice in their next batch.
                if hvd.rank() == hvd.size() - 1:
                    hvd.shutdown()
                    raise HorovodInternalError("one rank left")

    @hvd_keras.elastic.run
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
                    hvd_keras.elastic.UpdateBatchStateCallback(state),
                    hvd_keras.elastic.CommitStateCallback(state, batches_per_commit=1),
                    hvd_keras.elastic.UpdateEpochStateCallback(state),
                    Fail(),
                ],
            )

    train(state)
    assert begun == [(0, 0), (1, 2)]
    assert (state.epoch, state.batch) == (3, 0)
    for seen, wanted in zip(_values(model), _values(expected)):
        np.testing.assert_allclose(seen, wanted, rtol=1e-5, atol=1e-6)


def test_other_tensorflow_errors_propagate():
    @hvd.elastic.run
    def train(state):
        raise tf.errors.UnknownError(None, None, "the disk is full")

    with pytest.raises(tf.errors.UnknownError, match="the disk is full"):
        train(hvd.elastic.TensorFlowState(variables=[tf.Variable(0.0)]))
