"""horovod.keras and horovod.tensorflow.keras on TensorFlow, on 1, 2 and 4 ranks. Run by spmd.py, in a process of its
own."""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="missing: TensorFlow")
keras = pytest.importorskip("keras", minversion="3.0", reason="missing: Keras 3")
if keras.backend.backend() != "tensorflow":
    pytest.skip("Keras was already imported with another backend", allow_module_level=True)

sys.path.insert(0, os.path.dirname(__file__))
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)

import horovod.tensorflow.keras as tf_hvd
from keras_cases import *  # noqa: F403
from keras_cases import N_ROWS, N_STEPS, assert_everybody_has, data, fit, hvd, network, union, weights


@pytest.mark.parametrize("jit", [False, True])
def test_tf_keras_is_like_one_process(jit):
    alone = network(seed=7)
    alone.compile(tf.keras.optimizers.RMSprop(0.01), "mse", jit_compile=False)
    fit(alone, *union(), N_ROWS * hvd.size(), epochs=1)
    model = network(seed=7)
    model.compile(tf_hvd.DistributedOptimizer(tf.keras.optimizers.RMSprop(0.01)), "mse", jit_compile=jit)
    callbacks = [tf_hvd.callbacks.BroadcastGlobalVariablesCallback(0), tf_hvd.callbacks.MetricAverageCallback()]
    fit(model, *data(hvd.rank()), N_ROWS, epochs=1, callbacks=callbacks)
    for mine, expected in zip(weights(model), weights(alone)):
        np.testing.assert_allclose(mine, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_backward_passes_per_step(run_eagerly, average):
    model = network(seed=8)
    before = weights(model)
    optimizer = tf_hvd.DistributedOptimizer(
        tf.keras.optimizers.SGD(0.1), backward_passes_per_step=3, average_aggregated_gradients=average
    )
    model.compile(optimizer, "mse", run_eagerly=run_eagerly, jit_compile=False)
    x, y = data(hvd.rank())
    model.train_on_batch(x[:N_ROWS], y[:N_ROWS])
    model.train_on_batch(x[N_ROWS : 2 * N_ROWS], y[N_ROWS : 2 * N_ROWS])
    for mine, expected in zip(weights(model), before):
        np.testing.assert_array_equal(mine, expected)
    model.train_on_batch(x[2 * N_ROWS : 3 * N_ROWS], y[2 * N_ROWS : 3 * N_ROWS])
    assert int(optimizer.iterations.numpy()) == 3

    whole = network(seed=8)
    whole.compile(tf.keras.optimizers.SGD(0.1 if average else 0.3), "mse", jit_compile=False)
    parts = [[part[: 3 * N_ROWS] for part in data(rank)] for rank in range(hvd.size())]
    whole.train_on_batch(*[np.concatenate([p[i] for p in parts]) for i in range(2)])
    for mine, expected in zip(weights(model), weights(whole)):
        np.testing.assert_allclose(mine, expected, rtol=2e-4, atol=2e-5)


def test_a_custom_training_loop(tmp_path):
    """optimizer.apply_gradients in a tf.function, and hvd.broadcast_variables after the first step."""
    import horovod.tensorflow as plain

    model = network()
    optimizer = plain.DistributedOptimizer(tf.keras.optimizers.SGD(0.05))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    x, y = data(hvd.rank())
    for number in range(N_STEPS):
        rows = slice(number * N_ROWS, (number + 1) * N_ROWS)
        step(x[rows], y[rows])
        if number == 0:
            plain.broadcast_variables(model.variables, root_rank=0)
            plain.broadcast_variables(optimizer.variables, root_rank=0)
    assert_everybody_has(weights(model))


def test_embedding_gradients_are_sparse():
    for jit in (False, True):
        for sparse_as_dense in (False, True):
            model = keras.Sequential([keras.layers.Input((3,), dtype="int32"), keras.layers.Embedding(10, 4), keras.layers.Flatten(), keras.layers.Dense(1)])
            hvd_optimizer = tf_hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), sparse_as_dense=sparse_as_dense)
            model.compile(hvd_optimizer, "mse", jit_compile=jit)
            model.set_weights([np.full(w.shape, 0.1, np.float32) for w in model.get_weights()])
            x = (np.arange(24).reshape(8, 3) + hvd.rank()) % 10
            fit(model, x.astype(np.int32), np.ones((8, 1), np.float32), 4, epochs=1)
            assert_everybody_has(weights(model))


def test_steps_per_execution_and_many_shapes():
    model = network(seed=6)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), "mse", steps_per_execution=3, jit_compile=True)
    x, y = data(hvd.rank())
    # The last batch is smaller, which causes another trace.
    fit(model, x[:-3], y[:-3], N_ROWS, epochs=2)
    assert_everybody_has(weights(model))


def test_state_is_carried_when_a_used_optimizer_is_wrapped():
    model = network(seed=6)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    fit(model, *data(0), N_ROWS, epochs=1)
    wrapped = hvd.DistributedOptimizer(model.optimizer)
    assert int(wrapped.iterations.numpy()) == N_STEPS
    for mine, expected in zip(wrapped.variables, model.optimizer.variables):
        np.testing.assert_array_equal(mine.numpy(), expected.numpy())


def test_values_of_tf_keras():
    rank, size = tf_hvd.rank(), tf_hvd.size()
    assert float(tf_hvd.allreduce(float(rank), name="n")) == (size - 1) / 2
    assert tf_hvd.allgather([rank]).numpy().tolist() == list(range(size))
    assert int(tf_hvd.broadcast(rank, size - 1)) == size - 1
    np.testing.assert_array_equal(tf_hvd.reducescatter(np.ones((size, 1), np.float32)).numpy(), [[1.0]])
    with pytest.raises(RuntimeError, match="hvd.broadcast_variables"):
        tf_hvd.broadcast_global_variables(0)
