"""The columns of a file as the fields of a Batch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from rounddiag.batch.layout import PER_TOKEN, REQUIRED, offsets_of
from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.columns import tensor_of
from rounddiag.loaders.parquet.open_columns import array_of
from rounddiag.loaders.parquet.round_columns import rounds_of
from rounddiag.loaders.parquet.to_table import SAMPLE, SCORE

if TYPE_CHECKING:
    from torch import Tensor

# The numeric types that torch has too.
_INTEGERS = [pa.uint8(), pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_NUMBERS = [pa.bool_(), *_INTEGERS, pa.float16(), pa.float32(), pa.float64()]
_RESAVE = "Save the batch with `rounddiag.save`."


def fields_of(table: pa.Table) -> dict[str, Any]:
    """Return the fields that a table holds, `images` excepted.

    Raises
    ------
    LoadError
        If a column is missing or holds another type.
    """
    lengths = _sizes(table, "response_ids")
    tokens = {
        name: _tokens(table, name, lengths)
        for name in table.column_names
        if name in PER_TOKEN or name.startswith(SCORE)
    }
    for name in REQUIRED:
        _column(table, name)
    return {
        **{name: tokens[name] for name in PER_TOKEN if name in tokens},
        "scores": _prefixed(tokens, SCORE),
        "lengths": lengths,
        "offsets": offsets_of(lengths),
        **_samples(table),
        **_prompts(table),
        "position_ids": _positions(table),
        "sample_columns": _prefixed(
            {
                name: array_of(table.field(name), table.column(name))
                for name in table.column_names
                if name.startswith(SAMPLE)
            },
            SAMPLE,
        ),
        "round_columns": _rounds(table),
    }


def _prefixed(columns: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in columns.items()
        if name.startswith(prefix)
    }


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    found = [column for column in table.column_names if column == name]
    if len(found) != 1:
        raise LoadError.build(
            key=name,
            expected="one column of this name",
            found=f"{len(found)} among {table.column_names}",
            advice=_RESAVE,
        )
    return table.column(name)


def _require(column: pa.ChunkedArray, name: str, expected: str, *, fits: bool) -> None:
    if not fits or column.null_count:
        nulls = f" with {column.null_count} nulls" if column.null_count else ""
        raise LoadError.build(
            key=name,
            expected=expected,
            found=f"{column.type}{nulls}",
            advice=_RESAVE,
        )


def _list_values(table: pa.Table, name: str) -> tuple[pa.ChunkedArray, Tensor]:
    """Return the values of a column of lists, end to end, and the lists' sizes."""
    column = _column(table, name)
    fits = pa.types.is_list(column.type)
    _require(column, name, "a list in each row", fits=fits)
    sizes = pc.list_value_length(column).to_numpy().astype(np.int64)
    return pc.list_flatten(column), torch.from_numpy(sizes)


def _numbers(table: pa.Table, name: str) -> tuple[Tensor, Tensor]:
    values, sizes = _list_values(table, name)
    _require(
        values, name, "a list of numbers in each row", fits=values.type in _NUMBERS
    )
    return tensor_of(values), sizes


def _tokens(table: pa.Table, name: str, lengths: Tensor) -> Tensor:
    values, sizes = _numbers(table, name)
    if not torch.equal(sizes, lengths):
        row = int((sizes != lengths).nonzero()[0])
        raise LoadError.build(
            key=name,
            expected=f"{lengths[row]} values in row {row}, as `response_ids`",
            found=f"{sizes[row]}",
            advice=_RESAVE,
        )
    return values


def _sizes(table: pa.Table, name: str) -> Tensor:
    return _list_values(table, name)[1]


def _samples(table: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, key in (("sample_id", "sample_ids"), ("group_id", "group_ids")):
        if name in table.column_names:
            column = _column(table, name)
            _require(column, name, "strings", fits=pa.types.is_string(column.type))
            found[key] = tuple(column.to_pylist())
    if "reward" in table.column_names:
        column = _column(table, "reward")
        _require(column, "reward", "numbers", fits=column.type in _NUMBERS)
        found["rewards"] = tensor_of(column)
    return found


def _prompts(table: pa.Table) -> dict[str, Tensor]:
    if "prompt_ids" not in table.column_names:
        return {}
    values, sizes = _numbers(table, "prompt_ids")
    return {"prompt_ids": values, "prompt_offsets": offsets_of(sizes)}


def _positions(table: pa.Table) -> tuple[Tensor, ...] | None:
    if "position_ids" not in table.column_names:
        return None
    values, sizes = _numbers(table, "position_ids")
    shapes = _column(table, "position_ids_shape").to_pylist()
    if [prod(shape) for shape in shapes] != sizes.tolist():
        raise LoadError.build(
            key="position_ids_shape",
            expected="the shape of each row of `position_ids`",
            found="other numbers of values",
            advice=_RESAVE,
        )
    rows = values.split(sizes.tolist())
    return tuple(row.reshape(shape) for row, shape in zip(rows, shapes, strict=True))


def _rounds(table: pa.Table) -> dict[str, np.ndarray[Any, Any]]:
    if "round_columns" not in table.column_names:
        return {}
    values, sizes = _list_values(table, "round_columns")
    fits = pa.types.is_struct(values.type)
    _require(values, "round_columns", "a list of structs in each row", fits=fits)
    return rounds_of(values, sizes.numpy())
