"""Codes for many values: bins of about as many values each, and small whole numbers."""

from __future__ import annotations

import numpy as np

from rounddiag._typing import Array

_BINS = 24  # of probability, with equally many tokens each
_MOST_SORTED = 50_000  # values that give the edges of bins
# Blocks of values that stay in the cache while they are compared with every edge.
_BLOCK = 16_384
# Codes up to this many times the number of values are looked up in a table.
_MOST_CODES = 4


def quantile_edges(values: Array, num: int) -> Array:
    """Return the edges between `num` bins of about as many values each.

    Examples
    --------
    >>> quantile_edges(np.array([3.0, 1.0, 2.0, 4.0]), 2)
    array([2.5])
    """
    # Sorted values are faster to partition at many places.
    inner = np.linspace(0, 1, num + 1)[1:-1]
    edges: Array = np.unique(np.quantile(np.sort(values), inner))
    return edges[~np.isnan(edges)]


def bins(edges: Array, values: Array) -> Array:
    """Return how many edges are below each value, as `np.searchsorted` does.

    For few edges, comparisons by block are several times faster. The codes are uint8,
    which sort fast.

    Examples
    --------
    >>> bins(np.array([0.0, 1.0]), np.array([-1.0, 0.0, 0.5, 2.0]))
    array([0, 0, 1, 2], dtype=uint8)
    """
    codes = np.full(len(values), len(edges), dtype=np.uint8)
    for begin in range(0, len(values), _BLOCK):
        part, code = values[begin : begin + _BLOCK], codes[begin : begin + _BLOCK]
        for edge in edges:
            code -= (part <= edge).view(np.uint8)
    return codes


def codes_like(by: Array, values: Array) -> tuple[Array, int]:
    """Return the bin of each value, and their number: with about as many of `by` each.

    Examples
    --------
    >>> codes_like(np.array([-2.0, -1.0]), np.array([-3.0, 0.0]))
    (array([ 0, 23], dtype=uint8), 24)
    """
    edges = _edges(by)
    return bins(edges, values), len(edges) + 1


def _edges(values: Array) -> Array:
    return quantile_edges(values[:: max(1, len(values) // _MOST_SORTED)], _BINS)


def mean_by_bin(by: Array, values: Array, at: Array) -> Array:
    """Return for each entry of `at` the mean of the values whose `by` is near it.

    Examples
    --------
    >>> by = np.array([-2.0, -2.0, -1.0, -1.0])
    >>> mean_by_bin(by, np.array([1.0, 3.0, 5.0, 7.0]), np.array([-2.0, -1.0]))
    array([2., 6.])
    """
    edges = _edges(by)
    code, num = bins(edges, by), len(edges) + 1
    count = np.bincount(code, minlength=num)
    total = np.bincount(code, weights=values, minlength=num)
    overall = values.mean() if len(values) else 0.0
    mean = np.where(count > 0, total / np.maximum(count, 1), overall)
    return mean[code if at is by else bins(edges, at)]


def group_by_bin(codes: Array, num: int) -> list[Array]:
    """Return the indices of the values of each bin, rising."""
    stops = np.cumsum(np.bincount(codes, minlength=num))
    return np.split(np.argsort(codes, kind="stable"), stops[:-1])


def distinct(values: Array) -> tuple[Array, Array]:
    """Return the distinct whole numbers, sorted, and which of them each value is.

    Examples
    --------
    >>> distinct(np.array([7, 3, 7]))
    (array([3, 7]), array([1, 0, 1]))
    """
    highest = int(values.max(initial=0))
    is_small = highest < _MOST_CODES * len(values) + _BLOCK
    if values.dtype.kind not in "iu" or not is_small or values.min(initial=0) < 0:
        known, codes = np.unique(values, return_inverse=True)
        return known, codes
    known = np.flatnonzero(np.bincount(values))
    table = np.zeros(highest + 1, dtype=np.int64)
    table[known] = np.arange(len(known))
    return known, table[values]
