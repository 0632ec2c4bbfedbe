"""Tables in memory: mappings of tensors, arrays and lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders.fields.columns import collect_columns
from rounddiag.loaders.lazy.arrays import StoredArray, stored_array
from rounddiag.loaders.source import Source, describe_kind
from rounddiag.loaders.tabular.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rounddiag.loaders.tabular.json_lines import JsonLines


def table_from_values(values: Mapping[str, Any]) -> Table:
    """Classify columns: rows, one value per sample, or one value for all.

    Examples
    --------
    >>> table = table_from_values({"ids": [[5, 6], [7]], "turns": [2, 3], "top_p": 1.0})
    >>> list(table.fields), list(table.columns), dict(table.info)
    (['ids'], ['turns'], {'top_p': 1.0})
    """
    cells = {
        str(key): _cells(column) if hasattr(column, "iloc") else column  # of pandas
        for key, column in values.items()
    }
    dims = {name: _num_dims(value) for name, value in cells.items()}
    readers = (_value, _column, _host_rows)
    return Table.classify(dims, lambda name: readers[dims[name]](cells[name]))


def table_from_lines(lines: JsonLines) -> Table:
    """Return the records of JSON lines as a table.

    Lists become arrays line by line. A key that a record lacks is None.
    """
    columns, left_out = collect_columns(lines, _list_as_array)
    return replace(table_from_values(columns), left_out=left_out)


def _list_as_array(value: object) -> Any:  # noqa: ANN401 array, or as it was
    return _numbers(value) if isinstance(value, list) else value


def _host_rows(value: Any) -> Tensor | list[Tensor]:  # noqa: ANN401 rows of numbers
    """Return rows of numbers as tensors in host memory."""
    if isinstance(value, torch.Tensor | np.ndarray) and value.dtype != object:
        return _tensor(value)
    rows = [_tensor(_numbers(row) if _is_list(row) else row) for row in value]
    # An empty list of JSON has no dtype.
    dtype = next((row.dtype for row in rows if row.numel()), None)
    return [row if row.numel() or dtype is None else row.to(dtype) for row in rows]


def _cells(column: Any) -> Any:  # noqa: ANN401 an array of numbers, else a list
    is_number = getattr(column.dtype, "kind", "O") in "biuf"
    return column.to_numpy() if is_number else column.tolist()


def _num_dims(value: Any) -> int:  # noqa: ANN401 anything
    """Return 0 for a single value, 1 for one value per sample, 2 for rows."""
    if isinstance(value, torch.Tensor | np.ndarray) and value.dtype != object:
        return min(value.ndim, 2)
    if not _is_list(value):
        return 0
    kinds = {kind for kind in set(map(type, value)) if issubclass(kind, _LISTS)}
    if not kinds:
        return 1
    rows = [item for item in value if type(item) in kinds and _is_list(item)]
    return 2 if rows and not any(map(_may_hold_pictures, rows)) else 1


def _may_hold_pictures(row: Sequence[Any]) -> bool:
    """Return whether a list may hold pictures."""
    if not len(row):
        return False
    is_pillow = type(row[0]).__module__.startswith("PIL.")
    return is_pillow or isinstance(row[0], bytes | Mapping)


_LISTS = (list, tuple, torch.Tensor, np.ndarray)


def _is_list(value: object) -> bool:
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.ndim > 0
    return isinstance(value, list | tuple)


def _value(value: Any) -> object:  # noqa: ANN401 a scalar, or anything
    return value.item() if hasattr(value, "item") else value


def _column(value: Any) -> Any:  # noqa: ANN401 whatever has one value per sample
    if not isinstance(value, torch.Tensor):
        return value
    host = value.detach().cpu()
    return (host.float() if host.dtype == torch.bfloat16 else host).numpy()


def _tensor(value: Any) -> Tensor:  # noqa: ANN401 tensor, array or neither
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if not isinstance(value, np.ndarray) or value.dtype == object:
        msg = f"{describe_kind(value)} in place of a row"
        raise TypeError(msg)
    # torch has few operations for unsigned numbers, and no other byte orders.
    dtype = np.int64 if value.dtype.kind == "u" else value.dtype.newbyteorder("=")
    wide = value.astype(dtype, copy=False)
    return torch.from_numpy(wide if wide.flags.writeable else wide.copy())


def _numbers(row: Sequence[Any] | np.ndarray[Any, Any] | Tensor) -> Any:  # noqa: ANN401 array, or as it was
    """Return a list of numbers as an array, null as NaN; other values unchanged."""
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


def in_memory(data: Any) -> tuple[Table, Source]:  # noqa: ANN401 see below
    """Return data as a table, and a source that names it in messages."""
    source = Source(path=Path(type(data).__name__), size=0, data=b"")
    if isinstance(data, list | tuple) and _are_rows(data):
        columns, left_out = collect_columns(data)
        return replace(table_from_values(columns), left_out=left_out), source
    if isinstance(data, Mapping):
        return table_from_values(data), source
    if hasattr(data, "iloc") and hasattr(data, "items"):  # a frame of pandas
        return table_from_values(
            _require_unique_names(list(data.items()), source)
        ), source
    if hasattr(data, "with_format"):  # datasets, whose rows may be a selection
        data = data.with_format("arrow")[:]
    if not hasattr(data, "__arrow_c_stream__"):
        raise LoadError.build(
            expected="a path, a mapping of columns, a list of rows, a frame or a data"
            " set",
            found=describe_kind(data),
            advice="Pass the path of a saved batch, or its columns by name:"
            ' {"response_ids": ..., "response_mask": ..., ...}.',
        )
    import pyarrow as pa

    from rounddiag.loaders.tabular.arrow import table_from_arrow

    return table_from_arrow(pa.table(data), source), source


def _are_rows(data: Sequence[object]) -> bool:
    return len(data) > 0 and all(isinstance(row, Mapping) for row in data)


def _require_unique_names(
    columns: list[tuple[Any, Any]], source: Source
) -> dict[Any, Any]:
    if len(dict(columns)) < len(columns):
        raise source.error(
            expected="one column of each name",
            found=f"{len(columns)} columns of {len(dict(columns))} names",
            advice="Rename the columns.",
        )
    return dict(columns)


_MAX_INTEGER = 1 << 63  # of a tensor


def rows_from_numbers(items: list[object], source: Source) -> list[object]:
    """Return lists of numbers and arrays as tensors; nothing if one is neither."""
    rows: list[Any] = [stored_array(row, source) or row for row in items]
    if not all(isinstance(row, list | tuple | StoredArray) for row in rows):
        return []
    if not all(isinstance(row, StoredArray) or _are_numbers(row) for row in rows):
        return []
    arrays = [row.read() if isinstance(row, StoredArray) else row for row in rows]
    # An empty list and arrays without a dimension are not rows.
    return list(table_from_values({"rows": arrays}).fields.get("rows", ()))


def columns_from_records(root: object) -> object:
    """Return a list of dictionaries as columns; other values unchanged."""
    if not isinstance(root, list) or not root:
        return root
    if not all(isinstance(row, dict) for row in root):
        return root
    columns, left_out = collect_columns(root)
    # The note becomes a value for all, which `meta["left_out"]` will name.
    return {**columns, **dict.fromkeys(left_out)}


def _are_numbers(row: list[Any] | tuple[Any, ...]) -> bool:
    return all(
        value is None
        or isinstance(value, float)
        or (isinstance(value, int) and abs(value) < _MAX_INTEGER)
        for value in row
    )
