"""Tables of Arrow: foreign Parquet, and the Arrow files of Hugging Face `datasets`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.budget import check_size, check_weights
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.loaders.parquet.table_reader import TableReader
from rounddiag.loaders.tables.arrow_budget import num_bytes
from rounddiag.loaders.tables.arrow_columns import is_rows, plain_column, rows_of
from rounddiag.loaders.tables.table import Table

if TYPE_CHECKING:
    from rounddiag.loaders.source import Source

_STREAM = b"\xff\xff\xff\xff"


def parquet_table(source: Source) -> Table:
    """Return a foreign Parquet file as a table; a column is read when looked up."""
    with _load_errors(source), pq.ParquetFile(source.path) as file:
        schema = file.schema_arrow
    return _table(schema, partial(_parquet_column, source), source)


def arrow_table(source: Source) -> Table:
    """Return an Arrow file as a table: a stream, or a file that has one at byte 8."""
    with _load_errors(source), pa.OSFile(str(source.path)) as file:
        is_stream = file.read(len(_STREAM)) == _STREAM
        start, end = (0, _STREAM + bytes(4)) if is_stream else (8, b"ARROW1")
        file.seek(file.size() - len(end))
        if file.read() != end:  # cut off between two batches, it would lose rows
            raise source.damaged(found="no end")
        file.seek(start)
        check_weights(source.path, num_bytes(file))
        file.seek(start)
        held = pa.ipc.open_stream(file).read_all()
        held.validate(full=True)  # offsets that lie would be read outside of the file
    return table_of_arrow(held, source)


def table_of_arrow(held: pa.Table, source: Source) -> Table:
    """Return a table of Arrow that is in memory."""
    return _table(held.schema, held.column, source)


def _table(
    schema: pa.Schema, read: Callable[[str], pa.ChunkedArray], source: Source
) -> Table:
    """Divide columns: lists of numbers are rows, others have one value a row."""
    with _load_errors(source):
        has_rows = {field.name: is_rows(field.type) for field in schema}
    if len(has_rows) < len(schema):
        raise source.error(
            expected="one column of each name",
            found=f"{len(schema)} columns of {len(has_rows)} names",
            advice="Name each column otherwise.",
        )
    rows = [name for name in has_rows if has_rows[name]]
    plain = [name for name in has_rows if not has_rows[name]]
    return Table(
        fields=_Columns(rows, lambda name: rows_of(read(name)), source),
        columns=_Columns(plain, lambda name: plain_column(read(name)), source),
        marks=[key.decode(errors="replace") for key in schema.metadata or {}],
    )


class _Columns(Mapping[str, Any]):
    """Columns, converted when they are looked up."""

    def __init__(
        self, names: Sequence[str], convert: Callable[[str], Any], source: Source
    ) -> None:
        self._names, self._convert, self._source = names, convert, source

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 rows, an array or a list
        if name not in self._names:
            raise KeyError(name)
        with _load_errors(self._source, name):
            return self._convert(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _parquet_column(source: Source, name: str) -> pa.ChunkedArray:
    check_size(source.path, lambda chunk: chunk.path.split(".")[0] == name)
    with pq.ParquetFile(source.path) as file:
        return TableReader(file).column(name)


@contextmanager
def _load_errors(source: Source, key: str | None = None) -> Iterator[None]:
    """Let nothing but a LoadError out, and name the file in it."""
    try:
        yield
    except LoadError as error:
        place = f"{source.path}: "
        msg = f"{place}{str(error).removeprefix(place)}"
        raise LoadError(msg) from error
    except BROKEN as error:
        raise LoadError.build(
            file=source.path,
            key=key,
            expected="a table of numbers, texts and lists of numbers",
            found=f"{error!s:.80}" or type(error).__name__,
            advice="Save it again, with a list of numbers a sample.",
        ) from error
