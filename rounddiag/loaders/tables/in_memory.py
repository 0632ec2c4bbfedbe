"""Tables that are in memory already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables.table_values import columns_of, table_of_values
from rounddiag.loaders.words import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.loaders.tables.table import Table


def in_memory(data: Any) -> tuple[Table, Source]:  # noqa: ANN401 see below
    """Return a table, and a source that names it in messages.

    Parameters
    ----------
    data : mapping, list of mappings, frame or data set
        A mapping of names to tensors, arrays and lists, or one such a row; a frame of
        pandas, polars or Arrow, with a list a cell; a Hugging Face data set.

    Raises
    ------
    LoadError
        If it is none of them.
    """
    source = Source(path=Path(type(data).__name__), size=0, data=b"")
    if isinstance(data, list | tuple) and _are_rows(data):
        data = columns_of(data)
    if isinstance(data, Mapping):
        return table_of_values(data), source
    if hasattr(data, "iloc") and hasattr(data, "items"):  # a frame of pandas
        return table_of_values(_unique(list(data.items()), source)), source
    if hasattr(data, "with_format"):  # datasets, whose rows may be a selection
        data = data.with_format("arrow")[:]
    if not hasattr(data, "__arrow_c_stream__"):
        raise LoadError.build(
            expected="a path, a mapping of columns, a list of rows, a frame or a data"
            " set",
            found=kind_of(data),
            advice="Pass the path of a saved batch, or its columns by name:"
            ' {"response_ids": ..., "response_mask": ..., ...}.',
        )
    import pyarrow as pa

    from rounddiag.loaders.tables.arrow import table_of_arrow

    return table_of_arrow(pa.table(data), source), source


def _are_rows(data: Sequence[object]) -> bool:
    return len(data) > 0 and all(isinstance(row, Mapping) for row in data)


def _unique(columns: list[tuple[Any, Any]], source: Source) -> dict[Any, Any]:
    if len(dict(columns)) < len(columns):
        raise source.error(
            expected="one column of each name",
            found=f"{len(columns)} columns of {len(dict(columns))} names",
            advice="Name each column otherwise.",
        )
    return dict(columns)
