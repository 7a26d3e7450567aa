"""Upstream's compute service: dispatchers and workers of TensorFlow's data service, started by a Horovod job. Not
supported: accessing its names raises an error that says so."""

from typing import Any

NAMES = ("TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service")


def __getattr__(name: str) -> Any:
    if name in NAMES:
        raise ImportError(
            f"horovod.tensorflow.data.compute_service.{name} is not available. Start tf.data.experimental.service.DispatchServer and "
            "WorkerServer as tasks of the job, and use dataset.apply(tf.data.experimental.service.distribute(...)) instead."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
