"""What two sequences share: how a context follows the one before it.

A sequence is an array of whole numbers: token ids, and a negative number for each
picture. The same picture has the same number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from rounddiag._typing import Array

# Neighbouring elements that must agree before text counts as the same text: template
# tokens of a turn stand beside each other everywhere.
_MIN_SHARED = 4
_FACTOR = np.int64(6364136223846793005)  # of Knuth's MMIX, to hash neighbours


class SharedRange(NamedTuple):
    """Elements that two sequences share, in the same order.

    Attributes
    ----------
    before, after: Where they begin in the first and in the second sequence.
    size: How many they are.
    """

    before: int
    after: int
    size: int


_Sequence: TypeAlias = "Sequence[object] | Array"


def num_common(before: _Sequence, after: _Sequence) -> int:
    """Return how many elements two sequences share from their beginning.

    Examples
    --------
    >>> num_common([5, 6, 7], [5, 6, 8, 7]), num_common([], [5])
    (2, 0)
    """
    size = min(len(before), len(after))
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        differs = before[:size] != after[:size]
        return int(differs.argmax()) if differs.any() else size
    pairs = zip(before, after, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), size)


def appends(before: _Sequence, after: _Sequence) -> bool:
    """Return whether a sequence goes on from another: it begins with all of it.

    Examples
    --------
    >>> appends([5, 6], [5, 6, 7]), appends([5, 6], [5, 7, 6])
    (True, False)
    """
    return num_common(before, after) == len(before)


def shared_ranges(before: Array, after: Array) -> list[SharedRange]:
    """Return what two sequences share, as ranges in ascending order.

    Ranges are found where few neighbours, or a picture, occur once in each sequence.
    Pictures are taken first, then the longest ranges that ascend with them in both.

    Examples
    --------
    >>> before = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9])
    >>> shared_ranges(before, np.array([1, 2, 0, 4, 5, 6, 7, 0, 9]))
    [SharedRange(before=0, after=0, size=2), SharedRange(before=3, after=3, size=4), \
SharedRange(before=8, after=8, size=1)]
    """
    first = num_common(before, after)
    last = num_common(before[first:][::-1], after[first:][::-1])
    stops = len(before) - last, len(after) - last
    shared = [SharedRange(0, 0, first)]
    inner = before[: stops[0]], after[: stops[1]]
    for at, other in _anchors(inner[0][first:], inner[1][first:]).tolist():
        low = shared[-1].before + shared[-1].size, shared[-1].after + shared[-1].size
        if at + first >= low[0] and other + first >= low[1]:
            shared.append(_extended(*inner, (at + first, other + first), low))
    shared.append(SharedRange(*stops, last))
    return [each for each in shared if each.size]


def _extended(
    before: Array, after: Array, place: tuple[int, int], low: tuple[int, int]
) -> SharedRange:
    """Extend equal elements to both sides, no further down than `low`."""
    at, other = place
    back = num_common(before[low[0] : at][::-1], after[low[1] : other][::-1])
    size = num_common(before[at:], after[other:])
    return SharedRange(at - back, other - back, back + size)


def _anchors(before: Array, after: Array) -> Array:
    """Return places of elements that occur once in both, ascending in both.

    A picture is worth more than text, and long text more than short.
    """
    pictures = np.flatnonzero(before < 0), np.flatnonzero(after < 0)
    places = _equal_places(*pictures, before, after)
    weights = np.full(len(places), len(before))
    if min(len(before), len(after)) >= _MIN_SHARED:
        first, second = _neighbours(before), _neighbours(after)
        texts = _equal_places(
            np.arange(len(first)), np.arange(len(second)), first, second
        )
        texts = texts[np.argsort(texts[:, 0])]
        is_first = (np.diff(texts, axis=0, prepend=-2) != 1).any(axis=1)
        starts = np.flatnonzero(is_first)
        sizes = np.diff(np.append(starts, len(texts)))
        places = np.concatenate([places, texts[starts]])
        weights = np.concatenate([weights, sizes])
    return _ascending(places[np.argsort(-weights, kind="stable")])


def _ascending(places: Array) -> Array:
    """Return the pairs that ascend together in both numbers; the first count more.

    Examples
    --------
    >>> _ascending(np.array([[1, 2], [0, 5], [2, 3], [3, 1], [4, 6]])).tolist()
    [[1, 2], [2, 3], [4, 6]]
    """
    chosen: list[tuple[int, int]] = []
    for at, other in places.tolist():
        index = bisect_left(chosen, (at, other))
        is_after = not index or chosen[index - 1][1] < other
        is_before = index == len(chosen) or (
            chosen[index][1] > other and chosen[index][0] > at
        )
        if is_after and is_before:
            chosen.insert(index, (at, other))
    return np.array(chosen, dtype=np.int64).reshape(-1, 2)


def _neighbours(elements: Array) -> Array:
    """Return a number for each element and those after it."""
    hashes = np.zeros(len(elements) - _MIN_SHARED + 1, dtype=np.int64)
    with np.errstate(over="ignore"):
        for step in range(_MIN_SHARED):
            hashes = hashes * _FACTOR + elements[step : step + len(hashes)]
    return hashes


def _equal_places(first: Array, second: Array, before: Array, after: Array) -> Array:
    """Return pairs of places whose values occur once among the first and the second."""
    values, at = _occurring_once(before[first])
    others, places = _occurring_once(after[second])
    _, in_first, in_second = np.intersect1d(
        values, others, assume_unique=True, return_indices=True
    )
    return np.stack([first[at[in_first]], second[places[in_second]]], axis=1)


def _occurring_once(values: Array) -> tuple[Array, Array]:
    known, first, counts = np.unique(values, return_index=True, return_counts=True)
    return known[counts == 1], first[counts == 1]


def ranges_of(index: Array) -> Array:
    """Return ascending numbers as ranges, shape (num_ranges, 2).

    A number that comes again is a range of its own.

    Examples
    --------
    >>> ranges_of(np.array([3, 4, 5, 9, 2, 3, 4])).tolist()
    [[3, 6], [9, 10], [2, 3], [3, 4], [4, 5]]
    """
    is_again = np.ones(len(index), dtype=bool)
    is_again[np.unique(index, return_index=True)[1]] = False
    is_break = (np.diff(index) != 1) | is_again[1:] | is_again[:-1]
    breaks = np.flatnonzero(is_break) + 1
    limits = [0, *breaks.tolist(), len(index)]
    pairs = [(index[a], index[b - 1] + 1) for a, b in pairwise(limits) if a < b]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def index_of(ranges: Array) -> Array:
    """Return the numbers of ranges, one after the other.

    Examples
    --------
    >>> index_of(np.array([[3, 6], [9, 10]])).tolist()
    [3, 4, 5, 9]
    """
    sizes = ranges[:, 1] - ranges[:, 0]
    before = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(ranges[:, 0] - before, sizes)
