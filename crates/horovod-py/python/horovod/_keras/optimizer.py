"""Keras optimizers that step with the gradients of all ranks.

The class of a wrapped optimizer is a subclass with the same name and module as the optimizer's class, so that a
saved model can be loaded with or without Horovod.
"""

import functools
import os
from typing import Any, Dict, List, Optional

from horovod import _core
from horovod._keras import backends, jit
from horovod.common.basics import Average, Sum, rank
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id


class Distribution:
    """Distribution settings of one optimizer, and the reduction of its gradients."""

    def __init__(
        self,
        optimizer: Any,
        name: Optional[str] = None,
        compression: Any = None,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ):
        if op not in (Average, Sum):
            raise ValueError("op currently only supports Average and Sum")
        if gradient_predivide_factor != 1.0 and op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backend_name = backends.backend_name(optimizer)
        self.backend = backends.load(self.backend_name)
        self.process_set, self.scale_local_gradients = process_set, scale_local_gradients
        self.local: Dict[int, Any] = {}
        name = name or f"Distributed{type(optimizer).__name__}"
        compression = compression or self.backend.Compression.none
        self._reduction = self.backend.Reduction(
            name, compression, sparse_as_dense, op, gradient_predivide_factor, _checked_groups(groups), process_set
        )
        self.aggregation = None
        if backward_passes_per_step > 1:
            self.aggregation = self.backend.Aggregation(
                backward_passes_per_step, self.reduce, sparse_as_dense, average_aggregated_gradients
            )

    def is_needed(self) -> bool:
        members = _core.process_set_ranks(process_set_id(self.process_set))
        # What Keras compiles once in an elastic job is used with more ranks later.
        return (len(members) > 1 or os.environ.get("HOROVOD_ELASTIC") == "1") and rank() in members

    def reduce(self, gradients: List[Any], variables: List[Any]) -> List[Any]:
        """Reduces gradients, except for those of local variables."""
        if not self.is_needed():
            return gradients
        if not self.local:
            return self._reduction(gradients, variables)
        n_members = self.backend.member_count(self.process_set)
        everybodys = [number for number, variable in enumerate(variables) if _key(variable) not in self.local]
        reduced = self._reduction([gradients[n] for n in everybodys], [variables[n] for n in everybodys])
        scaled = [self.backend.scale_local(g, n_members) if self.scale_local_gradients else g for g in gradients]
        for number, gradient in zip(everybodys, reduced):
            scaled[number] = gradient
        return scaled

    def step(self, optimizer: Any, gradients: List[Any], variables: List[Any], update: Any) -> Any:
        if self.aggregation is not None:
            return self.aggregation.step(optimizer, gradients, variables, update)
        return update(self.reduce(gradients, variables))


class Distributed:
    """Behaviour common to all distributed optimizers."""

    _HAS_AGGREGATE_GRAD = True
    _horovod: Optional[Distribution] = None

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable from the reduction."""
        self._distribution().local[_key(var)] = var

    @property
    def _agg_helper(self) -> Any:
        """Aggregation of gradients over several passes; None if every pass is a step. Upstream's name."""
        return self._distribution().aggregation

    def _distribution(self) -> Distribution:
        # Created by from_config, as when a model is loaded: use the defaults.
        if self._horovod is None:
            self._set("_horovod", Distribution(self))
        return self._horovod

    def _set(self, name: str, value: Any) -> None:
        """Bypasses Keras: legacy optimizers treat attributes as hyperparameters, and others track them."""
        object.__setattr__(self, name, value)


class Keras3Mixin(Distributed):
    """Mixin before the optimizer's own class. Reduces once, when gradients are applied."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Keras 3: every change of variables goes through this method."""
        gradients = list(grads)
        if jit.capture(self, gradients, trainable_variables):
            return None
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        update = functools.partial(super().apply, trainable_variables=trainable_variables)
        return self._distribution().step(self, gradients, variables, update)


