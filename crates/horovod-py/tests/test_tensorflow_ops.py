"""The collectives of horovod.tensorflow on 1, 2 and 4 ranks against NumPy: eager and inside of tf.function. Run by
spmd.py."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("HOROVOD_DYNAMIC_PROCESS_SETS", "1")

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="missing: TensorFlow")
import horovod.tensorflow as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow import native, requests

FLOATS = [np.float16, np.float32, np.float64]
REDUCED = [np.uint8, np.int8, np.int32, np.int64, *FLOATS]
MOVED = [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64, np.bool_, *FLOATS]


@pytest.fixture(scope="module", autouse=True)
def job():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(params=["eager", "eager op", "graph"])
def run(request, monkeypatch):
    """Calls a function of tensors: eagerly, also as for tensors on a GPU, or traced."""
    if request.param == "eager op":
        monkeypatch.setattr(requests, "_all_on_gpu", lambda given: True)
    if request.param != "graph":
        return lambda f, *args: f(*[tf.convert_to_tensor(a) for a in args])
    return lambda f, *args: tf.function(f)(*[tf.convert_to_tensor(a) for a in args])


def of_rank(rank, shape, dtype, seed=0):
    """Random values of a rank, reproducible on all ranks; small enough that no sum overflows."""
    values = np.random.default_rng(1000 * seed + rank).integers(0, 9, size=shape)
    return values.astype(dtype)


def everybodys(shape, dtype, seed=0):
    return [of_rank(rank, shape, dtype, seed) for rank in range(hvd.size())]


@pytest.mark.parametrize("dtype", REDUCED)
def test_allreduce_sum(run, dtype):
    mine = of_rank(hvd.rank(), (5, 3), dtype)
    out = run(lambda x: hvd.allreduce(x, op=hvd.Sum), mine)
    np.testing.assert_array_equal(out.numpy(), sum(everybodys((5, 3), dtype)).astype(dtype))
    assert out.dtype == tf.as_dtype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_allreduce_average_is_the_default(run, dtype):
    mine = of_rank(hvd.rank(), (17,), dtype)
    expected = np.mean(np.stack(everybodys((17,), np.float64)), 0)
    np.testing.assert_allclose(run(hvd.allreduce, mine).numpy(), expected, rtol=1e-2 if dtype == np.float16 else 1e-6)


@pytest.mark.parametrize("op, reference", [("Min", np.min), ("Max", np.max), ("Product", np.prod)])
def test_allreduce_other_ops(run, op, reference):
    mine = of_rank(hvd.rank(), (4, 4), np.float32)
    out = run(lambda x: hvd.allreduce(x, op=getattr(hvd, op)), mine)
    np.testing.assert_allclose(out.numpy(), reference(np.stack(everybodys((4, 4), np.float32)), 0))


def test_allreduce_scales(run):
    mine = of_rank(hvd.rank(), (6,), np.float32)
    out = run(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), mine)
    np.testing.assert_allclose(out.numpy(), 3.0 * sum(0.5 * x for x in everybodys((6,), np.float32)))


def test_allreduce_integers_truncate_when_scaled(run):
    out = run(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), np.array([3], np.int32))
    assert out.numpy().tolist() == [hvd.size()]


def test_allreduce_of_scalars_and_nothing(run):
    assert run(lambda x: hvd.allreduce(x, op=hvd.Sum), np.float32(2)).numpy() == 2 * hvd.size()
    assert run(hvd.allreduce, np.zeros((2, 0), np.float32)).shape == (2, 0)


def test_allreduce_bfloat16(run):
    out = run(lambda x: hvd.allreduce(x, op=hvd.Sum), tf.constant([1.0, 2.0], tf.bfloat16))
    np.testing.assert_array_equal(out.numpy().astype(np.float32), [hvd.size(), 2 * hvd.size()])


def test_allreduce_fp16_compression(run):
    mine = of_rank(hvd.rank(), (8,), np.float32)
    out = run(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16), mine)
    assert out.dtype == tf.float32
    np.testing.assert_allclose(out.numpy(), sum(everybodys((8,), np.float32)))


def test_allreduce_adasum(run):
    if hvd.size() == 1:
        pytest.skip("needs other ranks")
    out = run(lambda x: hvd.allreduce(x, op=hvd.Adasum), np.ones(4, np.float32))
    np.testing.assert_allclose(out.numpy(), np.ones(4), rtol=1e-6)


def test_op_overrides_average():
    with pytest.raises(ValueError, match="The op parameter supersedes average. Please provide only one of them."):
        hvd.allreduce(tf.ones(2), average=True, op=hvd.Sum)
    with pytest.warns(DeprecationWarning):
        np.testing.assert_allclose(hvd.allreduce(tf.ones(2), average=False).numpy(), hvd.size() * np.ones(2))


def test_grouped_allreduce(run):
    shapes, dtypes = [(3,), (2, 2), ()], [np.float32, np.float64, np.int32]
    mine = [of_rank(hvd.rank(), s, d, n) for n, (s, d) in enumerate(zip(shapes, dtypes))]
    out = run(lambda *xs: hvd.grouped_allreduce(list(xs), op=hvd.Sum), *mine)
    for number, (shape, dtype) in enumerate(zip(shapes, dtypes)):
        np.testing.assert_array_equal(out[number].numpy(), sum(everybodys(shape, dtype, number)))
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allgather([]) == [] and hvd.grouped_reducescatter([]) == []


@pytest.mark.parametrize("dtype", MOVED)
def test_allgather(run, dtype):
    parts = [of_rank(rank, (rank + 1, 2), dtype) for rank in range(hvd.size())]
    out = run(hvd.allgather, parts[hvd.rank()])
    np.testing.assert_array_equal(out.numpy(), np.concatenate(parts))


def test_grouped_allgather(run):
    first = [of_rank(rank, (2, 2), np.float32) for rank in range(hvd.size())]
    second = [of_rank(rank, (rank + 1,), np.int32, 1) for rank in range(hvd.size())]
    out = run(lambda a, b: hvd.grouped_allgather([a, b]), first[hvd.rank()], second[hvd.rank()])
    np.testing.assert_array_equal(out[0].numpy(), np.concatenate(first))
    np.testing.assert_array_equal(out[1].numpy(), np.concatenate(second))


@pytest.mark.parametrize("dtype", MOVED)
def test_broadcast(run, dtype):
    root = hvd.size() - 1
    out = run(lambda x: hvd.broadcast(x, root), of_rank(hvd.rank(), (3, 2), dtype))
    np.testing.assert_array_equal(out.numpy(), of_rank(root, (3, 2), dtype))


@pytest.mark.parametrize("dtype", MOVED)
def test_alltoall(run, dtype):
    rank, size = hvd.rank(), hvd.size()
    # Rank r sends i + 1 rows to rank i; one row remains.
    splits = np.arange(1, size + 1, dtype=np.int32)
    whole = [of_rank(r, (splits.sum() + 1, 2), dtype) for r in range(size)]
    out, received = run(lambda x, s: hvd.alltoall(x, splits=s), whole[rank], splits)
    first = splits[:rank].sum()
    np.testing.assert_array_equal(out.numpy(), np.concatenate([x[first : first + rank + 1] for x in whole]))
    assert received.numpy().tolist() == [rank + 1] * size
    even = run(hvd.alltoall, np.full((2 * size, 1), rank, np.float32))
    np.testing.assert_array_equal(even.numpy()[:, 0], np.repeat(np.arange(size), 2))


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_reducescatter(run, op):
    rank, size, n_rows = hvd.rank(), hvd.size(), 2 * hvd.size() + 1
    whole = everybodys((n_rows, 3), np.float32)
    reduced = sum(whole) / (size if op == "Average" else 1)
    parts = np.array_split(reduced, size)
    out = run(lambda x: hvd.reducescatter(x, op=getattr(hvd, op)), whole[rank])
    np.testing.assert_allclose(out.numpy(), parts[rank], rtol=1e-6)
    group = run(lambda x: hvd.grouped_reducescatter([x, 2 * x], op=getattr(hvd, op)), whole[rank])
    np.testing.assert_allclose(group[1].numpy(), 2 * parts[rank], rtol=1e-6)


def test_indexed_slices(run):
    rank, size = hvd.rank(), hvd.size()

    def reduce(values, indices):
        slices = tf.IndexedSlices(values, indices, dense_shape=tf.constant([4, 2]))
        return tf.convert_to_tensor(hvd.allreduce(slices))

    out = run(reduce, np.full((2, 2), rank + 1.0, np.float32), np.array([0, rank % 4], np.int64))
    expected = np.zeros((4, 2))
    for other in range(size):
        expected[0] += (other + 1) / size
        expected[other % 4] += (other + 1) / size
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)


def test_indexed_slices_unsupported_reductions():
    slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]), dense_shape=tf.constant([4, 2]))
    for settings in ({"op": hvd.Adasum}, {"op": hvd.Max}, {"prescale_factor": 2.0}):
        with pytest.raises(NotImplementedError):
            hvd.allreduce(slices, **settings)
    with pytest.raises(NotImplementedError, match="sparse_as_dense=True"):
        hvd.allreduce(slices, op=hvd.Adasum)


def gradient(run, f, *args):
    def traced(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors[0])
            out = f(*tensors)
            weights = tf.reshape(tf.cast(tf.range(1, tf.size(out) + 1), out.dtype), tf.shape(out))
            loss = tf.reduce_sum(out * weights * (hvd.rank() + 1))
        return tape.gradient(loss, tensors[0])

    return run(traced, *args).numpy()


def test_gradients(run):
    rank, size = hvd.rank(), hvd.size()
    ranks = sum(range(1, size + 1))
    x = of_rank(rank, (4,), np.float32)
    weights = np.arange(1, 5)
    np.testing.assert_allclose(gradient(run, lambda t: hvd.allreduce(t, op=hvd.Sum), x), weights * ranks)
    np.testing.assert_allclose(gradient(run, hvd.allreduce, x), weights * ranks / size, rtol=1e-6)
    np.testing.assert_allclose(gradient(run, lambda t: hvd.grouped_allreduce([t])[0], x), weights * ranks / size, rtol=1e-6)
    own = np.arange(4 * rank + 1, 4 * rank + 5) * ranks / size
    np.testing.assert_allclose(gradient(run, hvd.allgather, x), own, rtol=1e-6)
    np.testing.assert_allclose(gradient(run, lambda t: hvd.grouped_allgather([t])[0], x), own, rtol=1e-6)
    rooted = weights * ranks / size if rank == 0 else np.zeros(4)
    np.testing.assert_allclose(gradient(run, lambda t: hvd.broadcast(t, 0), x), rooted, rtol=1e-6)
    even = np.zeros(size, np.float32)
    back = np.array([(other + 1) * (rank + 1) for other in range(size)])
    np.testing.assert_allclose(gradient(run, hvd.alltoall, even), back)
    rows = np.zeros(2 * size, np.float32)
    parts = np.concatenate([np.arange(1, 3) * (other + 1) for other in range(size)])
    np.testing.assert_allclose(gradient(run, lambda t: hvd.reducescatter(t, op=hvd.Sum), rows), parts * size)
    np.testing.assert_allclose(gradient(run, lambda t: hvd.reducescatter(t, op=hvd.Average), rows), parts)


def test_many_concurrent_operations_in_different_orders():
    """Inside one function, unnamed, in the order of the program on even ranks and reversed on odd ones."""
    numbers = list(range(20))[:: 1 if hvd.rank() % 2 == 0 else -1]

    @tf.function
    def step(x):
        return {n: hvd.allreduce(x * n, op=hvd.Sum, name=f"any.{n}") for n in sorted(numbers)}

    for _ in range(3):
        for number, out in step(tf.ones(3)).items():
            np.testing.assert_allclose(out.numpy(), np.full(3, number * hvd.size()))


def test_names_in_graphs():
    names = []

    @tf.function
    def step(x):
        from horovod.tensorflow.mpi_ops import wire_name

        with tf.name_scope("scope"):
            names.append(wire_name("HorovodAllreduce", [x], None))
            names.append(wire_name("HorovodAllreduce", [x], None, ignore_name_scope=True))
        return x

    step(tf.ones(1))
    assert names == ["scope/HorovodAllreduce_x_0", "HorovodAllreduce_x_0_1"]


def test_size_and_rank_ops(run):
    rank, size = hvd.rank(), hvd.size()
    out = run(lambda: [hvd.rank_op(), hvd.local_rank_op(), hvd.size_op(), hvd.local_size_op(), hvd.process_set_included_op()])
    assert [int(n) for n in out] == [rank, hvd.local_rank(), size, hvd.local_size(), 1]


def test_join():
    if hvd.size() == 1:
        assert hvd.join().numpy() == 0
        return
    if hvd.rank() == 0:
        # The others have no more batches.
        np.testing.assert_allclose(hvd.allreduce(tf.ones(2), op=hvd.Sum, name="with joined").numpy(), [1, 1])
    last = hvd.join()
    assert last.dtype == tf.int32 and 0 <= int(last) < hvd.size()


def test_process_sets(run):
    if hvd.size() == 1:
        pytest.skip("needs other ranks")
    members = [1] if hvd.size() == 2 else [0, hvd.size() - 1]
    some = hvd.add_process_set(members)
    try:
        if some.included():
            out = run(lambda x: hvd.allreduce(x, process_set=some), np.float32([hvd.rank()]))
            np.testing.assert_allclose(out.numpy(), [np.mean(members)])
            gathered = run(lambda x: hvd.allgather(x, process_set=some), np.int32([hvd.rank()]))
            assert gathered.numpy().tolist() == members
            out = run(lambda x: hvd.broadcast(x, hvd.size() - 1, process_set=some), np.int32([hvd.rank()]))
            assert out.numpy().tolist() == [hvd.size() - 1]
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="is not a member of the provided process set"):
                run(lambda x: hvd.allreduce(x, process_set=some), np.float32([1]))
    finally:
        assert hvd.remove_process_set(some)
    with pytest.raises(ValueError, match="is not registered"):
        hvd.allreduce(tf.ones(1), process_set=some)


MISMATCHES = [
    ("shape", lambda r: np.ones(3 + r, np.float32), hvd.allreduce, "Mismatched ALLREDUCE tensor shapes"),
    ("dtype", lambda r: np.ones(3, [np.float32, np.float64][r % 2]), hvd.allreduce, "Mismatched data types"),
    ("broadcast", lambda r: np.ones(3 + r, np.float32), lambda x: hvd.broadcast(x, 0), "Mismatched BROADCAST tensor shapes"),
    ("roots", lambda r: np.ones(3, np.float32), lambda x: hvd.broadcast(x, hvd.rank() % 2), "Mismatched BROADCAST root ranks"),
    ("dimension", lambda r: np.ones((2, 3 + r), np.float32), hvd.allgather, "Mismatched ALLGATHER tensor shapes"),
    ("ndim", lambda r: np.ones((2,) * (1 + r % 2), np.float32), hvd.allgather, "Mismatched ALLGATHER tensor shapes"),
    (
        "operation",
        lambda r: np.ones(2, np.float32),
        lambda x: hvd.allreduce(x, name="same") if hvd.rank() == 0 else hvd.allgather(x, name="same"),
        "Mismatched operations",
    ),
    (
        "factors",
        lambda r: np.ones(2, np.float32),
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=1.0 + hvd.rank()),
        "Mismatched prescale and/or postscale factors",
    ),
]


@pytest.mark.parametrize("case", MISMATCHES, ids=[case[0] for case in MISMATCHES])
def test_mismatches(run, case):
    if hvd.size() == 1:
        pytest.skip("needs other ranks")
    _, make, call, text = case
    # A Python callback, used if native ops are not available, can only fail in one way.
    exact = native.is_available()
    with pytest.raises(tf.errors.FailedPreconditionError if exact else tf.errors.OpError, match=text):
        run(call, make(hvd.rank()))
    # The engine continues.
    np.testing.assert_allclose(hvd.allreduce(tf.ones(1)).numpy(), [1])


WRONG = [
    ("root", lambda x: hvd.broadcast(x, 99), "broadcast received invalid root rank 99 for provided process set"),
    ("scalar", lambda x: hvd.reducescatter(x[0]), "Reducescatter does not support scalar inputs"),
    ("too many", lambda x: hvd.alltoall(x, splits=tf.fill([hvd.size()], 100)), "Sum of splits entries is greater"),
    ("splits", lambda x: hvd.alltoall(x, splits=tf.ones([hvd.size() + 1], tf.int32)), "Number of entries in splits does not equal"),
    ("splits dtype", lambda x: hvd.alltoall(x, splits=tf.ones([hvd.size()], tf.int64)), "32-bit integer elements"),
    ("splits shape", lambda x: hvd.alltoall(x, splits=tf.ones([hvd.size(), 1], tf.int32)), "alltoall expects a 1D splits tensor"),
]


@pytest.mark.parametrize("case", WRONG, ids=[case[0] for case in WRONG])
def test_invalid_arguments(run, case):
    _, call, text = case
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        run(call, np.ones(4 * hvd.size(), np.float32))


def test_not_divisible(run):
    if hvd.size() == 1:
        pytest.skip("one divides everything")
    with pytest.raises(tf.errors.InvalidArgumentError, match="splits not provided, but first dimension of tensor is not"):
        run(hvd.alltoall, np.ones(hvd.size() + 1, np.float32))


def test_xla_raises_an_error_with_advice():
    @tf.function(jit_compile=True)
    def step(x):
        return hvd.allreduce(x)

    with pytest.raises(ValueError, match="jit_compile=False"):
        step(tf.ones(2))


def test_objects():
    rank, size = hvd.rank(), hvd.size()
    mine = {"rank": rank, "padding": "x" * rank}
    assert hvd.broadcast_object(mine, size - 1) == {"rank": size - 1, "padding": "x" * (size - 1)}
    assert hvd.broadcast_object_fn(root_rank=0)(mine) == {"rank": 0, "padding": ""}
    assert hvd.allgather_object(mine) == [{"rank": r, "padding": "x" * r} for r in range(size)]


def test_broadcast_variables():
    rank = hvd.rank()
    variables = [tf.Variable(np.full((2, 2), rank, np.float32)), tf.Variable(np.int64(rank))]
    hvd.broadcast_variables(variables, root_rank=hvd.size() - 1)
    assert [np.unique(v.numpy()).tolist() for v in variables] == [[hvd.size() - 1]] * 2
    variables[0].assign_add(tf.fill([2, 2], float(rank)))
    same = hvd.broadcast_(variables, 0)
    assert same[0] is variables[0]
    np.testing.assert_array_equal(variables[0].numpy(), np.full((2, 2), hvd.size() - 1))

    @tf.function
    def inside():
        hvd.broadcast_variables(variables, 0)

    variables[1].assign(rank + 5)
    inside()
    assert variables[1].numpy() == 5


def test_global_variables_of_tensorflow_1():
    with pytest.raises(RuntimeError, match="hvd.broadcast_variables"):
        hvd.broadcast_global_variables(0)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("old", initializer=float(hvd.rank()), use_resource=True)
        hook = hvd.BroadcastGlobalVariablesHook(hvd.size() - 1)
        hook.begin()
        session.run(tf.compat.v1.global_variables_initializer())
        hook.after_create_session(session, None)
        assert session.run(variable) == hvd.size() - 1


def test_names_that_other_packages_import():
    from horovod.common.util import check_extension, gpu_available
    from tensorflow.python.keras.mixed_precision import device_compatibility_check

    assert (hvd.check_extension, hvd.gpu_available) == (check_extension, gpu_available)
    assert hvd.device_compatibility_check is device_compatibility_check


def test_error_base_classes():
    assert issubclass(HorovodInternalError, RuntimeError)
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        hvd.nothing_of_the_kind
    with pytest.raises(NotImplementedError, match="non-power of 2"):
        hvd.check_num_rank_power_of_2(3)
