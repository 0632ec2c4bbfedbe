"""Arguments of pickle opcodes, protocols 0 to 5, read without trusting a length."""

from __future__ import annotations

import pickletools
from typing import TYPE_CHECKING, Protocol

from rounddiag.loaders.pickles.stack import BrokenPickleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rounddiag.loaders.source import Span, SpanReader

SHORT = 256  # longer bytes stay in the file
LONG_TEXT = 1 << 16  # longer text that stands for bytes stays there too
MAX_TEXT = 1 << 30  # bytes of text in one pickle
MAX_LONG = 1 << 10  # bytes of one integer


class Stream(Protocol):
    """What an argument is read from."""

    stream: SpanReader
    span: Span
    text_left: int

    @property
    def is_encoding(self) -> bool:
        """Whether text that comes next stands for bytes."""


def _sized(at: Stream, width: int, most: int) -> int:
    """Read a length that must fit in what is left of the stream."""
    size = int.from_bytes(at.stream.read(width), "little")
    if size > len(at.span) - at.stream.tell():
        msg = f"a length of {size} bytes, more than are left"
        raise BrokenPickleError(msg)
    if size > most:
        msg = f"{size} bytes where at most {most} make sense"
        raise BrokenPickleError(msg)
    return size


def _text(at: Stream, width: int, encoding: str = "utf-8") -> str:
    size = _sized(at, width, at.text_left)
    at.text_left -= size
    return at.stream.read(size).decode(encoding, "surrogatepass")


def _text_or_bytes(at: Stream, width: int) -> str | Span:
    """Read text; of long text that stands for bytes remember the place."""
    if not at.is_encoding:
        return _text(at, width)
    size = _sized(at, width, 1 << 62)
    if size < LONG_TEXT:
        return at.stream.read(size).decode("utf-8")
    return _step_over(at, size)


def _bytes(at: Stream, width: int) -> bytes | Span:
    """Read short bytes; of long ones remember the place."""
    size = _sized(at, width, 1 << 62)
    return at.stream.read(size) if size < SHORT else _step_over(at, size)


def _step_over(at: Stream, size: int) -> Span:
    start = at.stream.tell()
    at.stream.seek(start + size)
    return at.span.part(start, size)


def _long(at: Stream, width: int) -> int:
    size = _sized(at, width, MAX_LONG)
    return int.from_bytes(at.stream.read(size), "little", signed=True)


def _number(at: Stream, width: int, *, signed: bool = False) -> int:
    """Read a number; at the end of the stream, the next opcode will be missing."""
    return int.from_bytes(at.stream.read(width), "little", signed=signed)


def _line(at: Stream) -> str:
    line = at.stream.readline()
    if not line.endswith(b"\n"):
        msg = "a name without an end"
        raise BrokenPickleError(msg)
    return line[:-1].decode("utf-8")


_OURS: dict[str, Callable[[Stream], object]] = {
    "uint1": lambda at: _number(at, 1),
    "uint2": lambda at: _number(at, 2),
    "int4": lambda at: _number(at, 4, signed=True),
    "bytes1": lambda at: _bytes(at, 1),
    "bytes4": lambda at: _bytes(at, 4),
    "bytes8": lambda at: _bytes(at, 8),
    "bytearray8": lambda at: _bytes(at, 8),
    "stringnl_noescape": _line,
    "stringnl_noescape_pair": lambda at: f"{_line(at)} {_line(at)}",
    "string1": lambda at: _text(at, 1, "latin-1"),
    "string4": lambda at: _text(at, 4, "latin-1"),
    "unicodestring1": lambda at: _text(at, 1),
    "unicodestring4": lambda at: _text_or_bytes(at, 4),
    "unicodestring8": lambda at: _text(at, 8),
    "long1": lambda at: _long(at, 1),
    "long4": lambda at: _long(at, 4),
}


def _theirs(read: Callable[[SpanReader], object]) -> Callable[[Stream], object]:
    return lambda at: read(at.stream)


# Opcode -> its name in `pickletools`, and how its argument is read. The readers of
# `pickletools` that are left read eight bytes, or a number on one short line.
OPCODES: dict[bytes, tuple[str, Callable[[Stream], object] | None]] = {
    op.code.encode("latin-1"): (
        op.name,
        None if op.arg is None else _OURS.get(op.arg.name) or _theirs(op.arg.reader),
    )
    for op in pickletools.opcodes
}
