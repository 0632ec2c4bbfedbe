"""Records: mappings, one per row, as columns; their keys may be any."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


_SPARSE = 64  # cells of a table per value; more are left out
_SMALL = 1 << 18  # cells that any table may have


def collect_columns(
    rows: Iterable[Mapping[Any, Any]], cell: Callable[[Any], Any] = lambda value: value
) -> tuple[dict[str, list[Any]], list[str]]:
    """Return mappings, one per row, as columns; a missing key becomes None.

    Where the rows have different keys, a table is mostly empty and grows with the
    square of the rows. Then the columns with the fewest values are left out.

    Returns
    -------
    columns : dict of str to list
    left_out : list of str
        How many columns were left out, in words; empty if none was.

    Examples
    --------
    >>> collect_columns([{"ids": [5, 6]}, {"ids": [7], "turns": 2}])
    ({'ids': [[5, 6], [7]], 'turns': [None, 2]}, [])
    """
    places: dict[str, list[int]] = defaultdict(list)
    values: dict[str, list[Any]] = defaultdict(list)
    num_rows = 0
    for index, row in enumerate(rows):
        num_rows = index + 1
        # One that is named twice, as 1 and "1", has its last value.
        for key, value in {str(key): value for key, value in row.items()}.items():
            places[key].append(index)
            values[key].append(cell(value))
    most = max(_SMALL, _SPARSE * sum(map(len, places.values()))) // max(num_rows, 1)
    kept = {*sorted(places, key=lambda key: len(places[key]), reverse=True)[:most]}
    columns = {
        key: _column_of(places[key], values.pop(key), num_rows)
        for key in places
        if key in kept
    }
    num_left = len(places) - len(kept)
    return columns, [f"{pluralize(num_left, 'column')} with few values"] * (
        num_left > 0
    )


def _column_of(places: list[int], values: list[Any], num_rows: int) -> list[Any]:
    if len(values) == num_rows:
        return values
    column = [None] * num_rows
    for place, value in zip(places, values, strict=True):
        column[place] = value
    return column
