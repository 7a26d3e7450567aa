"""CIFAR-10 from a file, without the network.

Both trainings here come in, and so does `corro run --compat keras-2018`. Reads the archives as their authors publish them,
or a directory with their batch files, and checks every batch before it believes a byte of it. Must never fetch anything,
and never unpickle what was not checked.
"""
import gzip
import hashlib
import os
import pickle
import shutil
import subprocess
import tarfile
from typing import Dict, Iterator, List, Optional, Tuple

import numpy as np

Arrays = Tuple[Tuple[np.ndarray, np.ndarray], Tuple[np.ndarray, np.ndarray]]

TRAIN = ["data_batch_%d" % number for number in range(1, 6)]
TEST = ["test_batch"]

# Of the batch files in cifar-10-binary.tar.gz.
BINARY_SHA256 = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
# Of those in cifar-10-python.tar.gz, as their authors' page lists the archive: by MD5.
PYTHON_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}

NAMES = ["cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", "cifar-10-batches-bin", "cifar-10-batches-py", "cifar10"]
WHERE = (
    "CIFAR-10 is published by its authors at https://www.cs.toronto.edu/~kriz/cifar.html: take "
    "cifar-10-binary.tar.gz (or cifar-10-python.tar.gz) from there and give its path"
)


class DataError(Exception):
    """The data set is not there, or is not what its authors published."""


def find(named: Optional[str], *places: Optional[str]) -> str:
    """The data set that was named, or the first that lies in one of the places under a name of its authors."""
    if named:
        if not os.path.exists(named):
            raise DataError("there is no %s. %s" % (named, WHERE))
        return named
    for place in filter(None, places):
        for name in NAMES:
            if os.path.exists(os.path.join(place, name)):
                return os.path.join(place, name)
    looked = ", ".join(place for place in places if place) or "no directory"
    raise DataError("CIFAR-10 is not there (looked for %s in %s). %s" % (NAMES[0], looked, WHERE))


def load(path: str) -> Arrays:
    """`(x_train, y_train), (x_test, y_test)` as Keras gives them: images of 32x32x3 bytes, labels as a column.

    An .npz file with arrays of these names is taken as it is: it is the user's own data.
    """
    if path.endswith(".npz"):
        with np.load(path) as arrays:
            return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])
    batches = dict(_batches(path))
    missing = [name for name in TRAIN + TEST if name not in batches]
    if missing:
        raise DataError("%s has no %s. %s" % (path, ", ".join(missing), WHERE))
    return _joined([batches[name] for name in TRAIN]), _joined([batches[name] for name in TEST])


def _joined(batches: List[Tuple[np.ndarray, np.ndarray]]) -> Tuple[np.ndarray, np.ndarray]:
    images = np.concatenate([images for images, _ in batches])
    labels = np.concatenate([labels for _, labels in batches])
    return np.ascontiguousarray(images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels.reshape(-1, 1)


def _batches(path: str) -> Iterator[Tuple[str, Tuple[np.ndarray, np.ndarray]]]:
    for name, content in _files(path):
        if name.endswith(".bin"):
            name = name[: -len(".bin")]
            _check(path, name, hashlib.sha256(content).hexdigest(), BINARY_SHA256)
            records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
            yield name, (records[:, 1:], records[:, 0])
        else:
            _check(path, name, hashlib.md5(content).hexdigest(), PYTHON_MD5)
            batch: Dict[bytes, object] = pickle.loads(content, encoding="bytes")
            yield name, (np.asarray(batch[b"data"], np.uint8), np.asarray(batch[b"labels"], np.uint8))


def _check(path: str, name: str, digest: str, known: Dict[str, str]) -> None:
    if digest != known[name]:
        raise DataError("%s in %s is not the file that was published: it is damaged. %s" % (name, path, WHERE))


def _files(path: str) -> Iterator[Tuple[str, bytes]]:
    """Names, without directories, and contents of all batch files there."""
    wanted = set(TRAIN + TEST)
    if os.path.isdir(path):
        for entry in sorted(os.listdir(path)):
            name = entry[: -len(".zst")] if entry.endswith(".zst") else entry
            if (name[: -len(".bin")] if name.endswith(".bin") else name) in wanted:
                yield name, _content(os.path.join(path, entry))
        return
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = os.path.basename(member.name)
                if member.isfile() and (name[: -len(".bin")] if name.endswith(".bin") else name) in wanted:
                    yield name, archive.extractfile(member).read()
    except (tarfile.TarError, gzip.BadGzipFile, EOFError) as error:
        raise DataError("%s cannot be unpacked: %s. %s" % (path, error, WHERE)) from error


def _content(path: str) -> bytes:
    if not path.endswith(".zst"):
        with open(path, "rb") as file:
            return file.read()
    if shutil.which("zstd") is None:
        raise DataError("to read %s, the program zstd is needed: install it, or unpack the file" % path)
    return subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout
