"""A value a round becomes a value a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Below this mean length one index for all runs is faster than a slice for each.
_SHORT = 32


def is_short(counts: Array) -> bool:
    """Tell whether runs of these lengths are short on average."""
    return bool(counts.sum() < _SHORT * len(counts))


def repeated(values: Array, counts: Array) -> Array:
    """Repeat each value `counts` times, as int32.

    Examples
    --------
    >>> repeated(np.array([4, 7]), np.array([2, 1])).tolist()
    [4, 4, 7]
    """
    narrow = values.astype(np.int32)
    if is_short(counts):
        return np.repeat(narrow, counts)
    out = np.empty(int(counts.sum()), dtype=np.int32)
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
    if is_short(counts):
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
