"""Collectives in graphs with one thread for all operations: none of them may block it. Run by spmd.py on 1, 2 and 4
ranks.

Even ranks have their operations in one order, odd ranks in the reverse order, so that a blocked thread would
deadlock.
"""

import faulthandler
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="missing: TensorFlow")
import horovod.tensorflow as hvd
from horovod.tensorflow import native

N_TENSORS = 200
# Seconds; a rank that has not finished a test by then exits, and spmd.py ends the others.
TEST_DEADLINE = 120


@pytest.fixture(scope="module", autouse=True)
def job():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(autouse=True)
def deadline():
    faulthandler.dump_traceback_later(TEST_DEADLINE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def session():
    one = {"inter_op_parallelism_threads": 1, "intra_op_parallelism_threads": 1}
    return tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(use_per_session_threads=True, **one))


def in_session(build):
    """Runs the graph made by `build` twice in a TensorFlow 1 session."""
    with tf.Graph().as_default(), session() as running:
        fetches = build()
        running.run(fetches)
        return running.run(fetches)


def in_function(build):
    step = tf.function(build)
    step()
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), step())


@pytest.fixture(params=[in_session, in_function], ids=["session", "function"])
def run(request):
    return request.param


def in_own_order(numbers):
    return list(numbers)[:: 1 if hvd.rank() % 2 == 0 else -1]


def test_many_allreduces(run):
    def build():
        return {n: hvd.allreduce(tf.fill([3], float(n)), op=hvd.Sum, name=f"many.{n}") for n in in_own_order(range(N_TENSORS))}

    for number, out in run(build).items():
        np.testing.assert_array_equal(out, np.full(3, number * hvd.size()))


KINDS = {
    "allreduce": lambda x, name: hvd.allreduce(x, op=hvd.Sum, name=name),
    "allgather": lambda x, name: hvd.allgather(x, name=name),
    "broadcast": lambda x, name: hvd.broadcast(x, 0, name=name),
    "alltoall": lambda x, name: hvd.alltoall(x, name=name),
    "splits": lambda x, name: hvd.alltoall(x, splits=tf.ones([hvd.size()], tf.int32), name=name)[0],
    "reducescatter": lambda x, name: hvd.reducescatter(x, op=hvd.Sum, name=name),
    "grouped_allreduce": lambda x, name: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, name=name)[1],
    "grouped_allgather": lambda x, name: hvd.grouped_allgather([x, x], name=name)[1],
}


def expected_of(kind, number):
    whole = [np.arange(hvd.size()) + 10 * rank + number for rank in range(hvd.size())]
    own = [part[hvd.rank()] for part in whole]
    return {
        "allreduce": sum(whole),
        "allgather": np.concatenate(whole),
        "broadcast": whole[0],
        "alltoall": own,
        "splits": own,
        "reducescatter": [sum(own)],
        "grouped_allreduce": 2 * sum(whole),
        "grouped_allgather": np.concatenate(whole),
    }[kind]


def test_every_kind(run):
    jobs = [(kind, number) for kind in KINDS for number in range(5)]

    def build():
        x = tf.range(hvd.size(), dtype=tf.float32) + 10.0 * hvd.rank()
        return {f"{kind}.{n}": KINDS[kind](x + float(n), f"every.{kind}.{n}") for kind, n in in_own_order(jobs)}

    results = run(build)
    for kind, number in jobs:
        np.testing.assert_array_equal(results[f"{kind}.{number}"], expected_of(kind, number), err_msg=kind)


def test_results_of_one_are_inputs_of_another(run):
    """Completed operations must not wait for others that depend on them on another rank."""

    def build():
        first = [hvd.allreduce(tf.ones(2), op=hvd.Sum, name=f"chain.{n}.0") for n in in_own_order(range(20))]
        second = [hvd.allreduce(x, op=hvd.Sum, name=f"chain.{n}.1") for n, x in zip(in_own_order(range(20)), first)]
        with tf.control_dependencies(second if hvd.rank() % 2 else []):
            last = hvd.allgather(tf.ones(1), name="chain.last")
        return second + [last]

    for out in run(build)[:-1]:
        np.testing.assert_array_equal(out, np.full(2, hvd.size() ** 2))


def test_one_rejected_operation_among_many(run):
    def build():
        fine = [hvd.allreduce(tf.ones(1), name=f"refused.{n}") for n in in_own_order(range(10))]
        return fine + [hvd.broadcast(tf.ones(1), 99, name="refused.root")]

    with pytest.raises(tf.errors.InvalidArgumentError, match="invalid root rank 99"):
        run(build)
    # Operations of the other ranks end: their names can be used again.
    np.testing.assert_array_equal(hvd.allreduce(tf.ones(1), name="after refused").numpy(), [1])


def test_loops_reuse_a_name():
    """Iterations of a loop do not overlap, although no value passes from one to the next."""

    @tf.function
    def step(x):
        total = tf.zeros(2)
        for _ in tf.range(20):
            total += hvd.allreduce(x, op=hvd.Sum, name="in a loop")
            hvd.allreduce(x, op=hvd.Sum, name="unused")
        return total

    np.testing.assert_array_equal(step(tf.ones(2)).numpy(), np.full(2, 20.0 * hvd.size()))


