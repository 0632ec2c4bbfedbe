"""Data in memory as a table: mappings, lists of rows, frames and data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rounddiag.columns.sources import describe_kind
from rounddiag.errors import LoadError
from rounddiag.loaders.fields.columns import collect_columns
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, are_rows, require_unique_names, table_of


def in_memory(data: Any) -> tuple[Table, Source]:  # noqa: ANN401 see below
    """Return data as a table, and a source that names it in messages."""
    source = Source(path=Path(type(data).__name__), size=0, data=b"")
    if isinstance(data, list | tuple) and are_rows(data):
        columns, left_out = collect_columns(data)
        return replace(table_of(columns, source), left_out=left_out), source
    if isinstance(data, Mapping):
        return table_of(data, source), source
    if hasattr(data, "iloc") and hasattr(data, "items"):  # a frame of pandas
        named = list(data.items())
        require_unique_names([name for name, _ in named], source)
        return table_of(dict(named), source), source
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

    from rounddiag.loaders.arrow import table_from_arrow

    return table_from_arrow(pa.table(data), source), source
