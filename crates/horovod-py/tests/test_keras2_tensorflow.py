"""horovod.tensorflow.keras with Keras 2: tf_keras (TF_USE_LEGACY_KERAS=1), or the Keras of TensorFlow 2.15 and before.

Run by spmd.py on 1, 2 and 4 ranks, in a process of its own: the choice of tf.keras cannot be changed later.
"""

import importlib.util
import os

if importlib.util.find_spec("tf_keras"):
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("HOROVOD_DYNAMIC_PROCESS_SETS", "1")

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="missing: TensorFlow")
keras = tf.keras
if not hasattr(keras.optimizers.legacy, "SGD") or hasattr(keras.optimizers.SGD, "apply"):
    pytest.skip("missing: Keras 2: tf_keras", allow_module_level=True)

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras

N_ROWS, N_STEPS = 4, 6
KINDS = {"new": keras.optimizers, "legacy": keras.optimizers.legacy}


@pytest.fixture(scope="module", autouse=True)
def job():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(params=list(KINDS))
def optimizers(request):
    return KINDS[request.param]


def network(seed=7):
    initializers = [keras.initializers.RandomNormal(seed=seed * 10 + n) for n in range(2)]
    return keras.Sequential(
        [
            keras.layers.Dense(5, activation="tanh", kernel_initializer=initializers[0], input_shape=(3,)),
            keras.layers.Dense(2, kernel_initializer=initializers[1]),
        ]
    )


def data(rank):
    generator = np.random.default_rng(rank)
    x = generator.normal(size=(N_ROWS * N_STEPS, 3)).astype(np.float32)
    return x, (x[:, :2] * 2 + 1).astype(np.float32)


def union(first, n_rows):
    """The rows of all ranks, for one process."""
    parts = [[part[first : first + n_rows] for part in data(rank)] for rank in range(hvd.size())]
    return [np.concatenate([part[i] for part in parts]) for i in range(2)]


def assert_alike(mine, expected):
    for own, theirs in zip(mine.get_weights(), expected.get_weights()):
        np.testing.assert_allclose(own, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_fit_is_like_one_process(optimizers, run_eagerly):
    alone, model = network(), network(7 + hvd.rank())
    alone.compile(optimizers.SGD(0.05, momentum=0.9), "mse", run_eagerly=run_eagerly)
    wrapped = hvd_keras.DistributedOptimizer(optimizers.SGD(0.05, momentum=0.9))
    assert isinstance(wrapped, optimizers.SGD) and type(wrapped).__name__ == "SGD"
    model.compile(wrapped, "mse", run_eagerly=run_eagerly)
    hvd.broadcast_variables(model.variables, 0)
    x, y = data(hvd.rank())
    for step in range(N_STEPS):
        alone.train_on_batch(*union(step * N_ROWS, N_ROWS))
        model.train_on_batch(x[step * N_ROWS : (step + 1) * N_ROWS], y[step * N_ROWS : (step + 1) * N_ROWS])
    assert_alike(model, alone)


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_backward_passes_per_step(optimizers, run_eagerly, average):
    model, whole = network(), network()
    optimizer = hvd_keras.DistributedOptimizer(
        optimizers.SGD(0.1), backward_passes_per_step=3, average_aggregated_gradients=average
    )
    model.compile(optimizer, "mse", run_eagerly=run_eagerly)
    x, y = data(hvd.rank())
    for step in range(4):
        before = model.get_weights()
        model.train_on_batch(x[step * N_ROWS : (step + 1) * N_ROWS], y[step * N_ROWS : (step + 1) * N_ROWS])
        changed = any((old != new).any() for old, new in zip(before, model.get_weights()))
        assert changed == (step == 2)
    assert int(optimizer.iterations.numpy()) == 4 and int(optimizer._agg_helper.counter.numpy()) == 1
    whole.compile(optimizers.SGD(0.1 if average else 0.3), "mse")
    whole.train_on_batch(*union(0, 3 * N_ROWS))
    assert_alike(model, whole)


def test_computed_gradients_are_reduced_once(optimizers):
    ranks = sum(range(1, hvd.size() + 1))
    optimizer = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0), op=hvd.Sum)
    variable = tf.Variable([1.0, 2.0])

    def loss():
        return tf.reduce_sum(variable * float(hvd.rank() + 1))

    for compute in (optimizer._compute_gradients, optimizer.compute_gradients):
        ((gradient, of),) = compute(loss, [variable])
        assert of is variable
        np.testing.assert_allclose(gradient.numpy(), [ranks, ranks])
    optimizer.apply_gradients([(gradient, variable)])
    np.testing.assert_allclose(variable.numpy(), [1.0 - ranks, 2.0 - ranks])


def test_gradients_of_a_custom_tape_are_reduced_when_applied(optimizers):
    optimizer = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0), op=hvd.Sum)
    variable = tf.Variable([0.0])
    optimizer.apply_gradients([(tf.constant([hvd.rank() + 1.0]), variable)])
    np.testing.assert_allclose(variable.numpy(), [-sum(range(1, hvd.size() + 1))])


