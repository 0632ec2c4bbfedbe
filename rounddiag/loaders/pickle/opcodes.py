"""Arguments of pickle opcodes, protocols 0 to 5, read without trusting a length."""

from __future__ import annotations

import io
import pickletools
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rounddiag.loaders.pickle.placeholders import Name, Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from rounddiag.loaders.source import Span, SpanReader


MAX_KEY = 1 << 60  # below, no two integers have the same hash


class BrokenPickleError(Exception):
    """The stream breaks the rules of pickle, or asks for more than a file may have."""


class Stack:
    """Values, marks between them, and the memo."""

    def __init__(self) -> None:
        self._values: list[object] = []
        self._marks: list[int] = []
        self._memo: dict[object, object] = {}

    def push(self, value: object) -> None:
        """Put a value on top."""
        self._values.append(value)

    def push_all(self, values: list[object]) -> None:
        """Put values on top, the last one highest."""
        self._values += values

    def pop(self) -> object:
        """Take the value on top."""
        return self._values.pop()

    def top(self) -> object:
        """Return the value on top."""
        return self._values[-1]

    def is_on_top(self, value: object) -> bool:
        """Whether something is on top, and is this value."""
        return bool(self._values) and self._values[-1] == value

    def mark(self) -> None:
        """Remember this height."""
        self._marks.append(len(self._values))

    def pop_mark(self) -> list[object]:
        """Take everything above the last mark."""
        height = self._marks.pop()
        values = self._values[height:]
        del self._values[height:]
        return values

    def drop(self) -> None:
        """Take one value, or the mark where nothing stands above it."""
        if self._marks and self._marks[-1] == len(self._values):
            self._marks.pop()
        else:
            self.pop()

    def tuple_of(self, size: int) -> None:
        """Make one tuple of the last values."""
        if len(self._values) < size:
            msg = "a tuple of more than the stack holds"
            raise BrokenPickleError(msg)
        self._values[-size:] = [tuple(self._values[-size:])]

    def memoize(self, key: object = None) -> None:
        """Keep the value on top in the memo."""
        self._memo[len(self._memo) if key is None else scalar(key)] = self.top()

    def recall(self, key: object) -> None:
        """Put a value of the memo on top."""
        if key not in self._memo:
            msg = f"nothing in the memo at {key!r}"
            raise BrokenPickleError(msg)
        self.push(self._memo[key])

    def extend(self, values: list[object]) -> None:
        """Add items to the list, set or object on top."""
        target = self.top()
        items = target.items if isinstance(target, Node) else target
        if not isinstance(items, list):
            msg = "items for something that is no list"
            raise BrokenPickleError(msg)
        items.extend(values)

    def update(self, values: list[object]) -> None:
        """Add keys and values, in turn, to the dictionary or object on top."""
        target = self.top()
        entries = target.entries if isinstance(target, Node) else target
        if not isinstance(entries, dict):
            msg = "keys for something that is no dictionary"
            raise BrokenPickleError(msg)
        entries.update(pairs(values))

    def build(self) -> None:
        """Give a state to the object below; data of our own needs none."""
        state, target = self.pop(), self.top()
        if isinstance(target, Node):
            target.state = state
        elif not isinstance(target, dict | list):
            msg = "a state for something that has none"
            raise BrokenPickleError(msg)


def pairs(values: list[object]) -> dict[object, object]:
    """Make a dictionary of keys and values in turn."""
    if len(values) % 2:
        msg = "a key without a value"
        raise BrokenPickleError(msg)
    keys = [scalar(key) for key in values[::2]]
    return dict(zip(keys, values[1::2], strict=True))


def scalar(key: object) -> object:
    """Return a key that is cheap to hash and to compare; refuse any other.

    Tuples as keys can be nested so deep that hashing one ends the process, or share
    parts so that it never ends; integers can be chosen to fall on one hash.
    """
    small = isinstance(key, int) and abs(key) < MAX_KEY
    if small or key is None or isinstance(key, str | float | bytes):
        return key
    msg = f"a dictionary key that is no plain value but a {type(key).__name__}"
    raise BrokenPickleError(msg)


def named(value: object) -> str:
    """Return the name of a global."""
    if isinstance(value, Name):
        return value.name
    msg = f"a call of something that is no name but a {type(value).__name__}"
    raise BrokenPickleError(msg)


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


WINDOW = 9 * 1000  # bytes: pickle divides lists into batches of 1000 numbers
MAX_SHARED = 1 << 19  # token ids are below
_WORTH_IT = 64  # numbers; shorter runs are faster one by one
_LONG_RUN = re.compile(
    rb"(?:K.|M..|J.{4}){%d}|(?:G.{8}){%d}" % (_WORTH_IT, _WORTH_IT), re.DOTALL
)
_FLOAT = np.dtype([("opcode", "u1"), ("value", ">f8")])
# By opcode: how long it and its integer are, 0 where there is none; and which bits of
# the four bytes behind it are the integer's.
_WIDTHS = bytes({"K": 2, "M": 3, "J": 5}.get(chr(code), 0) for code in range(256))
_BITS = np.zeros(256, dtype=np.int32)
_BITS[[ord("K"), ord("M"), ord("J")]] = 0xFF, 0xFFFF, -1


def take_numbers(stream: io.BufferedReader) -> list[Any]:
    r"""Read the numbers that come next, where they are many; else nothing.

    Parameters
    ----------
    stream : BufferedReader
        Stands before an opcode; afterwards behind the numbers that were read.

    Returns
    -------
    list of int or list of float
        Empty where the numbers are few, or no token ids: they are left to be read one
        by one.

    Examples
    --------
    >>> take_numbers(io.BufferedReader(io.BytesIO(b"K\x07" * 64 + b"e")))[:2]
    [7, 7]
    """
    if not _LONG_RUN.match(stream.peek()):
        return []
    data = stream.read(WINDOW)
    values, end = _floats(data) if data.startswith(b"G") else _integers(data)
    stream.seek(end - len(data), io.SEEK_CUR)
    return values


def _floats(data: bytes) -> tuple[list[Any], int]:
    """Return the numbers that data start with, and where they end."""
    whole = len(data) // _FLOAT.itemsize
    numbers = np.frombuffer(data, dtype=_FLOAT, count=whole)
    count = int(np.append(numbers["opcode"] == ord("G"), False).argmin())
    return numbers["value"][:count].tolist(), count * _FLOAT.itemsize


def _integers(data: bytes) -> tuple[list[Any], int]:
    """Return the numbers that data start with, and where they end."""
    starts, end = _starts(data)
    codes = np.frombuffer(data + bytes(4), dtype=np.uint8)
    words = codes[starts[:, None] + np.arange(1, 5)].view("<i4")[:, 0]
    numbers = words & _BITS[codes[starts]]
    if numbers.min() < 0 or numbers.max() >= MAX_SHARED:
        return [], 0
    return _shared().take(numbers).tolist(), end


def _starts(data: bytes) -> tuple[np.ndarray[Any, Any], int]:
    """Return where the integers start, and where the last one ends that is whole."""
    widths = data.translate(_WIDTHS) + bytes(5)
    starts, at = [], 0
    while width := widths[at]:
        starts.append(at)
        at += width
    if at > len(data):
        at = starts.pop()
    return np.array(starts), at


@cache
def _shared() -> np.ndarray[Any, Any]:
    """Return the integers from 0 on: lists that share them take eight bytes an item."""
    return np.arange(MAX_SHARED).astype(object)
