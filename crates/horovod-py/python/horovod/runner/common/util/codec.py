"""Python objects as text, for channels that do not take bytes. Loading executes code: only load data from the same job."""

import base64
from typing import Any, Union

import cloudpickle


def dumps_base64(obj: Any, to_ascii: bool = True) -> Union[str, bytes]:
    encoded = base64.b64encode(cloudpickle.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: Union[str, bytes]) -> Any:
    return cloudpickle.loads(base64.b64decode(encoded))
