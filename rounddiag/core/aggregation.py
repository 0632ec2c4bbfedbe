"""Sums of runs, means, and exact quantiles of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
    return sums / np.where(counts > 0, counts, np.nan)


def run_quantiles(
    values: Array, counts: Array, probabilities: Sequence[float]
) -> Array:
    """Compute exact quantiles of runs of these lengths, interpolated as numpy does.

    Returns shape (num_probabilities, num_runs); NaN where a run is empty.
    """
    quantiles = np.full((len(probabilities), len(counts)), np.nan)
    begins = np.cumsum(counts) - counts
    # Runs of one length are sorted together: there can be very many short ones.
    for size in np.unique(counts[counts > 0]).tolist():
        alike = np.flatnonzero(counts == size)
        first = begins[alike]
        if len(alike) == 1:
            table = np.sort(values[first[0] : first[0] + size])[None]
        else:
            table = np.sort(values[first[:, None] + np.arange(size)], axis=-1)
        for number, probability in enumerate(probabilities):
            place = probability * (size - 1)
            low = int(place)
            below = table[:, low].astype(np.float64)
            above = table[:, low + 1].astype(np.float64) if low < place else below
            # The difference of infinity and itself is NaN.
            rise = np.subtract(
                above, below, out=np.zeros_like(below), where=below < above
            )
            quantiles[number, alike] = below + rise * (place - low)
    return quantiles
