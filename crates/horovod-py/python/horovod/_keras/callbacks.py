"""Implementation of the callbacks of horovod.keras and horovod.tensorflow.keras, which combine each with the Callback
class of their Keras.

Under JAX, Keras keeps a model's state outside of its variables while it trains. Code that reads or writes variables
here synchronizes them first.
"""

from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np

from horovod import _numpy
from horovod._keras import values
from horovod.common.basics import Average, size


class BroadcastGlobalVariablesCallbackImpl:
    """Broadcasts the variables of `root_rank` after the first batch, when all variables exist."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Optional[List[Any]] = None):
        super().__init__()
        self.root_rank, self.device = root_rank, device
        self.local_variables = {id(variable): variable for variable in local_variables or []}
        self.broadcast_done = False

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.broadcast_done:
            return
        _ensure_state(self.model)
        # Only weights of the model: the states of its random generators and its metrics stay local.
        variables = list(self.model.weights) + _variables_of(self.model.optimizer)
        unlike = [variable for variable in variables if id(variable) not in self.local_variables]
        if size() > 1:
            values.broadcast_variables(unlike, self.root_rank)
        self.broadcast_done = True


class MetricAverageCallbackImpl:
    """Averages the metrics of an epoch in place. Must come before callbacks that use them."""

    def __init__(self, device: str = ""):
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if not logs or size() == 1:
            return
        # Ranks may have another order.
        names = sorted(name for name, value in logs.items() if np.ndim(value) == 0)
        mine = np.array([float(logs[name]) for name in names], dtype=np.float64)
        mean = _numpy.allreduce(mine, "HorovodAllreduce_metrics", Average)
        for name, value in zip(names, mean):
            logs[name] = float(value)


class LearningRateScheduleCallbackImpl:
    """Multiplies the initial learning rate, per epoch or, without staircase, per batch."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ):
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase, self.momentum_correction = staircase, momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.restore_momentum: Optional[float] = None
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            self.multiplier = lambda epoch: multiplier ** (epoch - self.start_epoch)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._autodetect_steps_per_epoch()

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.current_epoch < self.start_epoch or (self.end_epoch is not None and self.current_epoch >= self.end_epoch):
            return
        if self.staircase and batch == 0:
            self._adjust(self.current_epoch)
        elif not self.staircase:
            self._adjust(self.current_epoch + float(batch) / self.steps_per_epoch)

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.restore_momentum is not None:
            _write(self.model.optimizer, "momentum", self.restore_momentum)
            self.restore_momentum = None

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if logs is not None:
            _ensure_state(self.model)
            logs["lr"] = _read(self.model.optimizer, "learning_rate")

    def _autodetect_steps_per_epoch(self) -> int:
        if self.params.get("steps"):
            return self.params["steps"]
        if self.params.get("samples") and self.params.get("batch_size"):
            return self.params["samples"] // self.params["batch_size"]
        raise ValueError(
            "Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch parameter to the "
            f"{type(self).__name__}() or upgrade to the latest version of Keras."
        )

    def _adjust(self, epoch: float) -> None:
        _ensure_state(self.model)
        optimizer = self.model.optimizer
        before, after = _read(optimizer, "learning_rate"), self.initial_lr * self.multiplier(epoch)
        _write(optimizer, "learning_rate", after)
        momentum = None if getattr(optimizer, "momentum", None) is None else _read(optimizer, "momentum")
        if self.momentum_correction and before and momentum:
            # The momentum's history was scaled by the old rate.
            self.restore_momentum = momentum
            _write(optimizer, "momentum", self.restore_momentum * after / before)


class LearningRateWarmupCallbackImpl(LearningRateScheduleCallbackImpl):
    """Increases the learning rate per batch, from that of one rank to that of all. `initial_lr` is the final rate,
    already scaled by the size."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ):
        def multiplier(epoch: float) -> float:
            # Shifted by one batch, so that the last batch of the warmup has the full rate.
            epoch += 1.0 / self.steps_per_epoch
            return 1.0 / size() * (epoch * (size() - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0:
            rate = _read(self.model.optimizer, "learning_rate")
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


class BestModelCheckpointImpl:
    """A ModelCheckpoint that keeps the best model; its path is set later, as `filepath`."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ):
        super().__init__(
            # Keras checks the suffix now.
            filepath="best.weights.h5" if save_weights_only else "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = None

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint has no path: set its `filepath` before training.")
        super().on_train_begin(logs)


def _ensure_state(model: Any) -> None:
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()


def _variables_of(optimizer: Any) -> List[Any]:
    if optimizer is None:
        return []
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def _read(optimizer: Any, name: str) -> float:
    return float(np.asarray(values.as_array(getattr(optimizer, name))))


def _write(optimizer: Any, name: str, value: float) -> None:
    """Sets a hyperparameter. Keras variables are assigned; plain numbers are replaced (a compiled step has already read
    them and does not see the change)."""
    current = getattr(optimizer, name)
    if hasattr(current, "assign"):
        values.assign(current, value)
    else:
        setattr(optimizer, name, value)