class Keras2Mixin(Distributed):
    """Mixin for optimizers of Keras 2, which apply pairs of gradient and variable.

    As upstream's, they reduce when gradients are computed, and not again when those are applied. Gradients from
    elsewhere, such as a tape of the user, are reduced when they are applied, as are gradients aggregated over
    several passes.
    """

    _horovod_computes = False

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        distribution, base = self._distribution(), super().apply_gradients
        if self._horovod_computes and distribution.aggregation is None:
            return base(pairs, *args, **kwargs)

        def update(gradients: List[Any]) -> Any:
            return base(list(zip(gradients, variables)), *args, **kwargs)

        return distribution.step(self, [gradient for gradient, _ in pairs], variables, update)

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        """The reduced gradients, paired with their variables."""
        if hasattr(super(), "compute_gradients"):
            return self._reduced_pairs(super().compute_gradients(loss, var_list, tape=tape))
        return self._compute_gradients(loss, var_list, tape=tape)

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Any:
        """As `compute_gradients`, under the name that legacy optimizers use."""
        if not hasattr(super(), "_compute_gradients"):
            return self.compute_gradients(loss, var_list, tape=tape)
        import tensorflow as tf

        tape = tf.GradientTape() if tape is None and callable(loss) else tape
        return self._reduced_pairs(super()._compute_gradients(loss, var_list, grad_loss=grad_loss, tape=tape))

    def get_gradients(self, loss: Any, params: Any) -> List[Any]:
        """For graphs of TensorFlow 1."""
        return [gradient for gradient, _ in self._reduced_pairs(list(zip(super().get_gradients(loss, params), params)))]

    def _reduced_pairs(self, pairs: Any) -> List[Any]:
        pairs, distribution = list(pairs), self._distribution()
        if distribution.aggregation is not None:
            return pairs
        self._set("_horovod_computes", True)
        variables = [variable for _, variable in pairs]
        return list(zip(distribution.reduce([gradient for gradient, _ in pairs], variables), variables))


@functools.lru_cache(maxsize=None)
def distributed_class(base: type) -> type:
    """The subclass of an optimizer's class, with the same name. Cached."""
    if issubclass(base, Distributed):
        return base
    mixin = Keras3Mixin if hasattr(base, "apply") else Keras2Mixin
    members = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (mixin, base), members)


def create_distributed_optimizer(optimizer: Any, **settings: Any) -> Any:
    """A new optimizer with the configuration and, if any, the state of the given one."""
    distribution = Distribution(optimizer, **settings)
    new = distributed_class(type(optimizer)).from_config(optimizer.get_config())
    new._set("_horovod", distribution)
    _carry_state(optimizer, new)
    if distribution.backend_name == "tensorflow":
        jit.ensure_split_steps()
    return new


def distribute_in_place(optimizer: Any, **settings: Any) -> None:
    """Makes the optimizer of a loaded model a distributed one, with its state."""
    distribution = Distribution(optimizer, **settings)
    optimizer.__class__ = distributed_class(type(optimizer))
    optimizer._set("_horovod", distribution)
    if distribution.backend_name == "tensorflow":
        jit.ensure_split_steps()


def local_variables(local_layers: Any, layer_class: type) -> List[Any]:
    """The trainable weights of one or several layers."""
    layers = [] if local_layers is None else local_layers
    layers = list(layers) if isinstance(layers, (list, tuple, set)) else [layers]
    if not all(isinstance(layer, layer_class) for layer in layers):
        raise ValueError(f"All local layers must be of {layer_class.__name__} type of Keras, got {layers!r}.")
    return [weight for layer in layers for weight in layer.trainable_weights]


def _carry_state(old: Any, new: Any) -> None:
    variables = getattr(old, "_trainable_variables", None)
    if not getattr(old, "built", False) or not variables:
        return
    new.build(list(variables))
    for mine, theirs in zip(new.variables, old.variables):
        mine.assign(theirs)


def _key(variable: Any) -> int:
    """Identity key, equal for a Keras variable and its tf.Variable; other backends replace the inner value."""
    inner = getattr(variable, "value", None)
    return id(inner if hasattr(inner, "assign") else variable)


def _checked_groups(groups: Any) -> Any:
    if groups is None or isinstance(groups, (list, tuple)):
        if any(not isinstance(group, (list, tuple)) for group in groups or ()):
            raise ValueError("groups should be a non-negative integer or a list of list of variables.")
        return groups
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 0:
        raise ValueError("groups should be a non-negative integer or a list of list of variables.")
    return groups
