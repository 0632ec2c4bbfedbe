"""Tokens of some rounds, put end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Up to this mean length gathering by index is faster than slicing run by run.
_SHORT = 32


def take_runs(values: Array, begins: Array, counts: Array) -> Array:
    """Copy `counts[i]` values from `begins[i]` on, for every run `i`.

    Examples
    --------
    >>> take_runs(np.array([5, 6, 7, 8]), np.array([0, 3]), np.array([2, 1])).tolist()
    [5, 6, 8]
    """
    if counts.sum() < _SHORT * len(counts):
        index = np.repeat(begins - (np.cumsum(counts) - counts), counts)
        taken: Array = values[index + np.arange(len(index))]
        return taken
    spans = zip(begins.tolist(), counts.tolist(), strict=True)
    return np.concatenate([values[begin : begin + count] for begin, count in spans])