def test_a_function_called_twice():
    inner = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="inner"))
    outer = tf.function(lambda x: [inner(x), inner(2 * x)])
    first, second = outer(tf.ones(1))
    assert (float(first[0]), float(second[0])) == (hvd.size(), 2 * hvd.size())


def test_join_in_graphs(run):
    """Rank 0 has one batch more than the others. Nothing else in the graph waits for the join."""

    def build():
        sums = []
        if hvd.rank() == 0:
            sums = [hvd.allreduce(tf.ones(1), op=hvd.Sum, name=f"joined.{n}") for n in range(20)]
        if tf.executing_eagerly() or tf.compat.v1.get_default_graph().building_function:
            return {"sums": sums, "last": hvd.join()}
        with tf.control_dependencies(sums):
            return {"sums": sums, "last": hvd.join()}

    results = run(build)
    assert 0 <= results["last"] < hvd.size()
    assert all(out == [1] for out in results["sums"])


def test_a_join_orders_a_function():
    @tf.function
    def step(x):
        before = hvd.allreduce(x, op=hvd.Sum, name="before")
        last = hvd.join()
        return before, last, hvd.allreduce(x, op=hvd.Sum, name="after")

    before, _, after = step(tf.ones(1))
    assert (float(before[0]), float(after[0])) == (hvd.size(), hvd.size())


def test_size_ops_beside_collectives(run):
    def build():
        sums = [hvd.allreduce(tf.ones(1), op=hvd.Sum, name=f"beside.{n}") for n in in_own_order(range(10))]
        return [hvd.size_op(), hvd.rank_op(), *sums]

    size, rank, *sums = run(build)
    assert (size, rank) == (hvd.size(), hvd.rank()) and all(out == [hvd.size()] for out in sums)


def test_callbacks(monkeypatch):
    """Callbacks block a thread each: they are serialised in a tf.function and rejected in a TensorFlow 1 graph."""
    monkeypatch.setattr(native, "is_available", lambda: False)

    def build():
        return [hvd.allreduce(tf.fill([2], float(n)), op=hvd.Sum, name=f"callback.{n}") for n in range(20)]

    for number, out in enumerate(in_function(build)):
        np.testing.assert_array_equal(out, np.full(2, number * hvd.size()))
    assert 0 <= in_function(hvd.join) < hvd.size()
    for refused in (build, hvd.join):
        with tf.Graph().as_default(), pytest.raises(RuntimeError, match="HOROVOD_TENSORFLOW_OPS=callback"):
            refused()


def test_shutdown_fails_operations_in_flight():
    """A waiting rank gets an error, and the next engine works."""
    if hvd.size() == 1:
        pytest.skip("needs other ranks")
    if hvd.rank() == 0:
        with pytest.raises(tf.errors.UnknownError, match="[Ss]hut"):
            in_session(lambda: [hvd.allreduce(tf.ones(1), name=f"alone.{n}") for n in range(20)])
    hvd.shutdown()
    hvd.init()
    np.testing.assert_array_equal(in_session(lambda: hvd.allreduce(tf.ones(1), name="again")), [1])


def test_gradients_need_every_rank(run):
    """Nothing that other ranks wait for may be pruned, even if a rank's gradient does not depend on the received
    values."""
    size, ranks = hvd.size(), sum(range(1, hvd.size() + 1))
    weights = np.arange(1.0, size + 1)

    def build():
        gradients = {}
        for kind, call in KINDS.items():
            if kind == "splits":
                continue
            x = tf.ones([size])
            out = call(x, f"differentiated.{kind}")
            out *= tf.range(1, tf.size(out) + 1, dtype=tf.float32) * float(hvd.rank() + 1)
            gradients[kind] = tf.gradients(out, x)[0]
        return gradients

    results = run(build)
    np.testing.assert_allclose(results["allreduce"], weights * ranks)
    np.testing.assert_allclose(results["grouped_allreduce"], 2 * weights * ranks)
    np.testing.assert_allclose(results["broadcast"], weights * ranks / size if hvd.rank() == 0 else np.zeros(size), rtol=1e-6)
    own = (np.arange(size) + 1 + size * hvd.rank()) * ranks / size
    np.testing.assert_allclose(results["allgather"], own, rtol=1e-6)
    np.testing.assert_allclose(results["grouped_allgather"], own, rtol=1e-6)
    np.testing.assert_allclose(results["alltoall"], (hvd.rank() + 1) * weights)
    np.testing.assert_allclose(results["reducescatter"], size * weights)


def test_the_gradient_of_a_broadcast_is_zero_elsewhere():
    """The gradient is zero on other ranks, whatever the root's is."""

    def build():
        x = tf.ones([2])
        return tf.gradients(hvd.broadcast(x, 0, name="of nothing"), x, grad_ys=tf.fill([2], float("nan")))[0]

    out = in_session(build)
    assert np.isnan(out).all() if hvd.rank() == 0 else (out == 0).all()
