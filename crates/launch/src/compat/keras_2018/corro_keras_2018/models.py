"""Keras models with the generator methods, the metric name `acc`, and model files that several ranks may write."""
import functools
import os
from typing import Any


def complete(models: Any) -> None:
    model = models.Model
    for name, method in (("fit_generator", fit_generator), ("evaluate_generator", evaluate_generator),
                         ("predict_generator", predict_generator)):
        if not hasattr(model, name):
            setattr(model, name, method)
    if not getattr(model.compile, "of_2018", False):
        model.compile = _with_acc(model.compile)
        model.save = _whole_or_not(model.save)


def fit_generator(self: Any, generator: Any, steps_per_epoch: Any = None, epochs: int = 1, verbose: Any = 1,
                  callbacks: Any = None, validation_data: Any = None, validation_steps: Any = None,
                  class_weight: Any = None, max_queue_size: int = 10, workers: int = 1,
                  use_multiprocessing: bool = False, shuffle: bool = True, initial_epoch: int = 0) -> Any:
    _hire(generator, workers, use_multiprocessing, max_queue_size)
    return self.fit(generator, steps_per_epoch=steps_per_epoch, epochs=epochs, verbose=verbose, callbacks=callbacks,
                    validation_data=validation_data, validation_steps=validation_steps, class_weight=class_weight,
                    shuffle=shuffle, initial_epoch=initial_epoch)


def evaluate_generator(self: Any, generator: Any, steps: Any = None, max_queue_size: int = 10, workers: int = 1,
                       use_multiprocessing: bool = False, verbose: Any = 0) -> Any:
    _hire(generator, workers, use_multiprocessing, max_queue_size)
    return self.evaluate(generator, steps=steps, verbose=verbose)


def predict_generator(self: Any, generator: Any, steps: Any = None, max_queue_size: int = 10, workers: int = 1,
                      use_multiprocessing: bool = False, verbose: Any = 0) -> Any:
    _hire(generator, workers, use_multiprocessing, max_queue_size)
    return self.predict(generator, steps=steps, verbose=verbose)


def _hire(generator: Any, workers: int, use_multiprocessing: bool, max_queue_size: int) -> None:
    """Today a data set says itself who prepares it; plain generators have nobody."""
    import keras

    if isinstance(generator, keras.utils.PyDataset):
        generator.workers = max(1, workers)
        generator.use_multiprocessing = use_multiprocessing
        generator.max_queue_size = max_queue_size


def _with_acc(compile: Any) -> Any:
    """Accuracy was called `acc` in logs and histories."""

    @functools.wraps(compile)
    def method(self: Any, *positional: Any, **named: Any) -> Any:
        metrics = named.get("metrics")
        if isinstance(metrics, (list, tuple)):
            named["metrics"] = ["acc" if metric == "accuracy" else metric for metric in metrics]
        return compile(self, *positional, **named)

    method.of_2018 = True
    return method


def _whole_or_not(save: Any) -> Any:
    """Scripts of the time save on every rank, all to one file: the last whole one stays."""

    @functools.wraps(save)
    def method(self: Any, filepath: Any, *positional: Any, **named: Any) -> Any:
        path = os.fspath(filepath) if isinstance(filepath, (str, os.PathLike)) else ""
        if not path.endswith((".h5", ".hdf5")):
            return save(self, filepath, *positional, **named)
        draft = "%s.%d.h5" % (path, os.getpid())
        try:
            save(self, draft, *positional, **named)
            os.replace(draft, path)
        finally:
            if os.path.exists(draft):
                os.remove(draft)

    return method
