"""TensorFlow 1 sessions and their configuration, with which scripts selected their GPU."""
import importlib
import os
from typing import Any

# Of TensorFlow 1: still there, in a drawer.
FROM_V1 = (
    "ConfigProto", "GPUOptions", "GraphOptions", "OptimizerOptions", "RunOptions", "get_default_graph",
    "get_default_session", "global_variables", "global_variables_initializer", "initialize_all_variables",
    "local_variables_initializer", "placeholder", "reset_default_graph", "set_random_seed", "trainable_variables",
)


def complete_tensorflow(tensorflow: Any) -> None:
    v1 = tensorflow.compat.v1
    for name in FROM_V1:
        if not hasattr(tensorflow, name) and hasattr(v1, name):
            setattr(tensorflow, name, getattr(v1, name))
    if not hasattr(tensorflow, "Session"):
        tensorflow.Session = Session


class Session:
    """Holds the settings. The session itself is begun only when something is run in it: that takes hold of the GPUs."""

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        self._arguments = (target, graph, config)
        self._session = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __enter__(self) -> Any:
        return self._real().__enter__()

    def __exit__(self, *raised: Any) -> Any:
        return self._real().__exit__(*raised)

    def _real(self) -> Any:
        if self._session is None:
            import tensorflow

            self._session = tensorflow.compat.v1.Session(*self._arguments)
        return self._session


_session = None


def set_session(session: Any) -> None:
    """Keras has no sessions now; the configuration of the session is applied to the backend."""
    global _session
    _session = session
    config = session._arguments[2] if isinstance(session, Session) else None
    if config is not None:
        _choose_gpus(config.gpu_options.visible_device_list, config.gpu_options.allow_growth)


def get_session() -> Any:
    global _session
    if _session is None:
        _session = Session()
    return _session


def _choose_gpus(visible: str, grow: bool) -> None:
    import keras

    if keras.config.backend() != "tensorflow":
        if visible:
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", visible)
        if grow:
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        return
    import tensorflow

    gpus = tensorflow.config.list_physical_devices("GPU")
    if visible and gpus:
        chosen = [int(number) for number in visible.split(",") if int(number) < len(gpus)]
        tensorflow.config.set_visible_devices([gpus[number] for number in chosen], "GPU")
    for gpu in gpus if grow else []:
        tensorflow.config.experimental.set_memory_growth(gpu, True)


def complete_backend(backend: Any) -> None:
    legacy = importlib.import_module("keras.src.legacy.backend")
    for name, value in vars(legacy).items():
        if not name.startswith("_") and callable(value) and not hasattr(backend, name):
            setattr(backend, name, value)
    for function in (set_session, get_session):
        if not hasattr(backend, function.__name__):
            setattr(backend, function.__name__, function)
