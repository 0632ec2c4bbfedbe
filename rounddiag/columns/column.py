"""`Column`: a named value per sample, round or token, of which some are unknown."""

from __future__ import annotations

import math
import re
import reprlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import FrameError
from rounddiag.wording import encodable

Scope: TypeAlias = Literal["sample", "round", "token"]
# A `name` is a number by which nothing is ordered, such as a rank.
Kind: TypeAlias = Literal["number", "name", "text", "flag", "time"]
# Reads one plain value per row; None, NaN and NaT are unknown, and only Column says so.
ColumnSource: TypeAlias = Callable[[], Array]

_NAMES = re.compile(r"rank|replica|worker|node|gpu|host|shard|micro|pack|\bid\b|_id$")
_KINDS: dict[str, Kind] = {
    **dict.fromkeys("iuf", "number"),
    **dict.fromkeys("mM", "time"),
    "b": "flag",
}
_EXACT = 1 << 53  # every integer up to here is exact in float64
_MAX_TEXT = 200  # characters of a value that is neither a number nor a text
MAX_INTEGER_BITS = 4096  # Python writes no more than 4,300 digits


@dataclass(frozen=True, eq=False)
class Column:
    """A named value per sample, round or token, of which some are unknown.

    Attributes
    ----------
    scope: What a row is.
    source: Reads the column when it is first asked for.
    kind: Numbers and times have an order.

    Examples
    --------
    >>> version = Column.of("version", "round", np.array([7.0, np.nan, 5.0, 7.0]))
    >>> version.is_known()
    array([ True, False,  True,  True])
    >>> version.values()
    array([7., 5., 7.])
    >>> version.codes()
    (array([ 1, -1,  0,  1]), array([5., 7.]))
    """

    name: str
    scope: Scope
    source: ColumnSource
    kind: Kind

    @classmethod
    def of(cls, name: str, scope: Scope, values: Array) -> Column:
        """Make a column of an array of any dtype, which is made plain when read."""
        return cls(name, scope, lambda: plain_array(values), kind_of(name, values))

    @cached_property
    def filled(self) -> Array:
        """One value per row for a frame: NaN, NaT or None where it is unknown."""
        return self.source()

    @cached_property
    def _known(self) -> Array:
        filled = self.filled
        match filled.dtype.kind:
            case "f":
                return ~np.isnan(filled)
            case "m" | "M":
                return ~np.isnat(filled)
            case "O":
                return np.array([value is not None for value in filled], bool)
        return np.ones(len(filled), dtype=bool)

    def is_known(self, rows: Array | None = None) -> Array:
        """Mark the rows, by default all, whose value is known."""
        return self._known if rows is None else self._known[rows]

    def values(self, rows: Array | None = None) -> Array:
        """Return the known values in order, or those of `rows`.

        Raises
        ------
        FrameError
            If the value of one of `rows` is unknown.
        """
        if rows is None:
            return self.filled[self._known]
        unknown = np.count_nonzero(~self._known[rows])
        if unknown:
            raise FrameError.build(
                key=self.name,
                expected="rows whose value is known",
                found=f"{unknown} of {len(self._known[rows])} without one",
                advice="Select rows by `is_known` first.",
            )
        return self.filled[rows]

    def codes(self) -> tuple[Array, Array]:
        """Return the index of each row's value, -1 where it is unknown, and the values.

        Values are sorted and distinct; those that are no numbers are texts.
        """
        return self._codes

    @cached_property
    def _codes(self) -> tuple[Array, Array]:
        known = self.values()
        if known.dtype.kind == "O":
            known = np.array([encodable(str(value)) for value in known], dtype=object)
        values, index = _distinct(known)
        codes = np.full(len(self.filled), -1)
        codes[self._known] = index
        return codes, values


def _distinct(known: Array) -> tuple[Array, Array]:
    if known.dtype.kind in "iu" and len(known):
        low, high = int(known.min()), int(known.max())
        if high - low < len(known):  # counted, not sorted: 40 times as fast
            first = np.uint64(low % 2**64)  # of unsigned numbers, which wrap around
            at = (known.astype(np.uint64) - first).astype(np.int64)
            is_there = np.zeros(high - low + 1, dtype=bool)
            is_there[at] = True
            values = np.flatnonzero(is_there).astype(np.uint64) + first
            return values.astype(known.dtype), (np.cumsum(is_there) - 1)[at]
    return np.unique(known, return_inverse=True)


def kind_of(name: str, values: Array) -> Kind:
    """Return the kind of a column from its name and its dtype.

    Examples
    --------
    >>> kind_of("dp_rank", np.arange(4)), kind_of("reward", np.zeros(4))
    ('name', 'number')
    """
    kind = _KINDS.get(values.dtype.kind, "text") if values.ndim == 1 else "text"
    return "name" if kind == "number" and is_identifier(name) else kind


def is_identifier(name: str) -> bool:
    """Return whether a column of this name says which worker, rank or pack it was."""
    return _NAMES.search(name) is not None


