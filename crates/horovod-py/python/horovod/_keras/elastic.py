"""Code shared by the `elastic` modules of horovod.keras and horovod.tensorflow.keras: the state of a model, and
callbacks that commit it. Values pass through NumPy, so it works on every Keras backend. Imports no framework."""

from typing import Any, Dict, List, Optional

import numpy as np

from horovod._keras import values
from horovod.common import basics
from horovod.common.elastic import ObjectState, State
from horovod.elastic.objects import broadcast_object


class KerasState(ObjectState):
    """A model, its optimizer (by default the one it was compiled with), and other objects given as keywords."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        self.backend = backend
        self._saved_arrays: List[np.ndarray] = []
        super().__init__(broadcast_object, basics.rank, **kwargs)
        self.save()

    def save(self) -> None:
        self._saved_arrays = [np.array(values.as_array(variable)) for variable in self._variables()]
        super().save()

    def restore(self) -> None:
        self._assign(self._saved_arrays)
        super().restore()

    def sync_from(self, root_rank: int) -> None:
        arrays = [values.as_array(variable) for variable in self._variables()]
        received = broadcast_object(arrays, root_rank, "elastic_variables")
        if basics.rank() != root_rank:
            self._assign(received)
        super().sync_from(root_rank)

    def _variables(self) -> List[Any]:
        """All variables. The optimizer creates its own in the first step, so they are created here if missing."""
        _sync_jax_state(self.model)
        variables = list(self.model.weights)
        optimizer = self.optimizer
        if optimizer is None:
            return variables
        if self.model.built:
            _ensure_built(optimizer, self.model.trainable_variables)
        own = optimizer.variables
        return variables + list(own() if callable(own) else own)

    def _assign(self, arrays: List[np.ndarray]) -> None:
        variables = self._variables()
        if len(variables) != len(arrays):
            raise ValueError(
                f"The model and its optimizer have {len(variables)} variables, but {len(arrays)} were saved. Build the"
                " model (call it once, or give it an Input) before the state is made."
            )
        for variable, array in zip(variables, arrays):
            values.assign(variable, array)


class CommitStateCallbackImpl:
    """Commits the state after every `batches_per_commit` batches."""

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self.state.commit()


class UpdateBatchStateCallbackImpl:
    """Keeps the number of batches of this epoch in `state.batch`, including those before a failure; 0 after the epoch."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.state.batch += 1

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallbackImpl:
    """Keeps the number of completed epochs in `state.epoch`, including those before a failure."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.state.epoch += 1


def _sync_jax_state(model: Any) -> None:
    """Under JAX, Keras keeps a model's state outside of its variables while it trains; this writes it back."""
    bring = getattr(model, "jax_state_sync", None)
    if bring is not None:
        bring()


def _ensure_built(optimizer: Any, variables: List[Any]) -> None:
    if hasattr(optimizer, "_create_all_weights"):
        # Legacy optimizers of Keras 2. Creates missing variables.
        optimizer._create_all_weights(variables)
    elif not getattr(optimizer, "built", getattr(optimizer, "_built", True)):
        optimizer.build(variables)
