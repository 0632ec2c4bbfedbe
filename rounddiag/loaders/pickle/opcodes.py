"""Arguments of pickle opcodes, protocols 0 to 5; every length is checked."""

from __future__ import annotations

import io
import pickletools
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Protocol

import numpy as np

from rounddiag._typing import Array
from rounddiag.loaders.source import Span, SpanReader


class BrokenPickleError(Exception):
    """The stream breaks the rules of pickle, or asks for more than a file may have."""


SHORT = 256  # bytes; longer ones stay in the file
LONG_TEXT = 1 << 16  # bytes; longer text that encodes bytes stays in the file too
MAX_LONG = 1 << 10  # bytes of an integer: printing one takes quadratic time


class PickleInput(Protocol):
    """The state of the unpickler that reading an argument needs."""

    stream: SpanReader
    span: Span

    @property
    def is_encoding(self) -> bool:
        """Whether the next text encodes bytes."""


def _size(pickle: PickleInput, width: int) -> int:
    """Read a length, which must fit into the rest of the stream."""
    size = int.from_bytes(pickle.stream.read(width), "little")
    if size > len(pickle.span) - pickle.stream.tell():
        raise BrokenPickleError(f"a length of {size} bytes, more than are left")
    return size


def _text(pickle: PickleInput, width: int, encoding: str = "utf-8") -> str:
    size = _size(pickle, width)
    return pickle.stream.read(size).decode(encoding, "surrogatepass")


def _text_or_bytes(pickle: PickleInput, width: int) -> str | Span:
    """Read text; leave long text that encodes bytes in the file."""
    if not pickle.is_encoding:
        return _text(pickle, width)
    size = _size(pickle, width)
    if size < LONG_TEXT:
        return pickle.stream.read(size).decode("utf-8")
    return _skip(pickle, size)


def _bytes(pickle: PickleInput, width: int) -> bytes | Span:
    size = _size(pickle, width)
    return pickle.stream.read(size) if size < SHORT else _skip(pickle, size)


def _skip(pickle: PickleInput, size: int) -> Span:
    start = pickle.stream.tell()
    pickle.stream.seek(start + size)
    return pickle.span.part(start, size)


def _long(pickle: PickleInput, width: int) -> int:
    size = _size(pickle, width)
    if size > MAX_LONG:
        raise BrokenPickleError(
            f"an integer of {size} bytes, where at most {MAX_LONG} make sense"
        )
    return int.from_bytes(pickle.stream.read(size), "little", signed=True)


def _integer(pickle: PickleInput, width: int, *, signed: bool = False) -> int:
    """Read an integer. If the stream ends inside it, the next opcode fails."""
    return int.from_bytes(pickle.stream.read(width), "little", signed=signed)


def _line(pickle: PickleInput) -> str:
    line = pickle.stream.readline()
    if not line.endswith(b"\n"):
        raise BrokenPickleError("a name without an end")
    return line[:-1].decode("utf-8")


# By the kind of argument, as `pickletools` calls it.
_READERS: dict[str, Callable[[PickleInput], object]] = {
    "uint1": partial(_integer, width=1),
    "uint2": partial(_integer, width=2),
    "int4": partial(_integer, width=4, signed=True),
    "bytes1": partial(_bytes, width=1),
    "bytes4": partial(_bytes, width=4),
    "bytes8": partial(_bytes, width=8),
    "bytearray8": partial(_bytes, width=8),
    "stringnl_noescape": _line,
    "stringnl_noescape_pair": lambda pickle: f"{_line(pickle)} {_line(pickle)}",
    "string1": partial(_text, width=1, encoding="latin-1"),
    "string4": partial(_text, width=4, encoding="latin-1"),
    "unicodestring1": partial(_text, width=1),
    "unicodestring4": partial(_text_or_bytes, width=4),
    "unicodestring8": partial(_text, width=8),
    "long1": partial(_long, width=1),
    "long4": partial(_long, width=4),
}


def _standard(read: Callable[[SpanReader], object]) -> Callable[[PickleInput], object]:
    return lambda pickle: read(pickle.stream)


# Opcode -> its name in `pickletools`, and the reader of its argument. The readers of
# `pickletools` are used only for eight bytes, or a number on one short line.
OPCODES: dict[bytes, tuple[str, Callable[[PickleInput], object] | None]] = {
    op.code.encode("latin-1"): (
        op.name,
        None if op.arg is None else _READERS.get(op.arg.name, _standard(op.arg.reader)),
    )
    for op in pickletools.opcodes
}


WINDOW = 9 * 1000  # bytes: pickle splits lists into batches of 1000 numbers
MAX_SHARED = 1 << 19  # token ids are smaller
_MIN_RUN = 64  # numbers; shorter runs are faster one by one
_LONG_RUN = re.compile(
    rb"(?:K.|M..|J.{4}){%d}|(?:G.{8}){%d}" % (_MIN_RUN, _MIN_RUN), re.DOTALL
)
_FLOAT = np.dtype([("opcode", "u1"), ("value", ">f8")])
# By opcode: the length of the opcode with its integer, 0 if it has none; and a mask of
# the four bytes after it that belong to the integer.
_WIDTHS = bytes({"K": 2, "M": 3, "J": 5}.get(chr(code), 0) for code in range(256))
_BITS = np.zeros(256, dtype=np.int32)
_BITS[[ord("K"), ord("M"), ord("J")]] = 0xFF, 0xFFFF, -1


def take_numbers(stream: io.BufferedReader) -> list[Any]:
    r"""Read a long run of numbers at once."""
    if not _LONG_RUN.match(stream.peek()):
        return []
    data = stream.read(WINDOW)
    values, end = _floats(data) if data.startswith(b"G") else _integers(data)
    stream.seek(end - len(data), io.SEEK_CUR)
    return values


def _floats(data: bytes) -> tuple[list[Any], int]:
    whole = len(data) // _FLOAT.itemsize
    numbers = np.frombuffer(data, dtype=_FLOAT, count=whole)
    count = int(np.append(numbers["opcode"] == ord("G"), False).argmin())
    return numbers["value"][:count].tolist(), count * _FLOAT.itemsize


def _integers(data: bytes) -> tuple[list[Any], int]:
    starts, end = _starts(data)
    codes = np.frombuffer(data + bytes(4), dtype=np.uint8)
    words = codes[starts[:, None] + np.arange(1, 5)].view("<i4")[:, 0]
    numbers = words & _BITS[codes[starts]]
    if numbers.min() < 0 or numbers.max() >= MAX_SHARED:
        return [], 0
    return _shared_integers().take(numbers).tolist(), end


def _starts(data: bytes) -> tuple[Array, int]:
    """Return where the integers start, and where the last complete one ends."""
    widths = data.translate(_WIDTHS) + bytes(5)
    starts, at = [], 0
    while width := widths[at]:
        starts.append(at)
        at += width
    if at > len(data):
        at = starts.pop()
    return np.array(starts), at


@cache
def _shared_integers() -> Array:
    """Return the integers from 0 on; a list of shared integers takes 8 bytes each."""
    return np.arange(MAX_SHARED).astype(object)
