"""Which environment variables are forwarded to workers, and how a process finds its rank. Never changes the
environment."""

import os
import re
from typing import Mapping, Tuple

LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]

# Not forwarded: the launcher's secret, which is sent in another way; the devices of this host; shell functions and the
# shell's previous directory.
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD", "CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"}

_IGNORED = re.compile("|".join(f"(?:{regex})" for regex in sorted(IGNORE_REGEXES)))
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def is_exportable(variable: str) -> bool:
    """Whether a variable is forwarded to other hosts. Names that a shell cannot set are not."""
    return not _IGNORED.fullmatch(variable) and _NAME.fullmatch(variable) is not None


def get_env_rank_and_size(environ: Mapping[str, str] = os.environ) -> Tuple[int, int]:
    """Rank and size from Horovod's, Open MPI's or a PMI launcher's variables, else (0, 1)."""
    pairs = [
        ("HOROVOD_RANK", "HOROVOD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ]
    for rank_name, size_name in pairs:
        rank, size = environ.get(rank_name), environ.get(size_name)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(
                f"Could not determine process rank and size: only one of {rank_name} and {size_name} found in"
                " environment. Set both, or neither."
            )
    return 0, 1
