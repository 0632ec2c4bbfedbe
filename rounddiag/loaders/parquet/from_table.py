"""The columns of a file as the fields of a Batch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from rounddiag.batch.layout import PER_TOKEN, REQUIRED, offsets_of
from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.open_columns import array_of
from rounddiag.loaders.parquet.round_columns import rounds_of
from rounddiag.loaders.parquet.table_reader import RESAVE, require
from rounddiag.loaders.parquet.to_table import SAMPLE, SCORE, SHAPE

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from rounddiag.loaders.parquet.table_reader import TableReader

    Arrays = dict[str, np.ndarray[Any, Any]]


def fields_of(table: TableReader) -> dict[str, Any]:
    """Return the fields that a file holds, `images` excepted.

    Raises
    ------
    LoadError
        If a column is missing or holds another type.
    """
    first, *required = REQUIRED
    response_ids, lengths = table.numbers(first)
    names = [n for n in table.names if n in PER_TOKEN or n.startswith(SCORE)]
    others = {
        name: _tokens(table, name, lengths)
        for name in {**dict.fromkeys(required), **dict.fromkeys(names)}
        if name != first
    }
    return {
        first: response_ids,
        **{name: others[name] for name in PER_TOKEN if name in others},
        "scores": _prefixed(others, SCORE),
        "lengths": lengths,
        "offsets": offsets_of(lengths),
        **_samples(table),
        **_prompts(table),
        "position_ids": _rows(table, "position_ids"),
        "rollout_ids": _rows(table, "rollout_ids"),
        "sample_columns": _sample_columns(table),
        "round_columns": _rounds(table),
    }


def _prefixed(columns: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in columns.items()
        if name.startswith(prefix)
    }


def _tokens(table: TableReader, name: str, lengths: Tensor) -> Tensor:
    values, sizes = table.numbers(name)
    if not torch.equal(sizes, lengths):
        row = int((sizes != lengths).nonzero()[0])
        raise LoadError.build(
            key=name,
            expected=f"{lengths[row]} values in row {row}, as `response_ids`",
            found=f"{sizes[row]}",
            advice=RESAVE,
        )
    return values


def _samples(table: TableReader) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: table.texts(name)
        for name, key in (("sample_id", "sample_ids"), ("group_id", "group_ids"))
        if name in table
    }
    if "reward" in table:
        found["rewards"] = table.number("reward")
    return found


def _prompts(table: TableReader) -> dict[str, Tensor]:
    if "prompt_ids" not in table:
        return {}
    values, sizes = table.numbers("prompt_ids")
    return {"prompt_ids": values, "prompt_offsets": offsets_of(sizes)}


def _rows(table: TableReader, name: str) -> tuple[Tensor, ...] | None:
    """Return a field with one tensor a sample, in the shapes that they had."""
    if name not in table:
        return None
    values, sizes = table.numbers(name)
    rows: tuple[Tensor, ...] = values.split(sizes.tolist())
    if f"{name}{SHAPE}" not in table:
        return rows
    shapes = table.column(f"{name}{SHAPE}").to_pylist()
    if [prod(shape) for shape in shapes] != sizes.tolist():
        raise LoadError.build(
            key=f"{name}{SHAPE}",
            expected=f"the shape of each row of `{name}`",
            found="other numbers of values",
            advice=RESAVE,
        )
    return tuple(row.reshape(shape) for row, shape in zip(rows, shapes, strict=True))


def _sample_columns(table: TableReader) -> Arrays:
    names = [name for name in table.names if name.startswith(SAMPLE)]
    columns = {name: array_of(table.field(name), table.column(name)) for name in names}
    return _prefixed(columns, SAMPLE)


def _rounds(table: TableReader) -> Arrays:
    name = "round_columns"
    if name not in table:
        return {}
    values, sizes = table.lists(name)
    fits = pa.types.is_struct(values.type)
    require(values, name, "a list of structs in each row", fits=fits)
    return rounds_of(values, sizes.numpy(), table.field(name))
