"""Merges the output of several processes into one stream. Lines are never split or mixed, and bytes are unchanged
except for the prefix."""

import io
import os
import re
import threading
import time
from typing import IO, Any, Callable, Dict, Optional

# A carriage return ends a line, too, so that progress bars keep updating.
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)")
# A longer line is written in pieces.
_MAX_HELD_BYTES = 64 * 1024
# Writers of streams whose last line is unterminated, by file descriptor (in-memory streams by identity).
_unfinished: Dict[int, object] = {}


class Console:
    """A stream that many threads write to. Bypasses Python's buffers if possible: a thread blocked by a paused reader
    (`horovodrun ... | less`) must not keep the interpreter from exiting."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        try:
            stream.flush()
            self._fd: Optional[int] = stream.fileno()
        except (AttributeError, OSError, ValueError, io.UnsupportedOperation):
            self._fd = None  # A notebook's or an in-memory stream.
        self._key = id(stream) if self._fd is None else self._fd

    def write(self, block: bytes, writer: object = None) -> None:
        """Writes a block. Terminates the unfinished line of another writer first."""
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
    """Upstream's pipe within a process: one thread writes text or bytes, another reads them. Holds one block; writing
    the next one waits until it is read."""

    def __init__(self) -> None:
        self._block: Any = None
        self._changed = threading.Condition()
        self._closed = False

    def write(self, buf: Any) -> None:
        """RuntimeError if the pipe is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._block is None or self._closed)
            if self._closed:
                raise RuntimeError("Pipe is closed")
            self._block = buf
            self._changed.notify_all()

    def read(self, length: int = -1) -> Any:
        """At most `length` of the block, all of it without a length; None if the pipe is closed and empty."""
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
        """Does nothing: data can be read as soon as it is written."""

    def close(self) -> None:
        """Closes the pipe; its contents can still be read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class LineSplitter:
    """Assembles complete lines from pieces, each with a prefix."""

    def __init__(self, prefix: Callable[[], str]) -> None:
        self._prefix = prefix
        self._held = b""
        self._last = b"\n"

    def push(self, piece: bytes) -> bytes:
        """Adds a piece and returns what can be written now, possibly nothing."""
        held = self._held + piece
        # Only up to the last line end: the expression would otherwise search from every byte after it.
        end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1
        out = [self._with_prefix(line.group()) for line in _LINE.finditer(held, 0, end)]
        self._held = held[end:]
        if len(self._held) > _MAX_HELD_BYTES:
            out.append(self._with_prefix(self._held))
            self._held = b""
        return b"".join(out)

    def finish(self) -> bytes:
        """The last, unterminated line."""
        rest, self._held = self._held, b""
        return self._with_prefix(rest) if rest else b""

    def _with_prefix(self, piece: bytes) -> bytes:
        # The second half of "\r\n" is not a line of its own.
        starts = self._last == b"\n" or (self._last == b"\r" and piece != b"\n")
        self._last = piece[-1:]
        return self._prefix().encode() + piece if starts else piece


def prefix_for(index: Optional[int], name: str, with_timestamp: bool) -> Callable[[], str]:
    """`[<index>]<stdout>:`, optionally with the time before it; empty without an index."""
    if index is None:
        return lambda: ""
    if with_timestamp:
        return lambda: f"{time.asctime()}[{index}]<{name}>:"
    return lambda: f"[{index}]<{name}>:"


def forward(
    source: IO[bytes], lines: LineSplitter, console: Console, copy: Optional[IO[bytes]], failed: Callable[[], None]
) -> None:
    """Forwards a pipe until it ends, and keeps a copy, byte by byte. If the output cannot be written any more, calls
    `failed` and continues reading, so that the process does not block in a write."""
    shown = True

    def show(block: bytes) -> None:
        nonlocal shown
        if not block or not shown:
            return
        try:
            console.write(block, lines)
        except (OSError, ValueError, RuntimeError):  # RuntimeError: a closed `Pipe`.
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
