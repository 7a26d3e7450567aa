"""CIFAR-10 from the file in CIFAR10_DATA, for machines without a network."""
import functools
import os
from typing import Any


def complete_cifar10(cifar10: Any) -> None:
    download = cifar10.load_data
    if getattr(download, "from_file", False):
        return

    @functools.wraps(download)
    def load_data() -> Any:
        path = os.environ.get("CIFAR10_DATA")
        if not path:
            return download()
        from . import cifar10_data

        try:
            return cifar10_data.load(cifar10_data.find(path))
        except cifar10_data.DataError as error:
            raise SystemExit("CIFAR10_DATA: %s" % error)

    load_data.from_file = True
    cifar10.load_data = load_data
