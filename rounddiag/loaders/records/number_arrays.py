"""Lists of numbers as arrays, which need a tenth of the memory."""

from __future__ import annotations

from types import NoneType
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_NUMBERS = {bool, int, float, NoneType}
_INTEGERS = [(1 << bits - 1, np.dtype(f"int{bits}")) for bits in (8, 16, 32, 64)]
_MAX_ROWS = 16  # a list of more lists is no row of tokens


def compact(value: Any) -> Any:  # noqa: ANN401 any value of JSON
    """Return lists of numbers as arrays of the smallest dtype that holds them exactly.

    Examples
    --------
    >>> compact([[1, 2], [0.5, None]])
    [array([1, 2], dtype=int8), array([0.5, nan], dtype=float32)]
    >>> compact(["a", "b"])
    ['a', 'b']
    """
    if not isinstance(value, list):
        return value
    kinds = set(map(type, value))
    if kinds <= _NUMBERS:
        return _array(value, kinds)
    if kinds == {list} and len(value) <= _MAX_ROWS:
        return [compact(row) for row in value]
    return value


def _array(values: list[Any], kinds: set[type]) -> Array | list[Any]:
    """Return numbers as an array, null as NaN; as they are where they do not fit."""
    try:
        if kinds & {float, NoneType}:
            return _smaller(np.array(values, dtype=np.float64))
        if int in kinds:
            return _smallest(np.array(values, dtype=np.int64))
    except OverflowError:
        return values
    return np.array(values, dtype=bool)


def _smaller(wide: Array) -> Array:
    with np.errstate(over="ignore"):
        small = wide.astype(np.float32)
    is_same = (small == wide).all() or np.array_equal(small, wide, equal_nan=True)
    return small if is_same else wide


def _smallest(wide: Array) -> Array:
    low, high = int(wide.min()), int(wide.max())
    fitting = (dtype for end, dtype in _INTEGERS if -end <= low and high < end)
    return wide.astype(next(fitting))
