"""JAX arrays by XLA's foreign function interface, on the CPU with real JAX. In the process of test_keras_jax.py; run by
spmd.py."""

import logging
import os

os.environ["KERAS_BACKEND"] = "jax"

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="missing: jax")
keras = pytest.importorskip("keras", minversion="3.0", reason="missing: Keras 3", exc_type=ImportError)
if keras.backend.backend() != "jax":
    pytest.skip("Keras was already imported with another backend", allow_module_level=True)
if not hasattr(jax, "ffi"):
    pytest.skip("missing: jax.ffi", allow_module_level=True)

import horovod.keras as hvd
from horovod import _core
from horovod._keras.backends import jax_ffi

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()
jnp = jax.numpy
DTYPES = ["uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32"]


@pytest.fixture
def use(monkeypatch):
    """Sets HOROVOD_JAX_OPS."""

    def set_ops(value):
        monkeypatch.setenv("HOROVOD_JAX_OPS", value)
        jax_ffi.is_used.cache_clear()

    yield set_ops
    jax_ffi.is_used.cache_clear()


@pytest.fixture(params=["jit", "eager"])
def run(request, use):
    use("ffi")
    assert jax_ffi.is_used()
    return (lambda f, *args: jax.jit(f)(*args)) if request.param == "jit" else (lambda f, *args: f(*args))


def own(dtype="float32", rank=RANK, shape=(4, 3)):
    return (jnp.arange(12).reshape(shape) % 5 + rank).astype(dtype)


def total(dtype="float32"):
    return sum(own(dtype, rank) for rank in range(SIZE))


def same(result, expected):
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(result, np.float64), np.asarray(expected, np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_broadcasts(run, dtype):
    result = run(lambda x: jax_ffi.call(_core.ALLREDUCE, [x], [(1, f"sum.{dtype}")])[0], own(dtype))
    same(result, total(dtype))
    result = run(lambda x: jax_ffi.call(_core.BROADCAST, [x], [(1, f"one.{dtype}")], root=SIZE - 1)[0], own(dtype))
    same(result, own(dtype, SIZE - 1))


def test_many_requests_of_one_call_and_scales(run):
    def reduced(*arrays):
        requests = [(1, "first"), (3, "group"), (1, "last")]
        return jax_ffi.call(_core.ALLREDUCE, arrays, requests, op=1, prescale=0.5, postscale=4.0)

    given = [own(), own() * 2, own()[0], jnp.zeros((0, 3)), jnp.float32(RANK)]
    results = run(reduced, *given)
    expected = [2 * total(), 4 * total(), 2 * total()[0], jnp.zeros((0, 3)), jnp.float32(sum(range(SIZE)) * 2)]
    for result, array in zip(results, expected):
        same(result, array)


def test_the_layout_is_that_of_rows(run):
    result = run(lambda x: jax_ffi.call(_core.ALLREDUCE, [x.T], [(1, "transposed")])[0], own())
    same(result, total().T)


def test_values_of_keras(use):
    use("ffi")
    same(hvd.allreduce(own(), name="value"), total() / SIZE)
    same(hvd.allreduce(own(), name="value.16", compression=hvd.Compression.fp16, op=hvd.Sum), total())
    same(hvd.broadcast(own(), SIZE - 1, name="value"), own(rank=SIZE - 1))
    variable = keras.Variable(own())
    same(hvd.allreduce(variable, name="variable", op=hvd.Sum), total())
    # Their shapes are known only afterwards: through main memory.
    same(hvd.allgather(own(), name="value"), jnp.concatenate([own(rank=rank) for rank in range(SIZE)]))


def trained(steps=3):
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), groups=1 if steps > 2 else None)
    model.compile(optimizer, "mse")
    random = np.random.default_rng(RANK)
    model.fit(random.random((8 * steps, 4)), random.random((8 * steps, 1)), batch_size=8, verbose=0, shuffle=False)
    return model.get_weights()


def test_a_training_is_that_of_the_callback(use):
    weights = {}
    for ops in ("ffi", "callback"):
        use(ops)
        weights[ops] = trained()
    for one, other in zip(*weights.values()):
        np.testing.assert_array_equal(one, other)


def test_ranks_with_and_without_it_work_together(use):
    use("ffi" if RANK % 2 else "callback")
    mixed = trained(2)
    use("callback")
    for one, other in zip(mixed, trained(2)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(SIZE < 2, reason="a rank alone agrees with itself")
def test_errors_name_their_cause(run):
    shape = (2,) if RANK == 0 else (3,)

    def reduced(x):
        return jax_ffi.call(_core.ALLREDUCE, [x], [(1, "mismatch")])[0]

    with pytest.raises(Exception, match="HorovodInternalError: Mismatched ALLREDUCE tensor shapes"):
        run(reduced, jnp.ones(shape)).block_until_ready()
    same(run(lambda x: jax_ffi.call(_core.ALLREDUCE, [x], [(1, "again")])[0], own()), total())


def test_the_choice_is_said_once(use, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "horovod")
    use("auto")
    assert not jax_ffi.is_used() and not caplog.messages
    use("ffi")
    assert jax_ffi.is_used() and jax_ffi.is_used()
    assert caplog.messages == ["JAX: the engine accesses arrays in the memory of the host."]
    caplog.clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(_core, "open_device", lambda ordinal: "libcuda.so.1 was not found")
    use("auto")
    assert not jax_ffi.is_used() and not jax_ffi.is_used()
    assert caplog.messages == ["JAX: arrays pass through main memory: libcuda.so.1 was not found."]
    caplog.clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    use("ffi")
    assert not jax_ffi.is_used()
    assert caplog.messages == ["JAX: arrays pass through main memory: the engine cannot access the memory of a tpu."]
    use("always")
    with pytest.raises(ValueError, match="HOROVOD_JAX_OPS must be auto, ffi or callback, and is 'always'"):
        jax_ffi.is_used()


def test_versions_of_the_interface():
    for version in ((1, 0), (0, 0)):
        with pytest.raises(ValueError, match="is not supported"):
            _core.xla_handlers(*version)
