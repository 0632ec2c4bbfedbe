"""A value a round becomes a value a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Up to this mean length numpy's own repetition is faster than one write a run.
_SHORT = 32


def repeated(values: Array, counts: Array) -> Array:
    """Repeat each value `counts` times, as int32.

    Examples
    --------
    >>> repeated(np.array([4, 7]), np.array([2, 1])).tolist()
    [4, 4, 7]
    """
    narrow = values.astype(np.int32)
    total = int(counts.sum())
    if total < _SHORT * len(counts):
        return np.repeat(narrow, counts)
    out = np.empty(total, dtype=np.int32)
    at = 0
    for value, count in zip(narrow.tolist(), counts.tolist(), strict=True):
        out[at : at + count] = value
        at += count
    return out


def counted(counts: Array) -> Array:
    """Count from 0 within each run, as int32.

    Examples
    --------
    >>> counted(np.array([2, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    total = int(counts.sum())
    if total < _SHORT * len(counts):
        begins = np.cumsum(counts) - counts
        return np.arange(total, dtype=np.int32) - np.repeat(
            begins.astype(np.int32), counts
        )
    steps = np.arange(counts.max(initial=0), dtype=np.int32)
    out = np.empty(total, dtype=np.int32)
    at = 0
    for count in counts.tolist():
        out[at : at + count] = steps[:count]
        at += count
    return out
