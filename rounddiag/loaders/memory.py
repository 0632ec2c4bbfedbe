"""Data in memory as a table: columns, rows, frames and data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rounddiag.columns.sources import describe_kind
from rounddiag.errors import LoadError
from rounddiag.loaders.arrow import arrow_of_frame, table_from_arrow
from rounddiag.loaders.plain_columns import collect_columns
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import (
    LazyFields,
    Table,
    require_unique_names,
    table_of,
)


def _table_of_frame(frame: Any, source: Source) -> Table:  # noqa: ANN401 of pandas
    """Return a frame as its Parquet file has it, and what no Parquet file holds."""
    stored, others = arrow_of_frame(frame), {}
    if stored is None:  # such as tensors and pictures
        names = [name for name in frame if arrow_of_frame(frame[[name]]) is None]
        others = {name: frame[name] for name in names}
        stored = arrow_of_frame(frame.drop(columns=names))
    table, rest = table_from_arrow(stored, source), table_of(others)
    return replace(
        table,
        fields=LazyFields.join(table.fields, rest.fields),
        columns=LazyFields.join(table.columns, rest.columns),
        info=rest.info,
    )


def in_memory(data: Any) -> tuple[Table, Source]:  # noqa: ANN401 see below
    """Return data as a table, and a source that names it in messages."""
    source = Source(path=Path(type(data).__name__), size=0, data=b"")
    is_list = isinstance(data, list | tuple) and len(data) > 0
    if is_list and all(isinstance(row, Mapping) for row in data):
        columns, left_out = collect_columns(data)
        return replace(table_of(columns), left_out=left_out), source
    if isinstance(data, Mapping):
        return table_of(data), source
    if hasattr(data, "iloc") and hasattr(data, "items"):  # a frame of pandas
        frame = data.rename(columns=str)
        require_unique_names([*frame], source)
        return _table_of_frame(frame, source), source
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
    return table_from_arrow(pa.table(data), source), source
