"""Columns of a source as arrays of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import host_array
from rounddiag.loaders.tensors.ragged import ragged
from rounddiag.loaders.words import shown

if TYPE_CHECKING:
    from rounddiag.loaders.tables.table import Table

    Array = np.ndarray[Any, Any]

_ODD = (ArithmeticError, TypeError, ValueError, RuntimeError)


def shown_names(table: Table) -> str:
    """Return the names of a table's columns for a message."""
    return f"columns {shown(table.names)}"


def whole(table: Table, name: str, size: int | None = None) -> Array:
    """Return a column of whole numbers, one a row.

    Raises
    ------
    BatchError
        If it is not there, has another number of rows, or holds anything else.
    """
    return _whole(name, _column(table, name, size))


def floats(table: Table, name: str, size: int) -> Array:
    """Return a column of log-probabilities, one a row; null is NaN.

    Raises
    ------
    BatchError
        As `whole`.
    """
    return _floats(name, _column(table, name, size))


def flat_rows(table: Table, name: str, num_rows: int) -> tuple[Array, Array]:
    """Return rows end to end, and their sizes; ids as whole numbers.

    Raises
    ------
    BatchError
        If it holds anything but rows of numbers.
    """
    try:
        rows = ragged(table.fields[name])
    except (*_ODD, KeyError) as error:
        raise _misfit(name, "a list of numbers a sample", f"{error!s:.80}") from error
    if rows.values.dim() != 1 or len(rows.lengths) != num_rows:
        found = f"{len(rows.lengths)} lists of shape {tuple(rows.values.shape)}"
        raise _misfit(name, f"{num_rows} lists of numbers", found)
    convert = _whole if name == "token_ids" else _floats
    return convert(name, host_array(rows.values)), rows.lengths.numpy()


def _column(table: Table, name: str, size: int | None) -> Array:
    if name not in table.columns:
        raise _misfit(name, "a column of one value a row", shown_names(table))
    values = np.asarray(table.columns[name])
    if size not in {None, len(values)}:
        raise _misfit(name, f"{size} values, one a row", f"{len(values)}")
    return values


def _whole(name: str, values: Array) -> Array:
    if values.dtype.kind in "iu" or values.size == 0:
        return values.astype(np.int64)
    try:
        with np.errstate(invalid="ignore"):  # NaN, which then differs
            numbers = values.astype(np.int64)
        if values.dtype.kind in "fO" and (numbers == values).all():
            return numbers
    except _ODD as error:
        raise _misfit(name, "whole numbers", f"{error!s:.80}") from error
    raise _misfit(name, "whole numbers", _first_odd(values))


def _floats(name: str, values: Array) -> Array:
    if values.dtype.kind == "f" and values.dtype.itemsize <= 8:  # noqa: PLR2004 torch has no longer ones
        return values
    try:
        if values.dtype.kind in "iuO":
            return values.astype(np.float64)
    except _ODD as error:
        raise _misfit(name, "numbers", f"{error!s:.80}") from error
    raise _misfit(name, "numbers", _first_odd(values))


def _first_odd(values: Array) -> str:
    odd = [v for v in values.tolist() if not isinstance(v, float) or v % 1]
    return f"{odd[0]!r:.80}" if odd else str(values.dtype)


def _misfit(name: str, expected: str, found: str) -> BatchError:
    return BatchError.build(
        key=name,
        expected=expected,
        found=found,
        advice="See `rounddiag.attach` for the columns.",
    )
