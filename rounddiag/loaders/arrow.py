"""Tables of Arrow: foreign Parquet, and the Arrow files of Hugging Face `datasets`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from rounddiag.columns.sources import Ragged, build_offsets
from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.columns import (
    BROKEN,
    open_native,
    open_parquet,
    to_tensor,
)
from rounddiag.loaders.parquet.reader import TableReader
from rounddiag.loaders.source import Source, damage_error
from rounddiag.loaders.tables import Table, require_unique_names

# Without list views, which may overlap: a few bytes could be any number of rows.
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_BYTES = (
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    pa.types.is_struct,
)
_TEXTS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    pa.types.is_null,
)


def _is_row_column(kind: pa.DataType) -> bool:
    kind = _storage_type(kind)
    return _is_any(kind, _LISTS) and not _is_any(_storage_type(kind.value_type), _BYTES)


def rows_from_lists(column: pa.ChunkedArray) -> Ragged | list[Tensor]:
    """Return a column of lists as rows; those of lists of lists have two dimensions."""
    column = _storage_values(column)
    if column.null_count:
        raise ValueError(f"null in {column.null_count} of {len(column)} rows")
    sizes = to_tensor(pc.list_value_length(column)).long()
    values = _storage_values(pc.list_flatten(column))
    if _is_any(values.type, _LISTS):
        return _matrices(rows_from_lists(values), sizes)
    return Ragged(values=_numbers(values), offsets=build_offsets(sizes))


def plain_column(column: pa.ChunkedArray) -> Any:  # noqa: ANN401 array or list
    """Return one value per row: an array of numbers, or a list if some are missing.

    Columns that may hold pictures are returned unchanged.
    """
    if pa.types.is_dictionary(column.type):
        return [value for chunk in column.chunks for value in _values(chunk)]
    column = _storage_values(column)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    elif pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    if _is_number(column.type) and not column.null_count:
        return column.to_numpy()
    is_plain = _is_number(column.type) or _is_any(column.type, _TEXTS)
    return column.to_pylist() if is_plain else column


def _values(chunk: pa.DictionaryArray) -> list[Any]:
    """Return dictionary-encoded values; equal values share one object."""
    values = chunk.dictionary.to_pylist()
    indices = chunk.indices.to_pylist()
    return [None if index is None else values[index] for index in indices]


def _is_any(kind: pa.DataType, kinds: tuple[Any, ...]) -> bool:
    return any(is_kind(kind) for is_kind in kinds)


def _storage_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _storage_type(kind.storage_type)
    return _storage_type(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _storage_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        return _storage_values(pa.chunked_array(chunks, type=kind.storage_type))
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def _matrices(inner: Ragged | list[Tensor], counts: Tensor) -> list[Tensor]:
    """Return lists of lists as matrices; the lists of one row have one length."""
    if not isinstance(inner, Ragged):
        raise TypeError("lists in lists in lists")
    matrices, start = [], 0
    for sizes in inner.lengths.split(counts.tolist()):
        width = int(sizes[0]) if len(sizes) else 0
        if bool((sizes != width).any()):
            raise ValueError("lists of different lengths in one row")
        stop = start + width * len(sizes)
        matrices.append(inner.values[start:stop].reshape(len(sizes), width))
        start = stop
    return matrices


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind)) or _is_integer(kind)


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _numbers(values: pa.ChunkedArray) -> Tensor:
    """Return numbers as a tensor; missing floats are NaN."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    elif pa.types.is_unsigned_integer(values.type):
        values = values.cast(pa.int64())
    if not _is_number(values.type):
        raise TypeError(f"{values.type} in place of numbers")
    if values.null_count and _is_integer(values.type):
        raise ValueError(f"{values.null_count} nulls among whole numbers")
    return to_tensor(values)


_STREAM = b"\xff\xff\xff\xff"


def parquet_table(source: Source) -> Table:
    """Return a foreign Parquet file as a table; columns are read when looked up."""
    with _load_errors(source), open_parquet(source.path) as file:
        schema = file.schema_arrow
    plain = [field.name for field in schema if not _is_row_column(field.type)]
    # Read together: there may be thousands, and each read opens the file.
    read_plain = cache(partial(_parquet_columns, source, plain))

    def read(name: str) -> pa.ChunkedArray:
        is_plain = not _is_row_column(schema.field(name).type)
        table = read_plain() if is_plain else _parquet_columns(source, [name])
        return table.column(name)

    return _classify(schema, read, source)


def arrow_table(source: Source) -> Table:
    """Return an Arrow file as a table: a stream, or a file with a footer."""
    with _load_errors(source), open_native(source.path) as file:
        is_stream = file.read(len(_STREAM)) == _STREAM
        end = _STREAM + bytes(4) if is_stream else b"ARROW1"
        file.seek(file.size() - len(end))
        if file.read() != end:  # a stream cut off between batches would lose rows
            raise damage_error(found="no end")
        file.seek(0)
        opened = pa.ipc.open_stream if is_stream else pa.ipc.open_file
        table = opened(file).read_all()
        table.validate(full=True)  # wrong offsets would read outside the buffers
    return table_from_arrow(table, source)


def arrow_of_frame(frame: Any) -> pa.Table | None:  # noqa: ANN401 of pandas
    """Return a frame of pandas as Parquet has it; None if it holds other objects."""
    try:
        return pa.Table.from_pandas(frame)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        return None


def table_from_arrow(table: pa.Table, source: Source) -> Table:
    """Return a table of Arrow in memory as a `Table`."""
    return _classify(table.schema, table.column, source)


def _classify(
    schema: pa.Schema, read: Callable[[str], pa.ChunkedArray], source: Source
) -> Table:
    with _load_errors(source):
        has_rows = {field.name: _is_row_column(field.type) for field in schema}
    require_unique_names(schema.names, source)

    def convert(name: str) -> object:
        with _load_errors(source, name):
            column = read(name)
            return rows_from_lists(column) if has_rows[name] else plain_column(column)

    dims = {name: 2 if has_rows[name] else 1 for name in has_rows}
    marks = [key.decode(errors="replace") for key in schema.metadata or {}]
    return replace(Table.classify(dims, convert), marks=marks)


def _parquet_columns(source: Source, names: list[str]) -> pa.Table:
    with open_parquet(source.path) as file:
        return TableReader(file).columns(names)


@contextmanager
def _load_errors(source: Source, key: str | None = None) -> Iterator[None]:
    try:
        yield
    except LoadError as error:
        prefix = f"{source.path}: "
        raise LoadError(f"{prefix}{str(error).removeprefix(prefix)}") from error
    except BROKEN as error:
        raise source.error(
            key=key,
            expected="a table of numbers, texts and lists of numbers",
            found=f"{error!s:.80}" or type(error).__name__,
            advice="Save it again, with a list of numbers per sample.",
        ) from error
