"""Long runs of numbers in a pickle, read at once instead of one by one.

A list of token ids is one opcode a number: `K` and one byte, `M` and two, `J` and four;
a list of log-probabilities is `G` and eight bytes. What is read is the same list.
"""

from __future__ import annotations

import io
import re
from functools import cache
from typing import Any

import numpy as np

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
