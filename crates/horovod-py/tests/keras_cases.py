"""Test cases of horovod.keras for every Keras backend. Not run directly: each test_keras_*.py selects a backend and
imports all cases.

Networks are tiny, and Keras trains in float32, so results are compared up to rounding.
"""

import os

import numpy as np
import pytest

import horovod.keras as hvd
import keras

N_ROWS, N_STEPS = 8, 6


@pytest.fixture(scope="module", autouse=True)
def job():
    hvd.init()
    yield
    hvd.shutdown()


def network(seed=None, layers=1):
    """Equal on all ranks for a seed; by default every rank has other weights."""
    seed = hvd.rank() + 1 if seed is None else seed
    initializers = [keras.initializers.RandomNormal(seed=seed * 10 + n) for n in range(2)]
    return keras.Sequential(
        [keras.layers.Input((4,))]
        + [keras.layers.Dense(6, activation="tanh", kernel_initializer=initializers[0]) for _ in range(layers)]
        + [keras.layers.Dense(2, kernel_initializer=initializers[1])]
    )


def data(rank):
    """Training data of a rank."""
    generator = np.random.default_rng(rank)
    x = generator.normal(size=(N_ROWS * N_STEPS, 4)).astype(np.float32)
    return x, (x[:, :2] * 2 + 1).astype(np.float32)


def union():
    """The data of all ranks for one process: in each step the rows of all ranks."""
    parts = [data(rank) for rank in range(hvd.size())]
    return tuple(
        np.concatenate([p[i].reshape(N_STEPS, N_ROWS, -1) for p in parts], axis=1).reshape(N_STEPS * N_ROWS * hvd.size(), -1)
        for i in range(2)
    )


def fit(model, x, y, batch_size, **kwargs):
    return model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0, **kwargs)


def weights(model):
    return [np.asarray(w) for w in model.get_weights()]


def assert_everybody_has(values):
    for number, value in enumerate(values):
        gathered = keras.ops.convert_to_numpy(hvd.allgather(value[None], name=f"alike.{number}"))
        np.testing.assert_array_equal(gathered, np.broadcast_to(gathered[:1], gathered.shape))


@pytest.mark.parametrize("jit, optimizer", [(False, "SGD"), ("auto", "SGD"), (True, "Adam")])
def test_fit_is_like_one_process(jit, optimizer):
    if jit is True and keras.backend.backend() == "torch":
        pytest.skip("torch.compile needs a compiler; Keras' auto means eager there")

    def make():
        return getattr(keras.optimizers, optimizer)(0.05, **({"momentum": 0.9} if optimizer == "SGD" else {}))

    alone = network(seed=7)
    alone.compile(make(), "mse", jit_compile=False)
    fit(alone, *union(), N_ROWS * hvd.size(), epochs=2)

    model = network(seed=7)
    wrapped = hvd.DistributedOptimizer(make())
    assert type(wrapped).__name__ == optimizer and isinstance(wrapped, getattr(keras.optimizers, optimizer))
    model.compile(wrapped, "mse", metrics=["mae"], jit_compile=jit)
    fit(model, *data(hvd.rank()), N_ROWS, epochs=2)
    for mine, expected in zip(weights(model), weights(alone)):
        np.testing.assert_allclose(mine, expected, rtol=2e-4, atol=2e-5)
    assert_everybody_has(weights(model))
    assert int(np.asarray(model.optimizer.iterations)) == 2 * N_STEPS


def test_different_initial_weights_become_equal():
    model = network()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    history = fit(model, *data(hvd.rank()), N_ROWS, epochs=2, callbacks=callbacks, validation_data=data(99 + hvd.rank()))
    assert_everybody_has(weights(model))
    assert_everybody_has([np.asarray(v) for v in model.optimizer.variables])
    losses = np.array(history.history["loss"] + history.history["val_loss"])
    assert_everybody_has([losses])


