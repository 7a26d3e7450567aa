"""Translates engine errors to TensorFlow exceptions, for collectives that run outside of an op."""

import contextlib
from typing import Iterator

import tensorflow as tf

from horovod.common.exceptions import HorovodInternalError

# Errors found during negotiation: the operation never started, and the engine continues.
NEGOTIATION_ERRORS = (
    "Mismatched ",
    "Process-set rank zero tried to ",
    "Horovod has not been initialized",
    "Reduction op type not supported",
    "No Adasum operation enabled",
    "Reducescatter currently only supports",
)


@contextlib.contextmanager
def as_tensorflow_errors(op_name: str) -> Iterator[None]:
    """`op_name`, such as HorovodAllreduce, ends the message: elastic training looks for it there."""
    try:
        yield
    except ValueError as error:
        raise tf.errors.InvalidArgumentError(None, None, f"{error} [Op:{op_name}]") from error
    except HorovodInternalError as error:
        text = str(error)
        if text.startswith(NEGOTIATION_ERRORS) or " is not supported with Join" in text:
            raise tf.errors.FailedPreconditionError(None, None, f"{text} [Op:{op_name}]") from error
        raise tf.errors.UnknownError(None, None, f"{text} [Op:{op_name}]") from error
