"""Lists of a pickle that hold a batch without tensors: rows of numbers, and records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.tables.table_values import columns_of, table_of_values
from rounddiag.loaders.tensors.numpy_nodes import StoredArray, stored_array

if TYPE_CHECKING:
    from rounddiag.loaders.source import Source

_WIDTH = 8  # bytes of a number, or of a place for one
_TOO_LARGE = 1 << 63  # for a tensor
_TIMES, _SPARE = 4, 100 << 20


def rows_of_numbers(items: list[object], source: Source) -> list[object]:
    """Return rows that are lists of numbers or arrays, as tensors; else no rows."""
    rows: list[Any] = [stored_array(row, source) or row for row in items]
    if not all(isinstance(row, list | tuple | StoredArray) for row in rows):
        return []
    _check(sum(_size(row) for row in rows), source)  # one row may be there many times
    if not all(isinstance(row, StoredArray) or _are_numbers(row) for row in rows):
        return []
    held = [row.read() if isinstance(row, StoredArray) else row for row in rows]
    # Nothing at all, and arrays of no dimension, are no rows.
    return list(table_of_values({"rows": held}).fields.get("rows", ()))


def columns_of_records(root: object, source: Source) -> object:
    """Return a list of dictionaries as one of columns; anything else as it is."""
    if not isinstance(root, list) or not root:
        return root
    if not all(isinstance(row, dict) for row in root):
        return root
    _check(sum(map(len, root)), source)
    _check(len(root) * len({str(key) for row in root for key in row}), source)
    return columns_of(root)


def _are_numbers(row: list[Any] | tuple[Any, ...]) -> bool:
    return all(
        value is None
        or isinstance(value, float)
        or (isinstance(value, int) and abs(value) < _TOO_LARGE)
        for value in row
    )


def _size(row: Any) -> int:  # noqa: ANN401 a list, or an array in the file
    if not isinstance(row, StoredArray):
        return len(row)
    return -(-len(row.data) // _WIDTH)


def _check(count: int, source: Source) -> None:
    if _WIDTH * count > _TIMES * source.size + _SPARE:
        found = f"lists that need {_WIDTH * count >> 20} MB of memory"
        raise source.damaged(found=found)
