"""Tables in memory: mappings of tensors, arrays and lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.loaders.tables.table import Table
from rounddiag.loaders.words import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from rounddiag.loaders.records.json_lines import JsonLines


def table_of_values(values: Mapping[str, Any]) -> Table:
    """Divide columns by what they hold: rows, one value a sample, or one for all.

    Examples
    --------
    >>> table = table_of_values({"ids": [[5, 6], [7]], "turns": [2, 3], "top_p": 1.0})
    >>> list(table.fields), list(table.columns), dict(table.info)
    (['ids'], ['turns'], {'top_p': 1.0})
    """
    fields, columns, info = {}, {}, {}
    for key, held in values.items():
        value = _cells(held) if hasattr(held, "iloc") else held  # a Series of pandas
        name, dims = str(key), _num_dims(value)
        if dims == 0:
            info[name] = value.item() if hasattr(value, "item") else value
        elif dims == 1:
            columns[name] = _column(value)
        else:
            fields[name] = value
    return Table(fields=_Rows(fields), columns=columns, info=info)


def table_of_lines(lines: JsonLines) -> Table:
    """Return the records of JSON lines as a table; lists become tensors line by line.

    A key that a record lacks is null there.
    """
    return table_of_values(columns_of(lines, _numbers_of_list))


def columns_of(
    rows: Iterable[Mapping[Any, Any]], cell: Callable[[Any], Any] = lambda value: value
) -> dict[str, list[Any]]:
    """Return rows with names as columns; a key that a row lacks is None there.

    Examples
    --------
    >>> columns_of([{"ids": [5, 6]}, {"ids": [7], "turns": 2}])
    {'ids': [[5, 6], [7]], 'turns': [None, 2]}
    """
    values: dict[str, list[Any]] = {}
    for index, row in enumerate(rows):
        named = {str(key): value for key, value in row.items()}
        for key in {**named, **values}:
            values.setdefault(key, [None] * index).append(cell(named.get(key)))
    return values


def _numbers_of_list(value: object) -> Any:  # noqa: ANN401 array, or as it was
    return _numbers(value) if isinstance(value, list) else value


class _Rows(Mapping[str, Any]):
    """Rows of numbers, made tensors of the host when they are looked up."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Tensor | list[Tensor]:
        value = self._fields[name]
        if isinstance(value, torch.Tensor | np.ndarray) and value.dtype != object:
            return _tensor(value)
        rows = [_tensor(_numbers(row) if _is_list(row) else row) for row in value]
        # An empty list of JSON says nothing of its dtype.
        dtype = next((row.dtype for row in rows if row.numel()), None)
        return [row if row.numel() or dtype is None else row.to(dtype) for row in rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _cells(column: Any) -> Any:  # noqa: ANN401 an array of numbers, else a list
    is_number = getattr(column.dtype, "kind", "O") in "biuf"
    return column.to_numpy() if is_number else column.tolist()


def _num_dims(value: Any) -> int:  # noqa: ANN401 anything
    """Return 0 for one value, 1 for a value a sample, 2 for rows."""
    if isinstance(value, torch.Tensor | np.ndarray) and value.dtype != object:
        return min(value.ndim, 2)
    if not _is_list(value):
        return 0
    return 2 if any(_is_list(item) and not _has_objects(item) for item in value) else 1


def _has_objects(row: Sequence[Any]) -> bool:
    """Whether a list holds what may be pictures."""
    return len(row) > 0 and isinstance(row[0], bytes | Mapping)


def _is_list(value: object) -> bool:
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.ndim > 0
    return isinstance(value, list | tuple)


def _column(value: Any) -> Any:  # noqa: ANN401 whatever has one value a sample
    if not isinstance(value, torch.Tensor):
        return value
    host = value.detach().cpu()
    return (host.float() if host.dtype == torch.bfloat16 else host).numpy()


def _tensor(value: Any) -> Tensor:  # noqa: ANN401 tensor, array or neither
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if not isinstance(value, np.ndarray) or value.dtype == object:
        msg = f"{kind_of(value)} in the place of a row"
        raise TypeError(msg)
    wide = value.astype(np.int64) if value.dtype.kind == "u" else value
    return torch.from_numpy(wide if wide.flags.writeable else wide.copy())


def _numbers(row: Sequence[Any] | np.ndarray[Any, Any] | Tensor) -> Any:  # noqa: ANN401 array, or as it was
    """Return a list of numbers as an array, null as NaN; anything else as it is."""
    if isinstance(row, torch.Tensor) or (
        isinstance(row, np.ndarray) and row.dtype != object
    ):
        return row
    try:
        array = np.array(row)
        if array.dtype == object:
            array = np.array(row, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return row
    return array if array.dtype.kind in "biuf" else row