def plain_array(values: Array) -> Array:
    """Convert a column of a file for frames and figures: one plain value per row.

    Numbers of half or extended precision and of another byte order are converted.
    Lists, dictionaries, rows of several dimensions and other objects become text.

    Examples
    --------
    >>> plain_array(np.array([1, 2], dtype=">i2")).dtype.isnative
    True
    >>> plain_array(np.array([[1, 2], [3, 4]]))
    array(['[1, 2]', '[3, 4]'], dtype=object)
    """
    if isinstance(values, np.ma.MaskedArray):
        axes = tuple(range(1, values.ndim))
        rows = np.flatnonzero(~np.ma.getmaskarray(values).any(axis=axes))
        return scatter_with_missing(plain_array(values.data[rows]), rows, len(values))
    kind, size = values.dtype.kind, values.dtype.itemsize
    if values.ndim == 1 and kind == "f":
        return values.astype("f4" if size <= 4 else "f8", copy=False)  # noqa: PLR2004 bytes
    if values.ndim == 1 and kind in "biumM":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    items = values.tolist()
    plain = np.empty(len(values), dtype=object)
    plain[:] = [_plain_value(value) for value in items]
    return values if kind == "U" and plain.tolist() == items else plain


def _plain_value(value: object) -> object:
    """Return a value of Python that says the same; None if it is unknown."""
    if type(value) is str:  # most are
        return encodable(value)
    value = python_value(value)
    if is_unknown(value):
        return None
    if isinstance(value, str):
        return encodable(str(value))
    is_short = isinstance(value, int) and value.bit_length() <= MAX_INTEGER_BITS
    if is_short or isinstance(value, float | date | timedelta):
        return value
    try:
        text = reprlib.repr(value)  # bounded in depth and length
    except ValueError:  # an integer of more digits than Python writes
        text = f"{type(value).__name__} of very many digits"
    return encodable(text)[:_MAX_TEXT]


def python_value(value: Any) -> Any:  # noqa: ANN401 anything
    """Return a scalar of numpy or torch, or any real number, as a value of Python.

    Examples
    --------
    >>> python_value(np.int64(3)), python_value(np.datetime64("2026-01-02", "ns"))
    (3, datetime.datetime(2026, 1, 2, 0, 0))
    >>> [*map(python_value, (np.bool_(1), np.array(0.5), Decimal("0.25")))]
    [True, 0.5, 0.25]
    """
    if isinstance(value, np.datetime64 | np.timedelta64):
        return value.astype(f"{value.dtype.kind}8[us]").item()
    if isinstance(value, np.longdouble):
        return float(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    if isinstance(value, Decimal):
        return math.nan if value.is_nan() else float(value)
    return float(value) if isinstance(value, Fraction) else value


def are_same(value: Any, other: Any) -> bool:  # noqa: ANN401 anything
    """Return whether two values say the same to their last digit; NaN is NaN.

    Examples
    --------
    >>> are_same([1, np.nan], np.array([1, np.nan])), are_same(True, 1)
    (True, False)
    >>> are_same(np.arange(2000), np.arange(2000) + (np.arange(2000) == 999))
    False
    """
    value, other = python_value(value), python_value(other)
    if value is other or (is_unknown(value) and is_unknown(other)):
        return True
    value, other = (v.tolist() if hasattr(v, "tolist") else v for v in (value, other))
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(are_same, value, other))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        is_known = value.keys() == other.keys()
        return is_known and all(are_same(value[k], other[k]) for k in value)
    if isinstance(value, bool) != isinstance(other, bool):
        return False
    try:
        return bool(value == other)
    except (ValueError, TypeError, RuntimeError):  # such as a frame
        return False


def is_real(value: object) -> bool:
    """Return whether a value of Python is a number that float64 can hold, or a flag."""
    return isinstance(value, float) or (
        isinstance(value, int) and value.bit_length() <= sys.float_info.max_exp - 1
    )


def is_unknown(value: Any) -> bool:  # noqa: ANN401 anything
    """Return whether a value of Python or of pandas says that there is none.

    Examples
    --------
    >>> import pandas as pd
    >>> [is_unknown(value) for value in (None, float("nan"), pd.NA, pd.NaT, 0, "")]
    [True, True, True, True, False, False]
    """
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, float | date | timedelta):  # NaN, NaT
        return bool(value != value)  # noqa: PLR0124
    return value is None or type(value).__name__ == "NAType"  # of pandas


def scatter_with_missing(values: Array, places: Array, size: int) -> Array:
    """Put values at their places in an array of this size; the others are unknown.

    NaN if the values are numbers that a float64 holds exactly, else None.

    Examples
    --------
    >>> scatter_with_missing(np.array([7, 5]), np.array([0, 2]), 3)
    array([ 7., nan,  5.])
    """
    is_present = np.zeros(size, dtype=bool)
    is_present[places] = True
    if is_present.all():
        out = np.empty(size, dtype=values.dtype)
    elif values.dtype.kind == "f" or _is_exact_as_float(values):
        out = np.full(size, np.nan, dtype=np.result_type(values, np.float16))
    else:
        out = np.full(size, None, dtype=object)
    out[places] = values
    return out


def _is_exact_as_float(values: Array) -> bool:
    if values.dtype.kind not in "iu" or not len(values):
        return False
    return int(values.min()) >= -_EXACT and int(values.max()) <= _EXACT
