"""Kernels for TensorFlow's GPU, as far as TensorFlow without a GPU knows them. test_fake_gpu.py executes them. SPMD."""

import logging
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

tf = pytest.importorskip("tensorflow", reason="missing: TensorFlow")
from tensorflow.python.framework import kernels

import horovod.tensorflow as hvd
from horovod import _core
from horovod.tensorflow import native, requests

HOST_MEMORY = {"HorovodAlltoall": ["splits", "received_splits"], "HorovodJoin": ["last_joined_rank"]}


@pytest.fixture(scope="module", autouse=True)
def job():
    # As the other files of this process.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def gpu(monkeypatch):
    """As if TensorFlow had a GPU."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"/{kind}:0"])
    native.uses_gpu.cache_clear()
    yield
    native.uses_gpu.cache_clear()


def test_kernels_are_registered_for_both_devices():
    assert native.is_available()
    names = [*requests.OP_NAMES.values(), "HorovodGroupedAllreduce", "HorovodJoin"]
    for name in names:
        registered = kernels.get_registered_kernels_for_op(name).kernel
        assert sorted(kernel.device_type for kernel in registered) == ["CPU", "GPU"], name
        on_gpu = next(kernel for kernel in registered if kernel.device_type == "GPU")
        assert list(on_gpu.host_memory_arg) == HOST_MEMORY.get(name, [])


def test_without_a_gpu_ops_are_on_the_cpu(caplog):
    native.uses_gpu.cache_clear()
    assert not native.uses_gpu() and not caplog.messages
    graph = tf.function(hvd.allreduce).get_concrete_function(tf.TensorSpec([2])).graph
    ops = [op for op in graph.get_operations() if op.type == "HorovodAllreduce"]
    assert [op.device for op in ops] == ["/device:CPU:0"]


def test_the_choice_is_said_once(gpu, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "horovod")
    monkeypatch.delenv("HOROVOD_TENSORFLOW_OPS", raising=False)
    assert not native.uses_gpu() and not native.uses_gpu()
    assert caplog.messages == ["TensorFlow: GPU tensors pass through main memory: HOROVOD_TENSORFLOW_OPS=gpu is not set."]
    monkeypatch.setenv("HOROVOD_TENSORFLOW_OPS", "gpu")
    monkeypatch.setattr(_core, "context_events_obstacle", lambda: "the driver is too old")
    caplog.clear()
    native.uses_gpu.cache_clear()
    assert not native.uses_gpu()
    assert caplog.messages == ["TensorFlow: GPU tensors pass through main memory: the driver is too old."]


def test_tensorflow_places_ops_that_may_run_on_a_gpu(gpu, monkeypatch):
    monkeypatch.setenv("HOROVOD_TENSORFLOW_OPS", "gpu")
    monkeypatch.setattr(_core, "context_events_obstacle", lambda: None)
    assert native.uses_gpu()
    for dtype, device in ((tf.float32, ""), (tf.int32, "/device:CPU:0")):

        def reduced(tensor):
            return hvd.allreduce(tensor, op=hvd.Sum)

        graph = tf.function(reduced).get_concrete_function(tf.TensorSpec([2], dtype)).graph
        ops = [op for op in graph.get_operations() if op.type == "HorovodAllreduce"]
        assert [op.device for op in ops] == [device]
        # The only device here is the CPU.
        assert tf.function(reduced)(tf.constant([1, 2], dtype)).numpy().tolist() == [hvd.size(), 2 * hvd.size()]
    eager = requests.Request(_core.ALLREDUCE, "eager", [tf.ones(2)])
    assert native.at_once([eager])[0][0].numpy().tolist() == [hvd.size()] * 2
    assert not requests._all_on_gpu([eager])