def test_warmup_and_schedule():
    size = hvd.size()
    model = network(seed=1)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * size, momentum=0.5)), "mse")
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if hasattr(self.model, "jax_state_sync"):
                self.model.jax_state_sync()
            seen.append(float(np.asarray(self.model.optimizer.learning_rate)))

    callbacks = [
        hvd.callbacks.LearningRateWarmupCallback(0.01 * size, warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(0.01 * size, multiplier=0.1, start_epoch=2, end_epoch=3),
        hvd.callbacks.LearningRateScheduleCallback(0.01 * size, multiplier=lambda epoch: 0.5, start_epoch=3),
        Watch(),
    ]
    history = fit(model, *data(hvd.rank()), N_ROWS, epochs=4, callbacks=callbacks)
    steps = np.arange(1, 2 * N_STEPS + 1) / N_STEPS
    warm = 0.01 * (steps * (size - 1) / 2 + 1)
    expected = np.concatenate([warm, np.full(N_STEPS, 0.01 * size), np.full(N_STEPS, 0.005 * size)])
    np.testing.assert_allclose(seen, expected, rtol=1e-5)
    np.testing.assert_allclose(history.history["lr"], expected[N_STEPS - 1 :: N_STEPS], rtol=1e-5)


def test_keras_schedules_are_kept():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(schedule))
    model = network(seed=1)
    model.compile(wrapped, "mse")
    fit(model, *data(hvd.rank()), N_ROWS, epochs=1)
    np.testing.assert_allclose(float(np.asarray(wrapped.learning_rate)), 0.5 * 0.5**N_STEPS, rtol=1e-5)


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_save_and_load(tmp_path, suffix):
    path = str(tmp_path / f"rank{hvd.rank()}.{suffix}")
    model = network(seed=2)
    # An object: Keras does not find the function "mse" again in an .h5 file.
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.02)), keras.losses.MeanSquaredError(), jit_compile=False)
    fit(model, *data(hvd.rank()), N_ROWS, epochs=1)
    model.save(path)
    # Without Horovod it is an ordinary model.
    plain = keras.models.load_model(path)
    assert isinstance(plain.optimizer, keras.optimizers.Adam) and not hasattr(plain.optimizer, "register_local_var")
    loaded = hvd.load_model(path)
    assert isinstance(loaded.optimizer, keras.optimizers.Adam) and hasattr(loaded.optimizer, "register_local_var")
    assert int(np.asarray(loaded.optimizer.iterations)) == N_STEPS
    for each in (model, loaded):
        fit(each, *data(hvd.rank()), N_ROWS, epochs=1)
    for mine, expected in zip(weights(loaded), weights(model)):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)
    assert_everybody_has(weights(loaded))


def test_load_with_custom_optimizer(tmp_path):
    class Mine(keras.optimizers.SGD):
        pass

    path = str(tmp_path / f"rank{hvd.rank()}.keras")
    model = network(seed=2)
    model.compile(hvd.DistributedOptimizer(Mine(0.01)), "mse")
    fit(model, *data(hvd.rank()), N_ROWS, epochs=1)
    model.save(path)
    loaded = hvd.load_model(path, custom_optimizers=[Mine])
    assert isinstance(loaded.optimizer, Mine)


def test_partial_optimizer_keeps_local_layers():
    model = network(seed=3)
    local = model.layers[0]
    with pytest.raises(ValueError, match="local layers"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=["dense"])
    wrapped = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=local)
    model.compile(wrapped, "mse")
    fit(model, *data(hvd.rank()), N_ROWS, epochs=1)
    assert_everybody_has(weights(model.layers[1])[1:])
    kernels = keras.ops.convert_to_numpy(hvd.allgather(weights(local)[0][None], name="local kernels"))
    for rank in range(1, hvd.size()):
        assert not np.allclose(kernels[0], kernels[rank])


def test_groups_compression_and_sum():
    for settings in ({"groups": 2}, {"num_groups": 1}, {"compression": hvd.Compression.fp16}, {"op": hvd.Sum}):
        model = network(seed=4)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), **settings), "mse", jit_compile=False)
        fit(model, *data(hvd.rank()), N_ROWS, epochs=1)
        assert_everybody_has(weights(model))
    model = network(seed=4)
    groups = [list(model.layers[0].trainable_weights), list(model.layers[1].trainable_weights)]
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), groups=groups), "mse", jit_compile=False)
    fit(model, *data(hvd.rank()), N_ROWS, epochs=1)
    assert_everybody_has(weights(model))


def test_values():
    rank, size = hvd.rank(), hvd.size()
    assert float(hvd.allreduce(float(rank), name="number")) == (size - 1) / 2
    assert float(hvd.allreduce(float(rank), name="number", average=False)) == sum(range(size))
    gathered = keras.ops.convert_to_numpy(hvd.allgather(np.full(2, rank, np.int32)))
    np.testing.assert_array_equal(gathered, np.repeat(np.arange(size), 2))
    assert int(hvd.broadcast(np.int64(rank + 7), size - 1)) == size + 6
    np.testing.assert_array_equal(np.asarray(hvd.reducescatter(np.ones((size, 2), np.float32), op=hvd.Sum)), np.full((1, 2), size))


def test_invalid_arguments():
    with pytest.raises(ValueError, match="op currently only supports Average and Sum"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Adasum)
    with pytest.raises(ValueError, match="initial_lr"):
        hvd.callbacks.LearningRateScheduleCallback(None, 0.1)
    with pytest.raises(RuntimeError, match="BroadcastGlobalVariablesCallback"):
        hvd.broadcast_global_variables(0)
    with pytest.raises(ValueError, match="groups should be"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=-1)


def test_best_model_checkpoint(tmp_path):
    model = network(seed=5)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    checkpoint = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    with pytest.raises(ValueError, match="filepath"):
        fit(model, *data(hvd.rank()), N_ROWS, epochs=1, callbacks=[checkpoint])
    checkpoint.filepath = str(tmp_path / f"best{hvd.rank()}.keras")
    fit(model, *data(hvd.rank()), N_ROWS, epochs=1, callbacks=[checkpoint])
    assert os.path.exists(checkpoint.filepath)