def test_local_variables_with_aggregation(optimizers):
    optimizer = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0), op=hvd.Sum, backward_passes_per_step=2)
    mine, everybodys = tf.Variable([0.0]), tf.Variable([0.0])
    optimizer.register_local_var(mine)
    for _ in range(2):
        gradient = tf.constant([float(hvd.rank() + 1)])
        optimizer.apply_gradients([(gradient, mine), (gradient, everybodys)])
    np.testing.assert_allclose(mine.numpy(), [-2 * (hvd.rank() + 1) / hvd.size()], rtol=1e-6)
    np.testing.assert_allclose(everybodys.numpy(), [-2 * sum(range(1, hvd.size() + 1))])


def test_callbacks(optimizers, tmp_path):
    model = network(7 + hvd.rank())
    model.compile(hvd_keras.DistributedOptimizer(optimizers.SGD(0.1, momentum=0.5)), "mse")
    best = hvd_keras.callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=True)
    best.filepath = str(tmp_path / "best.weights.h5")
    callbacks = [
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd_keras.callbacks.MetricAverageCallback(),
        hvd_keras.callbacks.LearningRateWarmupCallback(initial_lr=0.1 * hvd.size(), warmup_epochs=2),
        hvd_keras.callbacks.LearningRateScheduleCallback(0.1, 0.5, start_epoch=2),
        best,
    ]
    history = model.fit(*data(hvd.rank()), batch_size=N_ROWS, epochs=3, verbose=0, callbacks=callbacks).history
    losses = hvd.allgather(tf.constant([history["loss"]])).numpy()
    np.testing.assert_allclose(losses, np.broadcast_to(losses[:1], losses.shape))
    np.testing.assert_allclose(history["lr"], [0.05 * hvd.size() + 0.05, 0.1 * hvd.size(), 0.1], rtol=1e-5)
    for weight in model.get_weights():
        everybodys = hvd.allgather(tf.constant(weight[None])).numpy()
        np.testing.assert_allclose(everybodys, np.broadcast_to(everybodys[:1], everybodys.shape), rtol=1e-5)
    assert os.path.exists(best.filepath) and best.save_weights_only
    network().load_weights(best.filepath)


def test_state(optimizers):
    model = network(7 + hvd.rank())
    model.compile(optimizers.Adam(0.01), "mse")
    model.train_on_batch(*[part[:N_ROWS] for part in data(hvd.rank())])
    state = hvd_keras.elastic.KerasState(model, batch=hvd.rank())
    assert isinstance(state, hvd.elastic.TensorFlowKerasState)
    state.sync()
    synced = model.get_weights()
    assert state.batch == 0
    model.set_weights([weight + 1 for weight in synced])
    state.restore()
    for weight, expected in zip(model.get_weights(), synced):
        np.testing.assert_array_equal(weight, expected)
        everybodys = hvd.allgather(tf.constant(weight[None])).numpy()
        np.testing.assert_array_equal(everybodys, np.broadcast_to(everybodys[:1], everybodys.shape))


@pytest.mark.parametrize("backward_passes_per_step", [1, 2])
def test_graphs_of_tensorflow_1(backward_passes_per_step):
    """Keras without eager execution: callbacks, states and optimizers use its session."""
    with tf.Graph().as_default(), tf.compat.v1.Session().as_default() as session:
        tf.compat.v1.keras.backend.set_session(session)
        model = network(7 + hvd.rank())
        optimizer = hvd_keras.DistributedOptimizer(
            keras.optimizers.legacy.SGD(0.1, momentum=0.5), backward_passes_per_step=backward_passes_per_step
        )
        model.compile(optimizer, "mse")
        callbacks = [
            hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd_keras.callbacks.MetricAverageCallback(),
            hvd_keras.callbacks.LearningRateScheduleCallback(0.1, 0.5),
        ]
        fitted = model.fit(*data(hvd.rank()), batch_size=N_ROWS, epochs=2, verbose=0, callbacks=callbacks)
        np.testing.assert_allclose(fitted.history["lr"], [0.1, 0.05])
        weights = model.get_weights()
        state = hvd_keras.elastic.KerasState(model, epoch=hvd.rank())
        model.set_weights([weight + hvd.rank() for weight in weights])
        state.restore()
        np.testing.assert_array_equal(model.get_weights()[0], weights[0])
        model.set_weights([weight + hvd.rank() for weight in weights])
        state.sync()
        assert state.epoch == 0
        synced = model.get_weights()
    tf.compat.v1.keras.backend.clear_session()
    for weight in synced:
        everybodys = hvd.allgather(tf.constant(weight[None])).numpy()
        np.testing.assert_allclose(everybodys, np.broadcast_to(everybodys[:1], everybodys.shape), rtol=1e-5)
