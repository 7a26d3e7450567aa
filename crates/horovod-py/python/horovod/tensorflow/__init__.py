"""Horovod for TensorFlow 2: collectives on tensors, distributed gradient tapes and optimizers, broadcast of variables.

Re-exports the files beside it. Reading order: `mpi_ops`, `collectives`, `requests`, `gradients`, `tape`,
`optimizer`, `functions`.
"""

from typing import Any

from horovod.common.basics import (  # noqa: F401
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.common.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.tensorflow.collectives import (  # noqa: F401
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.tensorflow.compression import Compression  # noqa: F401
from horovod.tensorflow.functions import (  # noqa: F401
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper  # noqa: F401
from horovod.tensorflow.gradients import _make_allreduce_grads_fn  # noqa: F401
from horovod.tensorflow.mpi_ops import (  # noqa: F401
    _allreduce,
    _reducescatter,
    allgather,
    alltoall,
    broadcast,
    check_num_rank_power_of_2,
    grouped_allgather,
    handle_average_backwards_compatibility,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from horovod.tensorflow.optimizer import DistributedOptimizer  # noqa: F401
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape  # noqa: F401
from horovod.tensorflow.util import _cache, _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs  # noqa: F401


def __getattr__(name: str) -> Any:
    """Loads modules that need more than TensorFlow itself on first access: importing Keras takes seconds."""
    import importlib

    if name == "SyncBatchNormalization":
        return importlib.import_module("horovod.tensorflow.sync_batch_norm").SyncBatchNormalization
    if name in ("check_extension", "gpu_available"):
        return getattr(importlib.import_module("horovod.common.util"), name)
    if name == "device_compatibility_check":  # TensorFlow's own module, which upstream has here.
        return importlib.import_module("tensorflow.python.keras.mixed_precision.device_compatibility_check")
    if name == "elastic":
        return importlib.import_module("horovod.tensorflow.elastic")
    if name == "BroadcastGlobalVariablesHook":
        try:
            return importlib.import_module("horovod.tensorflow.hook").BroadcastGlobalVariablesHook
        except AttributeError as error:
            raise ImportError(
                "BroadcastGlobalVariablesHook needs tf.compat.v1.train.SessionRunHook, which this TensorFlow no longer has. Use "
                "hvd.broadcast_variables(variables, root_rank=0) after the first step instead, or, with Keras, "
                "hvd.callbacks.BroadcastGlobalVariablesCallback(0)."
            ) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
