"""Sums of runs, means, and exact quantiles of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag._typing import Array


def run_sums(values: Array, counts: Array) -> Array:
    """Sum runs of these lengths, which can be 0.

    Examples
    --------
    >>> run_sums(np.array([1.0, 2.0, 4.0]), np.array([2, 0, 1]))
    array([3., 0., 4.])
    """
    sums, some = np.zeros(len(counts)), counts > 0
    begins = (np.cumsum(counts) - counts)[some]
    sums[some] = np.add.reduceat(values, begins, dtype=np.float64)
    return sums


def means_of_sums(sums: Array, counts: Array) -> Array:
    """Divide sums by counts; NaN where a count is 0.

    Examples
    --------
    >>> means_of_sums(np.array([1.0, 0.0]), np.array([4, 0]))
    array([0.25,  nan])
    """
    means: Array = sums / np.where(counts > 0, counts, np.nan)
    return means


def quantiles(values: Array, probabilities: Sequence[float]) -> Array:
    """Compute exact quantiles along the last axis, interpolated as numpy does.

    Parameters
    ----------
    values : ndarray of float, shape (..., n)
        Left partly ordered.
    probabilities : sequence of float, ascending

    Returns
    -------
    ndarray of float64, shape (len(probabilities), ...)
        NaN where there are no values.

    Examples
    --------
    >>> import numpy as np
    >>> quantiles(np.array([4.0, 1.0, 3.0, 2.0]), [0.5, 0.9])
    array([2.5, 3.7])
    """
    count = values.shape[-1]
    found = np.full((len(probabilities), *values.shape[:-1]), np.nan)
    rest, skipped = values, 0
    for number, probability in enumerate(probabilities if count else ()):
        place = probability * (count - 1)
        low = int(place)
        # One place at a time: numpy selects several at once many times slower.
        rest.partition(low - skipped)
        rest, skipped = rest[..., low - skipped :], low
        below = rest[..., 0].astype(np.float64)
        above = rest[..., 1:].min(axis=-1) if low < place else below
        # The difference of infinity and itself is NaN.
        rise = np.subtract(above, below, out=np.zeros_like(below), where=below < above)
        found[number] = below + rise * (place - low)
    return found
