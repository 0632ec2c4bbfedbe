"""Tables that are in memory already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables.table_values import table_of_values

if TYPE_CHECKING:
    from rounddiag.loaders.tables.table import Table


def in_memory(data: Any) -> tuple[Table, Source]:  # noqa: ANN401 see below
    """Return a table, and a source that names it in messages.

    Parameters
    ----------
    data : mapping, frame or data set
        A mapping of names to tensors, arrays and lists; a frame of pandas, polars or
        Arrow, with a list a cell; a Hugging Face data set.

    Raises
    ------
    LoadError
        If it is none of them.
    """
    source = Source(path=Path(type(data).__name__), size=0, data=b"")
    if isinstance(data, Mapping):
        return table_of_values(data), source
    if hasattr(data, "iloc") and hasattr(data, "items"):  # a frame of pandas
        return table_of_values(_unique(list(data.items()), source)), source
    if hasattr(data, "with_format"):  # datasets, whose rows may be a selection
        data = data.with_format("arrow")[:]
    if not hasattr(data, "__arrow_c_stream__"):
        raise LoadError.build(
            expected="a path, a mapping of columns, a frame or a data set",
            found=f"a {type(data).__name__}",
            advice="Pass what `rounddiag.load` can take apart by name.",
        )
    import pyarrow as pa

    from rounddiag.loaders.tables.arrow import table_of_arrow

    return table_of_arrow(pa.table(data), source), source


def _unique(columns: list[tuple[Any, Any]], source: Source) -> dict[Any, Any]:
    if len(dict(columns)) < len(columns):
        raise source.error(
            expected="one column of each name",
            found=f"{len(columns)} columns of {len(dict(columns))} names",
            advice="Name each column otherwise.",
        )
    return dict(columns)
