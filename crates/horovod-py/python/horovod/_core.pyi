"""The engine of this process, from Rust. Private: only the files of this package use it.

Tensors cross the border as addresses: nothing here knows a framework. Everything that waits releases the GIL and looks for Ctrl-C several
times a second. Errors of arguments are ValueError; what the ranks together could not do is
horovod.common.exceptions.HorovodInternalError. Texts are Horovod's.
"""

from typing import Optional, Sequence, final

__all__ = [
    "ALLGATHER",
    "ALLREDUCE",
    "ALLTOALL",
    "BROADCAST",
    "REDUCESCATTER",
    "Output",
    "add_process_set",
    "after_fork",
    "at_exit",
    "barrier",
    "cross_rank",
    "cross_size",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "poll",
    "process_set_ranks",
    "process_sets",
    "rank",
    "register_tensorflow",
    "remove_process_set",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "submit",
    "synchronize",
    "tensorflow_symbols",
]

# Kinds of operations.
ALLREDUCE: int
ALLGATHER: int
BROADCAST: int
ALLTOALL: int
REDUCESCATTER: int

# Dtypes: UINT8 0, INT8 1, UINT16 2, INT16 3, INT32 4, INT64 5, FLOAT16 6, FLOAT32 7, FLOAT64 8, BOOL 9, BFLOAT16 10.

@final
class Output:
    """A result that the engine made room for. Owns the memory: keep it as long as the address is used."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> int: ...
    @property
    def received(self) -> tuple[int, ...]:
        """Alltoall: rows that came from each member."""
    @property
    def __array_interface__(self) -> dict[str, object]:
        """For numpy.asarray without a copy; bfloat16 shows as uint16."""

def init(process_sets: Sequence[Sequence[int]]) -> None:
    """Collective. Process sets are those to begin with; their ids count from 1. The second time only sets that are not there yet are
    registered, and nothing else is done."""

def shutdown() -> None:
    """Of all ranks' engines. Does nothing without one."""

def at_exit() -> None:
    """At the interpreter's exit: as shutdown. Threads that wait never come back, because there is no Python to come back to."""

def after_fork() -> None:
    """In a forked child: the engine is the parent's. Nothing is closed or told to anybody."""

def is_initialized() -> bool: ...
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def is_homogeneous() -> bool: ...
def add_process_set(ranks: Sequence[int]) -> int:
    """Collective over all ranks. The new id."""

def remove_process_set(process_set: int) -> bool:
    """Collective over all ranks. False for one that cannot be removed."""

def process_set_ranks(process_set: int) -> list[int]:
    """Sorted. ValueError for one that is not registered."""

def process_sets() -> list[tuple[int, list[int]]]:
    """Those registered now, by id, with their ranks; the global one is the first."""

def start_timeline(path: str, mark_cycles: bool) -> None: ...
def stop_timeline() -> None: ...
def submit(
    kind: int,
    prefix: str,
    name: Optional[str],
    tensors: Sequence[tuple[int, int, int, tuple[int, ...]]],
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    splits: Optional[Sequence[int]] = None,
    process_set: int = 0,
    grouped: bool = False,
    device: int = -1,
    keep: object = None,
) -> int:
    """Asks for an operation and waits for nothing: a handle.

    tensors: (address of the input, address of the output, dtype, shape) of each. The output's address may be the input's (in place), or 0
    when the engine is to make room (always for allgather, alltoall and reducescatter; an empty tensor may have no
    address, and then gets an empty output). The wire name is `<prefix>.<name>`, or the name
    alone when the prefix is empty; without a name `<prefix>.noname.<count>`, where what has no
    name is counted in each process set from init, and from join. When grouped, tensors are `<wire name>_<i>of<n>`. op is one
    of Horovod's numbers (Average 0, Sum 1, Adasum 2, Min 3, Max 4, Product 5). device: -1 for the CPU, else the number of the GPU where
    the tensor comes from (only compared between ranks; addresses are always in main memory). keep is held until the operation has ended
    and the handle is synchronized or dropped. Wrong arguments raise at once, and take no handle's number.
    """

def poll(handle: int) -> bool:
    """ValueError "Handle N was not created or has been cleared." for an unknown one."""

def synchronize(handle: int) -> Optional[list[Optional[Output]]]:
    """Waits; the handle is gone afterwards, also when this raises. One entry for each tensor: None where the result is in its place. None
    for a handle that is not known."""

def join() -> int: ...
def barrier(process_set: int = 0) -> None: ...
def tensorflow_symbols() -> list[str]:
    """Functions of TensorFlow's C API that registration needs."""

def register_tensorflow(symbols: dict[str, int]) -> None:
    """Registers Horovod's operations with the TensorFlow that has these functions at these addresses. ValueError when one is missing."""
