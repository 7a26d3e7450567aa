"""The output of several processes on one stream. Whoever starts workers enters here. Never tears a line, never mixes
two processes within one, never changes a byte but for the prefix."""

import io
import os
import re
import threading
import time
from typing import IO, Any, Callable, Dict, Optional

# A carriage return ends a line too, so that progress bars stay alive.
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)")
# A line longer than this is given out in pieces.
_MAX_HELD_BYTES = 64 * 1024
# Streams whose last line has no end yet, by file descriptor (those in memory by identity), with who wrote it.
_unfinished: Dict[int, object] = {}


class Console:
    """A stream that many threads write to. Goes around Python's buffers where it can: a thread that waits for a
    reader who pauses (`horovodrun ... | less`) must not keep the interpreter from ending."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        try:
            stream.flush()
            self._fd: Optional[int] = stream.fileno()
        except (AttributeError, OSError, ValueError, io.UnsupportedOperation):
            self._fd = None  # A notebook's stream, or one in memory.
        self._key = id(stream) if self._fd is None else self._fd

    def write(self, block: bytes, writer: object = None) -> None:
        """Writes a block. Where another writer has left a line without an end, that is ended first."""
        if not block:
            return
        with self._lock:
            if _unfinished.pop(self._key, writer) is not writer:
                block = b"\n" + block
            if block[-1:] not in (b"\n", b"\r"):
                _unfinished[self._key] = writer
            if self._fd is None:
                self._stream.write(block.decode(errors="replace"))
                self._stream.flush()
                return
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(self._fd, rest) :]


class Pipe:
    """Upstream's pipe within a process: one thread writes text or bytes, another reads them. Holds one block; whoever
    writes the next waits until it is read."""

    def __init__(self) -> None:
        self._block: Any = None
        self._changed = threading.Condition()
        self._closed = False

    def write(self, buf: Any) -> None:
        """RuntimeError when the pipe is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._block is None or self._closed)
            if self._closed:
                raise RuntimeError("Pipe is closed")
            self._block = buf
            self._changed.notify_all()

    def read(self, length: int = -1) -> Any:
        """At most `length` of the block, all of it without a length; None when the pipe is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._block is not None or self._closed)
            block = self._block
            if block is None:
                return None
            end = length if 0 < length < len(block) else len(block)
            self._block = block[end:] if end < len(block) else None
            self._changed.notify_all()
            return block[:end]

    def flush(self) -> None:
        """Nothing: what is written can be read."""

    def close(self) -> None:
        """What is in it can still be read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class LineSplitter:
    """Whole lines out of pieces, each with a prefix."""

    def __init__(self, prefix: Callable[[], str]) -> None:
        self._prefix = prefix
        self._held = b""
        self._last = b"\n"

    def push(self, piece: bytes) -> bytes:
        """What can be shown now, perhaps nothing."""
        held = self._held + piece
        # Up to the last end: beyond it the expression would look for one from every byte anew.
        end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1
        out = [self._with_prefix(line.group()) for line in _LINE.finditer(held, 0, end)]
        self._held = held[end:]
        if len(self._held) > _MAX_HELD_BYTES:
            out.append(self._with_prefix(self._held))
            self._held = b""
        return b"".join(out)

    def finish(self) -> bytes:
        """The last line, when it has no end: it is shown without one."""
        rest, self._held = self._held, b""
        return self._with_prefix(rest) if rest else b""

    def _with_prefix(self, piece: bytes) -> bytes:
        # The second half of "\r\n" is no line of its own.
        starts = self._last == b"\n" or (self._last == b"\r" and piece != b"\n")
        self._last = piece[-1:]
        return self._prefix().encode() + piece if starts else piece


def prefix_for(index: Optional[int], name: str, with_timestamp: bool) -> Callable[[], str]:
    """`[<index>]<stdout>:`, with the time before it when asked; nothing without an index."""
    if index is None:
        return lambda: ""
    if with_timestamp:
        return lambda: f"{time.asctime()}[{index}]<{name}>:"
    return lambda: f"[{index}]<{name}>:"


def forward(
    source: IO[bytes], lines: LineSplitter, console: Console, copy: Optional[IO[bytes]], failed: Callable[[], None]
) -> None:
    """Shows what comes from a pipe until it ends, and keeps a copy, byte by byte. Calls `failed` when nobody takes
    the output any more, and goes on reading: the process must not hang in a write."""
    shown = True

    def show(block: bytes) -> None:
        nonlocal shown
        if not block or not shown:
            return
        try:
            console.write(block, lines)
        except (OSError, ValueError, RuntimeError):  # The last: a closed `Pipe`.
            shown = False
            failed()

    with source:
        while True:
            piece = os.read(source.fileno(), 128 * 1024)
            if not piece:
                break
            if copy is not None:
                try:
                    copy.write(piece)
                    copy.flush()
                except OSError as problem:
                    show(f"The copy of this output ends here: {problem}\n".encode())
                    copy = None
            show(lines.push(piece))
        show(lines.finish())
