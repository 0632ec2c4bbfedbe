"""Read a batch back from our own Parquet file."""

from __future__ import annotations

from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from rounddiag.batch import Batch
from rounddiag.batch.layout import PER_TOKEN, REQUIRED, offsets_of
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.loaders.parquet.columns import (
    BROKEN,
    array_of,
    marked_tensor,
    rounds_of,
    tensor_of,
)
from rounddiag.loaders.parquet.metadata import Footer, find_tokenizer
from rounddiag.loaders.parquet.screenshots import COLUMN, screenshots_of
from rounddiag.loaders.parquet.writer import SAMPLE, SCORE, SHAPE

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from torch import Tensor

    from rounddiag.loaders.source import Source

    Arrays = dict[str, np.ndarray[Any, Any]]


# The numeric types that torch has too.
_SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_FLOATS = [pa.float16(), pa.float32(), pa.float64()]
_NUMBERS = [pa.bool_(), *_SIGNED, *_UNSIGNED, *_FLOATS]
RESAVE = "Save the batch with `rounddiag.save`."
_SMALL, _RATIO = 150_000_000, 64  # bytes that any file may hold, and times its size


class SizeLimit:
    """Refuses a file once more than 150 MB and 64 times its size were read from it.

    Masks, ids of image tokens and log-probs of 0 compress well: a real batch was 44
    times its file where one token in twenty is generated. A file that is made to
    exhaust the memory is a thousand times smaller than what it holds. It is refused
    after the column that exceeds the limit, which is in memory by then.

    Parameters
    ----------
    file : Path
    """

    def __init__(self, file: Path) -> None:
        self._size, self._num_bytes = file.stat().st_size, 0

    def add(self, num_bytes: int) -> None:
        """Count what was read; a LoadError above the limit."""
        self._num_bytes += num_bytes
        most = max(_SMALL, _RATIO * self._size)
        if self._num_bytes > most:
            raise LoadError.build(
                expected=f"at most {most} bytes of values in {self._size} bytes of"
                " file",
                found=f"{self._num_bytes} or more",
                advice="The file expands to far more than its size. If it is genuine,"
                " save it in smaller parts.",
            )


class TableReader:
    """Reads one column at a time, so that only one is in memory twice.

    Parameters
    ----------
    source : ParquetFile
    limit : SizeLimit
    """

    def __init__(self, source: pq.ParquetFile, limit: SizeLimit) -> None:
        self._source, self._limit = source, limit
        self.names: list[str] = source.schema_arrow.names

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def field(self, name: str) -> pa.Field:
        """Return the type and the metadata of a column."""
        return self._source.schema_arrow.field(name)

    def column(self, name: str) -> pa.ChunkedArray:
        """Read a column.

        Raises
        ------
        LoadError
            If there is not exactly one of this name.
        """
        count = self.names.count(name)
        if count != 1:
            raise LoadError.build(
                key=name,
                expected="one column of this name",
                found=f"{count} among {self.names}",
                advice=RESAVE,
            )
        column = self._source.read([name], use_threads=False).column(name)
        self._limit.add(column.nbytes)
        return column

    def lists(self, name: str) -> tuple[pa.ChunkedArray, Tensor]:
        """Return the values of a column of lists, concatenated, and the lists' sizes.

        Raises
        ------
        LoadError
            If it holds anything else, or a row without a list.
        """
        column = self.column(name)
        fits = pa.types.is_list(column.type)
        require(column, name, "a list in each row", fits=fits)
        sizes = pc.list_value_length(column).to_numpy().astype(np.int64)
        return pc.list_flatten(column), torch.from_numpy(sizes)

    def numbers(self, name: str) -> tuple[Tensor, Tensor]:
        """Return the same as `lists`, for a column of lists of numbers.

        Raises
        ------
        LoadError
            If it holds anything else.
        """
        values, sizes = self.lists(name)
        expected = "a list of numbers in each row"
        require(values, name, expected, fits=values.type in _NUMBERS)
        return marked_tensor(tensor_of(values), self.field(name)), sizes

    def number(self, name: str) -> Tensor:
        """Return a column of one number a row.

        Raises
        ------
        LoadError
            If it holds anything else.
        """
        column = self.column(name)
        require(column, name, "numbers", fits=column.type in _NUMBERS)
        return marked_tensor(tensor_of(column), self.field(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a column of strings.

        Raises
        ------
        LoadError
            If it holds anything else.
        """
        column = self.column(name)
        require(column, name, "strings", fits=pa.types.is_string(column.type))
        return tuple(column.to_pylist())


def require(column: pa.ChunkedArray, name: str, expected: str, *, fits: bool) -> None:
    """Raise a LoadError unless a column's type fits and no value is missing."""
    if not fits or column.null_count:
        nulls = f" with {column.null_count} nulls" if column.null_count else ""
        raise LoadError.build(
            key=name,
            expected=expected,
            found=f"{column.type}{nulls}",
            advice=RESAVE,
        )


def fields_of(table: TableReader) -> dict[str, Any]:
    """Return the fields of a Batch that a file holds, except `images`.

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
    fields: dict[str, Any] = {
        key: table.texts(name)
        for name, key in (("sample_id", "sample_ids"), ("group_id", "group_ids"))
        if name in table
    }
    if "reward" in table:
        fields["rewards"] = table.number("reward")
    return fields


def _prompts(table: TableReader) -> dict[str, Tensor]:
    if "prompt_ids" not in table:
        return {}
    values, sizes = table.numbers("prompt_ids")
    return {"prompt_ids": values, "prompt_offsets": offsets_of(sizes)}


def _rows(table: TableReader, name: str) -> tuple[Tensor, ...] | None:
    """Return a field with one tensor per sample, in their original shapes."""
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


def load_parquet(path: str | os.PathLike[str]) -> Batch:
    """Read a batch that `save` wrote.

    Screenshots stay in the file until one is requested, so the file must remain.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    Batch

    Raises
    ------
    LoadError
        If the file is broken, not ours, or newer than this package.
    """
    file = Path(path)
    with _load_errors(file), pq.ParquetFile(file) as source:
        footer = Footer.from_metadata(source.schema_arrow.metadata)
        table = TableReader(source, SizeLimit(file))
        return Batch(
            **fields_of(table),
            images=screenshots_of(source, file) if COLUMN in table else None,
            step=footer.step,
            meta=footer.meta_of(file),
            tokenizer=find_tokenizer(footer, file.parent),
        )


def parquet_names(source: Source) -> dict[str, None]:
    """Return the names of the columns and of the metadata of a Parquet file.

    Raises
    ------
    LoadError
        If it is damaged.
    """
    try:
        with pq.ParquetFile(source.path) as file:
            schema = file.schema_arrow
    except BROKEN as error:
        found = f"{type(error).__name__}: {error!s:.80}"
        raise source.damaged(found=found) from error
    marks = [name.decode(errors="replace") for name in schema.metadata or {}]
    return dict.fromkeys([*schema.names, *marks])


@contextmanager
def _load_errors(file: Path) -> Iterator[None]:
    """Turn every error into a LoadError that names the file."""
    try:
        yield
    except RounddiagError as error:
        msg = f"{file}: {error}"
        raise LoadError(msg) from error
    except BROKEN as error:
        raise LoadError.build(
            file=file,
            expected="a whole Parquet file as `rounddiag.save` writes it",
            found=f"{type(error).__name__}: {str(error)[:200]}",
            advice="Save the batch again, or check that all of it was copied.",
        ) from error
