"""The engine of this process, implemented in Rust. Private to this package.

Tensors are passed as addresses; nothing here knows a framework. Functions that wait release the GIL and check for
Ctrl-C several times per second. Invalid arguments raise ValueError; collective failures raise
horovod.common.exceptions.HorovodInternalError. Texts are Horovod's.
"""

from typing import Any, Optional, Sequence, final

__all__ = [
    "ALLGATHER",
    "ALLREDUCE",
    "ALLTOALL",
    "BROADCAST",
    "REDUCESCATTER",
    "ElasticDriver",
    "NotPartOfJob",
    "Output",
    "add_process_set",
    "after_fork",
    "at_exit",
    "barrier",
    "context_events_obstacle",
    "cross_rank",
    "cross_size",
    "elastic_update",
    "generation",
    "init",
    "is_elastic",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "open_device",
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
    "xla_handlers",
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
    """A result allocated by the engine. Owns the memory: keep it as long as the address is used."""

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
        """Alltoall: number of rows received from each member."""
    @property
    def __array_interface__(self) -> dict[str, object]:
        """For numpy.asarray without a copy; bfloat16 appears as uint16."""
    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """For a result in the memory of a GPU, without a copy; elements appear as integers of their size.
        AttributeError for results in main memory."""

@final
class ElasticDriver:
    """Decides which processes are members of an elastic job; horovodrun does what it decides. Pure: times are seconds since
    it was made, randomness comes from the seed. Events return actions, in order:

    ("start", process, host, slot); ("begin", generation, members), where a member is (process, host, rank, local_rank,
    local_size, cross_rank, cross_size); ("dismiss", process); ("kill", process); ("notify", generation, change), with 1 for
    removed hosts, 2 for added ones, 3 for both; ("report", text); ("finish", None), or the reason of a failure.
    """

    def __new__(
        cls,
        min_np: int,
        max_np: Optional[int],
        elastic_timeout_s: float,
        reset_limit: Optional[int],
        cooldown_range_s: Optional[tuple[float, float]],
        exclude_hosts: bool,
        seed: int,
    ) -> "ElasticDriver": ...
    def on_hosts(self, now_s: float, hosts: Sequence[tuple[str, int]]) -> list[tuple[Any, ...]]: ...
    def on_waiting(self, now_s: float, process: int, after: int) -> list[tuple[Any, ...]]: ...
    def on_exit(self, now_s: float, process: int, success: bool) -> list[tuple[Any, ...]]: ...
    def on_time(self, now_s: float) -> list[tuple[Any, ...]]: ...
    def next_timer(self) -> Optional[float]:
        """When on_time must be called at the latest; None if only events matter."""

class NotPartOfJob(SystemExit):
    """This process is not part of its elastic job any more. Uncaught, it ends the process as a success: its code is 0."""

def init(process_sets: Sequence[Sequence[int]]) -> None:
    """Collective. `process_sets` are the initial sets; their ids start at 1. The second time only sets that do not
    exist yet are registered. In an elastic job the launcher gives this process its rank in the next generation; if a
    member ends meanwhile, in the one after that. NotPartOfJob if there is no rank for it."""

def is_elastic() -> bool:
    """Whether the environment says that this is a process of an elastic job of ours."""

def generation() -> int:
    """In an elastic job: the generation that the last init has connected, from 1; 0 before, and in other jobs."""

def elastic_update(timeout_s: float) -> int:
    """Waits until the launcher announces that the hosts of the current generation change, for at most timeout_s. Returns
    0 for none, 1 if hosts are removed, 2 if some are added, 3 for both; again the same at each call. The members are
    expected to shut down and to init again."""

def shutdown() -> None:
    """Shuts down the engines of all ranks. Does nothing without an engine."""

def at_exit() -> None:
    """Shutdown at interpreter exit. Waiting threads never return, because the interpreter is gone."""

def after_fork() -> None:
    """To be called in a forked child: forgets the parent's engine without closing it or notifying other ranks."""

def is_initialized() -> bool: ...
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def is_homogeneous() -> bool: ...
def add_process_set(ranks: Sequence[int]) -> int:
    """Collective over all ranks. Returns the new id."""

def remove_process_set(process_set: int) -> bool:
    """Collective over all ranks. False if the set cannot be removed."""

def process_set_ranks(process_set: int) -> list[int]:
    """Sorted ranks. ValueError if the set is not registered."""

def process_sets() -> list[tuple[int, list[int]]]:
    """The registered sets by id, with their ranks; the global set is the first."""

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
    stream: Optional[int] = None,
    names: Optional[Sequence[str]] = None,
) -> int:
    """Submits an operation and returns its handle without waiting.

    tensors: (address of the input, address of the output, dtype, shape) of each. The output's address may be the
    input's (in place), or 0 if the engine allocates it (always for allgather, alltoall and reducescatter; an empty
    tensor may have no address, and then gets an empty output). The wire name is `<prefix>.<name>`, or the name alone
    if the prefix is empty; without a name `<prefix>.noname.<count>`, where unnamed operations are counted per
    process set since init or join. Grouped tensors are named `<wire name>_<i>of<n>`. names, one for each tensor, submit
    several operations with one handle; they take the place of name, which is then "". op is one of Horovod's numbers
    (Average 0, Sum 1, Adasum 2, Min 3, Max 4, Product 5). device: -1 for the CPU, else the number of the tensor's
    GPU. stream: the stream of that GPU in which the tensors were computed, if the addresses are in its memory; without
    it they are in main memory, and the ranks only compare device. keep is referenced until the operation has ended and
    the handle is synchronized or dropped. Invalid arguments raise at once and consume no handle.
    """

def poll(handle: int) -> bool:
    """ValueError "Handle N was not created or has been cleared." for an unknown handle."""

def synchronize(handle: int, stream: Optional[int] = None) -> Optional[list[Optional[Output]]]:
    """Waits; the handle is invalid afterwards, also if this raises. Returns one entry per tensor: None if the result is
    in place. Returns None for an unknown handle. Tensors in the memory of a GPU: waits until the operation is submitted
    to the GPU, and makes later work in the stream (by default that of the submission) wait for its result."""

def open_device(ordinal: int) -> Optional[str]:
    """Opens a GPU, so that tensors in its memory can be submitted. Returns why that is impossible, or None."""

def context_events_obstacle() -> Optional[str]:
    """Why the engine cannot order its work with that of all streams of a GPU, as it must for a framework that does not
    tell its stream; None if it can."""

def join() -> int: ...
def barrier(process_set: int = 0) -> None: ...
def tensorflow_symbols() -> list[str]:
    """Functions of TensorFlow's C API that registration needs."""

def register_tensorflow(symbols: dict[str, int]) -> None:
    """Registers Horovod's ops with the TensorFlow that has these functions at these addresses. ValueError if one is
    missing."""

def xla_handlers(major: int, minor: int) -> tuple[int, int]:
    """Addresses of the handlers of operations for XLA on the CPU and on CUDA, by this version of XLA's foreign function
    interface. ValueError for a version that is not supported."""
