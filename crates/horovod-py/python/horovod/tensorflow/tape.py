"""Gradient tapes whose gradients are reduced over all ranks, for custom training loops."""

from typing import Any, List, Optional, Tuple

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import _make_allreduce_grads_fn, checked_groups, scale_local
from horovod.tensorflow.mpi_ops import Average, member_count
from horovod.tensorflow.util import key


class _DistributedGradientTape(tf.GradientTape):
    """Takes over the recording of the tape from which it was made."""

    def __init__(self, tape: tf.GradientTape, reduction: Any, process_set: ProcessSet, scale_local_gradients: bool):
        self.__dict__.update(tape.__dict__)
        self._horovod_reduce = reduction
        self._horovod_process_set = process_set
        self._horovod_scale_local = scale_local_gradients
        # Holds references, so that no other variable can get the same key.
        self._horovod_local: dict = {}

    def register_local_source(self, source: Any) -> None:
        """Excludes a source from the reduction."""
        self._horovod_local[key(source)] = source

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Optional[Any] = None, use_generic_names: bool = False
    ) -> Tuple[List[Tuple[Any, Any]], List[Tuple[Any, Any]]]:
        """Pairs of source and gradient of `target`: local ones, and reduced ones."""
        gradients = self.gradient(target, sources, output_gradients, use_generic_names)
        return self._divided(tf.nest.flatten(sources), _leaves(sources, gradients))

    def _divided(self, sources: List[Any], gradients: List[Any]) -> Tuple[List[Tuple[Any, Any]], List[Tuple[Any, Any]]]:
        local, everybodys = [], []
        for source, gradient in zip(sources, gradients):
            (local if key(source) in self._horovod_local else everybodys).append((source, gradient))
        return local, everybodys

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Optional[Any] = None,
        use_generic_names: bool = False,
        **kwargs: Any,
    ) -> Any:
        """As for any tape, then reduced over all ranks."""
        gradients = super().gradient(target, sources, output_gradients, **kwargs)
        flat_sources = tf.nest.flatten(sources)
        flat = _leaves(sources, gradients)
        _, everybodys = self._divided(flat_sources, flat)
        reduced = iter(
            self._horovod_reduce([g for _, g in everybodys], [s for s, _ in everybodys], use_generic_names=use_generic_names)
        )
        results = []
        for source, gradient in zip(flat_sources, flat):
            if key(source) not in self._horovod_local:
                results.append(next(reduced))
            else:
                n_members = member_count(self._horovod_process_set) if self._horovod_scale_local else 1
                results.append(scale_local(gradient, n_members))
        return tf.nest.pack_sequence_as(sources, results)


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """A tape of the same class whose `gradient` reduces over all ranks."""
    reduction = _make_allreduce_grads_fn(
        "DistributedGradientTape",
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        checked_groups(groups, num_groups),
        process_set,
    )
    kind = type(gradtape)
    wrapped = type(kind.__name__, (_DistributedGradientTape, kind), {})
    return wrapped(gradtape, reduction, process_set, scale_local_gradients)


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """As DistributedGradientTape, except that gradients of `local_layers`, one or several Keras layers, are not
    reduced."""
    layers = [] if local_layers is None else local_layers
    layers = list(layers) if isinstance(layers, (list, tuple, set)) else [layers]
    if not all(isinstance(layer, tf.keras.layers.Layer) for layer in layers):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for layer in layers:
        for weight in layer.trainable_weights:
            tape.register_local_source(weight)
    return tape


def _leaves(sources: Any, gradients: Any) -> List[Any]:
    """One gradient for every leaf of the sources. `flatten` would split slices."""
    from tensorflow.python.util import nest

    return nest.flatten_up_to(sources, gradients)
