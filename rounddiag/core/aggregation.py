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


# In an array of this length, a sorted sample of so many values shows where to look.
_LONG, _SAMPLE = 1 << 14, 1 << 12
_REACH = 3  # standard errors of the rank of a sample's quantile


def quantiles(values: Array, probabilities: Sequence[float]) -> Array:
    """Compute exact quantiles along the last axis, interpolated as numpy does."""
    count = values.shape[-1]
    if values.size == count >= _LONG:
        found = _search_quantiles(values.reshape(-1), probabilities)
        return found.reshape(-1, *values.shape[:-1])
    found = np.full((len(probabilities), *values.shape[:-1]), np.nan)
    rest, skipped = values, 0
    for number, probability in enumerate(probabilities if count else ()):
        place = probability * (count - 1)
        # One place at a time: numpy selects several at once many times slower.
        found[number] = _value_at(rest, place - skipped)
        rest, skipped = rest[..., int(place) - skipped :], int(place)
    return found


def _search_quantiles(values: Array, probabilities: Sequence[float]) -> Array:
    """Search for each quantile among the values between two limits.

    A sample gives the limits; whether the quantile is between them is counted.
    """
    count, sample = len(values), np.sort(values[:: len(values) // _SAMPLE])
    found = np.empty(len(probabilities))
    for number, probability in enumerate(probabilities):
        place = probability * (count - 1)
        low, high = _limits(sample, probability)
        is_above = values >= low
        is_near = is_above & (values <= high)
        num_below = count - np.count_nonzero(is_above)
        if not num_below <= place < num_below + np.count_nonzero(is_near) - 1:
            found[number] = _value_at(values, place)
        elif low == high:
            found[number] = low
        else:
            found[number] = _value_at(values.compress(is_near), place - num_below)
    return found


def _limits(sample: Array, probability: float) -> tuple[float, float]:
    """Return the values of a sorted sample some standard errors around a quantile."""
    last = len(sample) - 1
    place = probability * last
    reach = 1 + _REACH * (last * probability * (1 - probability)) ** 0.5
    low, high = max(int(place - reach), 0), min(int(place + reach) + 1, last)
    return sample[low], sample[high]


def _value_at(values: Array, place: float) -> Array:
    """Return what is at a place of the sorted values, or between two of them."""
    low = int(place)
    values.partition(low)
    below = values[..., low].astype(np.float64)
    above = values[..., low + 1 :].min(axis=-1) if low < place else below
    # The difference of infinity and itself is NaN.
    rise = np.subtract(above, below, out=np.zeros_like(below), where=below < above)
    found: Array = below + rise * (place - low)
    return found
