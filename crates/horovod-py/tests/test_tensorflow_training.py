"""Tapes and optimizers of horovod.tensorflow on 1, 2 and 4 ranks against one process with the batches of all ranks. Run
by spmd.py."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("HOROVOD_DYNAMIC_PROCESS_SETS", "1")

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="missing: TensorFlow")
import horovod.tensorflow as hvd

N_ROWS = 8


@pytest.fixture(scope="module", autouse=True)
def job():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(params=["eager", "graph"])
def traced(request):
    return (lambda f: f) if request.param == "eager" else tf.function


class Line:
    """Two variables and a squared error: small enough for a NumPy reference."""

    def __init__(self):
        self.weight = tf.Variable(np.arange(1, 4, dtype=np.float64))
        self.bias = tf.Variable(np.float64(0.5))
        self.variables = [self.weight, self.bias]

    def loss(self, x, y):
        return tf.reduce_mean((tf.linalg.matvec(x, self.weight) + self.bias - y) ** 2)


def batch(rank, step):
    generator = np.random.default_rng(100 * step + rank)
    return generator.normal(size=(N_ROWS, 3)), generator.normal(size=N_ROWS)


def serial(n_steps, size, rate=0.1):
    """Training on the union of batches: all ranks have the same number of rows, so the mean of means is the mean."""
    weight, bias = np.arange(1, 4, dtype=np.float64), 0.5
    for step in range(n_steps):
        parts = [batch(rank, step) for rank in range(size)]
        x, y = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
        error = x @ weight + bias - y
        weight, bias = weight - rate * 2 * x.T @ error / len(y), bias - rate * 2 * error.mean()
    return weight, bias


TAPES = [
    {},
    {"groups": 1},
    {"num_groups": 2},
    {"gradient_predivide_factor": 2.0},
    {"sparse_as_dense": True},
]


@pytest.mark.parametrize("settings", TAPES, ids=str)
def test_tape_is_like_one_process(traced, settings):
    line = Line()

    @traced
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = line.loss(x, y)
        tape = hvd.DistributedGradientTape(tape, **settings)
        for variable, gradient in zip(line.variables, tape.gradient(loss, line.variables)):
            variable.assign_sub(0.1 * gradient)

    for number in range(4):
        step(*[tf.constant(part) for part in batch(hvd.rank(), number)])
    weight, bias = serial(4, hvd.size())
    np.testing.assert_allclose(line.weight.numpy(), weight, rtol=1e-12)
    np.testing.assert_allclose(line.bias.numpy(), bias, rtol=1e-12)


def test_tape_as_a_context_with_groups_of_variables(traced):
    line = Line()

    @traced
    def gradients(x, y):
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True), groups=[line.variables], op=hvd.Sum) as tape:
            loss = line.loss(x, y)
        return tape.gradient(loss, {"w": line.weight, "b": [line.bias]}, use_generic_names=True)

    got = gradients(*[tf.constant(part) for part in batch(hvd.rank(), 0)])
    x, y = zip(*[batch(rank, 0) for rank in range(hvd.size())])
    errors = [a @ np.arange(1, 4) + 0.5 - b for a, b in zip(x, y)]
    np.testing.assert_allclose(got["w"].numpy(), sum(2 * a.T @ e / N_ROWS for a, e in zip(x, errors)), rtol=1e-12)
    np.testing.assert_allclose(got["b"][0].numpy(), sum(2 * e.mean() for e in errors), rtol=1e-12)


def test_tape_compression_and_missing_gradients(traced):
    used, unused = tf.Variable(tf.ones(3)), tf.Variable(tf.ones(3))

    @traced
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(used * x)
        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
        got, missing = tape.gradient(loss, [used, unused])
        assert missing is None
        return got

    got = gradients(tf.fill([3], float(hvd.rank())))
    assert got.dtype == tf.float32
    np.testing.assert_allclose(got.numpy(), np.full(3, (hvd.size() - 1) / 2))


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_tape_sparse(traced, sparse_as_dense):
    table = tf.Variable(tf.zeros((5, 2)))

    @traced
    def gradients(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, rows))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense)
        gradient = tape.gradient(loss, table)
        assert hvd.size() == 1 or isinstance(gradient, tf.IndexedSlices) != sparse_as_dense
        return tf.convert_to_tensor(gradient)

    expected = np.zeros((5, 2))
    for rank in range(hvd.size()):
        expected[[0, rank + 1]] += 1 / hvd.size()
    np.testing.assert_allclose(gradients(tf.constant([0, hvd.rank() + 1])).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("scale", [True, False])
def test_local_sources(traced, scale):
    mine, everybodys = tf.Variable(1.0), tf.Variable(1.0)
    size, rank = hvd.size(), hvd.rank()

    @traced
    def gradients():
        with tf.GradientTape(persistent=True) as tape:
            loss = (mine + everybodys) * (rank + 1.0)
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        tape.register_local_source(mine)
        local, shared = tape.get_local_and_global_gradients(loss, [mine, everybodys])
        assert local[0][0] is mine and shared[0][0] is everybodys
        return tape.gradient(loss, [mine, everybodys]) + [local[0][1], shared[0][1]]

    got = [float(g) for g in gradients()]
    np.testing.assert_allclose(got, 2 * [(rank + 1) / (size if scale else 1), (size + 1) / 2], rtol=1e-6)


def test_partial_tape():
    layers = [tf.keras.layers.Dense(1, kernel_initializer="ones") for _ in range(2)]
    x = tf.constant([[float(hvd.rank() + 1)]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layers[0](x) + layers[1](x))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=[layers[0]], scale_local_gradients=False)
    sources = [layers[0].kernel.value, layers[1].kernel.value]
    np.testing.assert_allclose([float(g) for g in map(tf.squeeze, tape.gradient(loss, sources))], [hvd.rank() + 1, (hvd.size() + 1) / 2])
    with pytest.raises(ValueError, match="local layers"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=["dense"])


def test_tape_of_a_process_set():
    if hvd.size() == 1:
        pytest.skip("needs other ranks")
    some = hvd.add_process_set([0] if hvd.size() == 2 else [0, 1])
    x = tf.Variable(float(hvd.rank()))
    with tf.GradientTape() as tape:
        loss = x * (hvd.rank() + 1.0)
    got = float(hvd.DistributedGradientTape(tape, process_set=some).gradient(loss, x))
    assert got == (some.size() + 1) / 2 if some.included() else got == hvd.rank() + 1
    hvd.remove_process_set(some)


def test_optimizer_of_tensorflow_1(traced):
    line = Line()
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))

    @traced
    def step(x, y):
        if tf.executing_eagerly():
            optimizer.apply_gradients(optimizer.compute_gradients(lambda: line.loss(x, y), line.variables))
        else:
            optimizer.minimize(line.loss(x, y), var_list=line.variables)

    for number in range(3):
        step(*[tf.constant(part) for part in batch(hvd.rank(), number)])
    # The rate is stored as float32.
    np.testing.assert_allclose(line.weight.numpy(), serial(3, hvd.size())[0], rtol=1e-6)


@pytest.mark.parametrize("average", [True, False])
def test_optimizer_of_tensorflow_1_aggregates(average):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float64, ())
        variable = tf.compat.v1.get_variable("v", initializer=np.float64(0), use_resource=True)
        steps = tf.compat.v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2, average_aggregated_gradients=average
        )
        train = optimizer.minimize(variable * x, global_step=steps, var_list=[variable])
        session.run(tf.compat.v1.global_variables_initializer())
        seen = []
        for value in (1.0, 2.0, 3.0, 4.0):
            session.run(train, {x: value * (hvd.rank() + 1)})
            seen.append(session.run(variable))
        mean = (hvd.size() + 1) / 2 / (2 if average else 1)
        np.testing.assert_allclose(seen, [0, -3 * mean, -3 * mean, -10 * mean])
        assert session.run(steps) == 4


def test_optimizer_of_tensorflow_1_adasum():
    variable = tf.Variable(tf.zeros(2))
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5), op=hvd.Adasum)
    optimizer.apply_gradients([(tf.ones(2), variable)])
    # All changes are equal: Adasum returns them unchanged.
    np.testing.assert_allclose(variable.numpy(), [-0.5, -0.5], rtol=1e-6)


def test_invalid_arguments():
    old = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="gradient_predivide_factor not supported with op != Average"):
        hvd.DistributedOptimizer(old, op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="backward_passes_per_step > 1 is not supported"):
        hvd.DistributedOptimizer(old, backward_passes_per_step=2)
    with pytest.raises(ValueError, match="doesn't inherit from either"):
        hvd.DistributedOptimizer(object())
    with pytest.raises(ValueError, match="groups should be a non-negative integer"):
        hvd.DistributedGradientTape(tf.GradientTape(), groups=-1)
    with pytest.raises(ValueError, match="op == Adasum"):
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(), op=hvd.Adasum)


def test_aggregation_rejects_slices():
    helper = hvd.LocalGradientAggregationHelper(2, lambda gradients, variables: gradients)
    with pytest.raises(ValueError, match="sparse_as_dense"):
        helper.aggregate([tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]))])


def test_sync_batch_norm(traced):
    layer = hvd.SyncBatchNormalization(axis=-1, momentum=0.0, epsilon=1e-6)
    whole = np.random.default_rng(3).normal(size=(4 * hvd.size(), 3)).astype(np.float32)
    mine = whole[4 * hvd.rank() : 4 * hvd.rank() + 4]
    layer.build(mine.shape)
    out = traced(lambda x: layer(x, training=True))(tf.constant(mine))
    expected = (mine - whole.mean(0)) / np.sqrt(whole.var(0) + 1e-6)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(layer.moving_mean.numpy(), whole.mean(0), rtol=1e-4, atol=1e-5)
    for fused in (True, None):
        with pytest.raises(ValueError, match="fused"):
            hvd.SyncBatchNormalization(fused=fused)


def test_elastic_graphs_evaluate_the_size_at_run_time(monkeypatch):
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    variable = tf.Variable(1.0)

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = variable * (hvd.rank() + 1.0)
        return hvd.DistributedGradientTape(tape).gradient(loss, variable)

    assert float(gradient()) == (hvd.size() + 1) / 2


def test_aggregation_as_upstream_calls_it(traced):
    """`compute_gradients`, then `apply_gradients` with a closure; the optimizer counts every pass."""
    from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
    from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

    def reduce(gradients, variables):
        return [hvd.allreduce(gradient, op=hvd.Sum) for gradient in gradients]

    plain = LocalGradientAggregationHelper(
        backward_passes_per_step=2,
        allreduce_func=reduce,
        sparse_as_dense=False,
        average_aggregated_gradients=True,
        rank=hvd.rank(),
        optimizer_type=LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS,
        name="plain",
    )
    assert LocalGradientAggregationHelperEager(2, reduce, False, True, hvd.global_process_set, True).counter is None
    mine, everybodys = tf.Variable(0.0), tf.Variable(0.0)
    plain.register_local_var(mine)

    class Optimizer:
        iterations = tf.Variable(0, dtype=tf.int64)

    @traced
    def step():
        gradients = plain.compute_gradients([tf.constant(hvd.rank() + 1.0)] * 2, [mine, everybodys])

        def update():
            for variable, gradient in zip([mine, everybodys], gradients):
                variable.assign_sub(gradient)
            Optimizer.iterations.assign_add(1)

        plain.apply_gradients(update, Optimizer, None)

    for n_passes in range(1, 6):
        step()
        assert int(Optimizer.iterations.numpy()) == n_passes and int(plain.counter.numpy()) == n_passes % 2
    n_steps, ranks = 2, sum(range(1, hvd.size() + 1))
    np.testing.assert_allclose(mine.numpy(), -n_steps * (hvd.rank() + 1) / hvd.size(), rtol=1e-6)
    np.testing.assert_allclose(everybodys.numpy(), -n_steps * ranks)


def test_process_sets_that_were_not_added(traced):
    missing, unknown = hvd.ProcessSet([0]), hvd.ProcessSet([0])
    unknown.process_set_id = 99
    calls = [
        lambda process_set: hvd.allreduce(tf.ones(1), process_set=process_set),
        lambda process_set: hvd.grouped_allreduce([tf.ones(1)], process_set=process_set),
        lambda process_set: hvd.allgather(tf.ones(1), process_set=process_set),
        lambda process_set: hvd.broadcast(tf.ones(1), 0, process_set=process_set),
        lambda process_set: hvd.alltoall(tf.ones(hvd.size()), process_set=process_set),
        lambda process_set: hvd.reducescatter(tf.ones(hvd.size()), process_set=process_set),
        lambda process_set: hvd.broadcast_variables([tf.constant(1.0)], 0, process_set=process_set),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="not registered"):
            traced(lambda call=call: call(missing))()
        with pytest.raises(ValueError, match="Process set does not exist or has not been registered."):
            traced(lambda call=call: call(unknown))()
    with pytest.raises(ValueError, match="Process set does not exist"):
        unknown.size()


def test_upstreams_names():
    variables = [tf.Variable(1.0), tf.Variable(2.0)]
    refs = hvd.vars_to_refs([variables, variables[0]])
    assert {refs: 1}[refs] == 1 and hvd.refs_to_vars(refs)[0][1] is variables[1]
    assert hvd.elastic.TensorFlowKerasState and hvd.LocalGradientAggregationHelper
    with pytest.raises(ImportError, match="tf.data.experimental.service"):
        from horovod.tensorflow.data.compute_service import TfDataServiceConfig  # noqa: F401
