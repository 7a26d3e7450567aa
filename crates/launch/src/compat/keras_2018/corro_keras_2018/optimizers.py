"""Optimizers with their old lower-case names and the arguments `lr` and `decay`. Patches the classes themselves, so that
saved models and Horovod's wrapper, which look classes up by name, find the same ones."""
import functools
from typing import Any

# Small names, as Keras 2 had them beside the classes.
SMALL = {
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adam": "Adam",
    "adamax": "Adamax",
    "nadam": "Nadam",
    "rmsprop": "RMSprop",
    "sgd": "SGD",
}


def complete(optimizers: Any) -> None:
    for small, name in SMALL.items():
        cls = getattr(optimizers, name, None)
        if cls is None:
            continue
        _accept_old_arguments(cls, optimizers)
        if not hasattr(optimizers, small):
            setattr(optimizers, small, cls)


def _accept_old_arguments(cls: Any, optimizers: Any) -> None:
    begin = cls.__init__
    if getattr(begin, "takes_lr", False):
        return

    @functools.wraps(begin)
    def __init__(self: Any, *positional: Any, **named: Any) -> None:
        if "lr" in named:
            named["learning_rate"] = named.pop("lr")
        decay = named.pop("decay", None)
        if decay:
            # The first argument of every optimizer is its rate.
            rate = positional[0] if positional else named.get("learning_rate", 0.001)
            rate = optimizers.schedules.InverseTimeDecay(float(rate), decay_steps=1, decay_rate=float(decay))
            positional = (rate,) + positional[1:] if positional else positional
            if not positional:
                named["learning_rate"] = rate
        begin(self, *positional, **named)

    __init__.takes_lr = True
    cls.__init__ = __init__
    if not hasattr(cls, "lr"):
        cls.lr = property(lambda self: self.learning_rate, lambda self, rate: setattr(self, "learning_rate", rate))
