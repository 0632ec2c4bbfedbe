"""Read a batch back from our own Parquet file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.batch.context_store import Contexts
from rounddiag.batch.layout import PER_TOKEN
from rounddiag.batch.left_out import left_out_entry, left_out_in
from rounddiag.batch.turns import Turns, as_turns
from rounddiag.columns.sources import build_offsets
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.loaders.parquet.columns import (
    BROKEN,
    CONTEXTS,
    CONTEXTS_TYPE,
    POSITION_PREFIXES,
    SAMPLE_PREFIX,
    SHAPE_SUFFIX,
    SHAPED,
    TOKEN_PREFIX,
    TURNS,
    TURNS_TYPE,
    SharedTexts,
    marked_tensor,
    open_parquet,
    read_columns,
    read_rounds_column,
    resave_error,
    to_tensor,
)
from rounddiag.loaders.parquet.metadata import Footer, find_tokenizer
from rounddiag.loaders.parquet.screenshots import (
    COLUMN,
    PICTURE_FACTS,
    stored_screenshots,
)
from rounddiag.loaders.source import Source, damage_error
from rounddiag.schema import ORIGINAL_SAMPLE
from rounddiag.wording import format_names

Arrays = dict[str, np.ndarray[Any, Any]]


# The numeric types that torch has too.
_SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_FLOATS = [pa.float16(), pa.float32(), pa.float64()]
_NUMBERS = [pa.bool_(), *_SIGNED, *_UNSIGNED, *_FLOATS]
_PART = 32 * 10**6  # bytes as the file has them


class TableReader:
    """Reads column by column, so that at most one column is held in two copies.

    Parameters
    ----------
    source : ParquetFile
    names : collection of str, optional
        The columns to read; all others count as absent.
    group : int, optional
        The only row group to read.
    """

    def __init__(
        self,
        source: pq.ParquetFile,
        *,
        names: Collection[str] | None = None,
        group: int | None = None,
    ) -> None:
        self._source, self._schema = source, source.schema_arrow
        self._groups = range(source.num_row_groups) if group is None else [group]
        stored: list[str] = self._schema.names
        self.names = stored if names is None else [n for n in stored if n in names]
        self._skipped = {*stored} - {*self.names}
        self._counts = Counter(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._counts

    def skips(self, name: str) -> bool:
        """Return whether the file has this column, and it is not to be read."""
        return name in self._skipped

    def field(self, name: str) -> pa.Field:
        """Return the type and the metadata of a column."""
        return self._schema.field(name)

    def column(self, name: str) -> pa.ChunkedArray:
        """Read a column."""
        return self.columns([name]).column(name)

    def columns(self, names: list[str]) -> pa.Table:
        """Read several columns at once."""
        self._require_one(names)
        read = partial(self._source.read_row_groups, use_threads=False)
        if len(self._groups) < 2:  # noqa: PLR2004 a single one
            return read(self._groups, names)
        # Arrow joins no dictionaries of nested columns across row groups.
        tables = [read([group], names) for group in self._groups]
        return pa.concat_tables(tables).unify_dictionaries()

    def parts(self, names: list[str]) -> Iterator[pa.Table]:
        """Read several columns, some rows after the other, and at least once."""
        self._require_one(names)
        sizes = [self._source.metadata.row_group(group) for group in self._groups]
        num_rows = sum(size.num_rows for size in sizes)
        num_bytes = max(sum(size.total_byte_size for size in sizes), 1)
        step = max(num_rows * _PART // num_bytes, 1)
        if not names or step >= num_rows:
            yield self.columns(names)
            return
        options = {"columns": names, "use_threads": False}
        for part in self._source.iter_batches(step, self._groups, **options):
            yield pa.Table.from_batches([part])

    def _require_one(self, names: list[str]) -> None:
        for name in names:
            if self._counts[name] != 1:
                content = f"{self._counts[name]} among {format_names(self.names)}"
                raise resave_error(name, "one column of this name", content)

    def lists(self, name: str) -> tuple[pa.ChunkedArray, Tensor]:
        """Return the concatenated values of a column of lists, and the lists' sizes."""
        column = self.column(name)
        fits = pa.types.is_list(column.type)
        require(column, name, "a list in each row", fits=fits)
        sizes = pc.list_value_length(column).to_numpy().astype(np.int64)
        return pc.list_flatten(column), torch.from_numpy(sizes)

    def numbers(self, name: str) -> tuple[Tensor, Tensor]:
        """Return the same as `lists`, for a column of lists of numbers.

        They have the dtype that they were saved with.
        """
        values, sizes = self.stored_numbers(name)
        return marked_tensor(values, self.field(name)), sizes

    def stored_numbers(self, name: str) -> tuple[Tensor, Tensor]:
        """Return the same as `numbers`, in the dtype of the column: flags as bool."""
        values, sizes = self.lists(name)
        expected = "a list of numbers in each row"
        require(values, name, expected, fits=values.type in _NUMBERS)
        return to_tensor(values), sizes

    def number(self, name: str) -> Tensor:
        """Return a column of one number per row."""
        column = self.column(name)
        require(column, name, "numbers", fits=column.type in _NUMBERS)
        return marked_tensor(to_tensor(column), self.field(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a column of strings; long ones that are equal are one object."""
        texts: list[str] = []
        share = SharedTexts()
        for part in self.parts([name]):
            column = part.column(0)
            require(column, name, "strings", fits=pa.types.is_string(column.type))
            texts += share(column.to_pylist())
        return tuple(texts)


def require(column: pa.ChunkedArray, name: str, expected: str, *, fits: bool) -> None:
    """Raise a LoadError unless a column's type fits and no value is missing."""
    if not fits or column.null_count:
        nulls = f" with {column.null_count} nulls" if column.null_count else ""
        raise resave_error(name, expected, f"{column.type}{nulls}")


def read_fields(table: TableReader) -> dict[str, Any]:
    """Return the fields of a Batch that a file holds, except `images`."""
    mask = "response_mask"  # has the lengths of the rows
    flags, lengths = table.stored_numbers(mask)
    if not table.skips("response_ids"):
        flags = marked_tensor(flags, table.field(mask))
    stored = [
        name
        for name in table.names
        if name in PER_TOKEN or name.startswith((*POSITION_PREFIXES.values(),))
    ]
    tokens = {n: _tokens(table, n, lengths) for n in stored if n != mask}
    tokens[mask] = flags
    return {
        **{name: tokens[name] for name in PER_TOKEN if name in tokens},
        **{
            name: _select_prefix(tokens, prefix)
            for name, prefix in POSITION_PREFIXES.items()
        },
        "lengths": lengths,
        "offsets": build_offsets(lengths),
        **_samples(table),
        **_prompts(table),
        "turns": _turns(table),
        "contexts": _contexts(table),
        **{name: _rows(table, name) for name in SHAPED},
        "sample_columns": _sample_columns(table),
        "round_columns": _rounds(table),
    }


def _select_prefix(columns: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in columns.items()
        if name.startswith(prefix)
    }


def _tokens(table: TableReader, name: str, lengths: Tensor) -> Tensor:
    values, sizes = table.numbers(name)
    if not torch.equal(sizes, lengths):
        row = int((sizes != lengths).nonzero()[0])
        expected = f"{lengths[row]} values in row {row}, as `response_mask`"
        raise resave_error(name, expected, f"{sizes[row]}")
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
    return {"prompt_ids": values, "prompt_offsets": build_offsets(sizes)}


def _turns(table: TableReader) -> Turns | None:
    if TURNS not in table:
        return None
    share = SharedTexts()
    column = table.column(TURNS)
    expected = "a list of role, text and number of images in each row"
    require(column, TURNS, expected, fits=column.type == TURNS_TYPE)
    rows = [[(*share([*turn.values()]),) for turn in row] for row in column.to_pylist()]
    return as_turns(rows)


def _contexts(table: TableReader) -> Contexts | None:
    # Their ranges are of prompts and responses, in rounds that `round_ids` may divide.
    if CONTEXTS not in table:
        return None
    column = table.column(CONTEXTS)
    expected = "a list of round, start and ranges in each row"
    require(column, CONTEXTS, expected, fits=column.type == CONTEXTS_TYPE)
    sizes = pc.list_value_length(column).to_numpy()
    round_, start, ranges = pc.list_flatten(column).combine_chunks().flatten()
    ends = np.cumsum(pc.list_value_length(ranges).to_numpy() // 2)
    return Contexts(
        sample=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
        round=round_.to_numpy(),
        start=start.to_numpy(),
        offsets=np.append(0, ends),
        ranges=pc.list_flatten(ranges).to_numpy().reshape(-1, 2),
    )


def _rows(table: TableReader, name: str) -> tuple[Tensor, ...] | None:
    if name not in table:
        return None
    values, sizes = table.numbers(name)
    rows: tuple[Tensor, ...] = values.split(sizes.tolist())
    if f"{name}{SHAPE_SUFFIX}" not in table:
        return rows
    shapes = table.column(f"{name}{SHAPE_SUFFIX}").to_pylist()
    if [prod(shape) for shape in shapes] != sizes.tolist():
        key, expected = f"{name}{SHAPE_SUFFIX}", f"the shape of each row of `{name}`"
        raise resave_error(key, expected, "other numbers of values")
    return tuple(row.reshape(shape) for row, shape in zip(rows, shapes, strict=True))


def _sample_columns(table: TableReader) -> Arrays:
    names = [name for name in table.names if name.startswith(SAMPLE_PREFIX)]
    fields = [table.field(name) for name in names]
    parts = ([part.column(name) for name in names] for part in table.parts(names))
    return _select_prefix(read_columns(fields, parts), SAMPLE_PREFIX)


def _rounds(table: TableReader) -> Arrays:
    name = "round_columns"
    if name not in table:
        return {}
    field = table.field(name)
    expected = "a list of structs in each row"
    if not (pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type)):
        require(table.lists(name)[0], name, expected, fits=False)

    def columns() -> Iterator[pa.ChunkedArray]:
        for part in table.parts([name]):
            column = part.column(0)
            require(column, name, "a list in each row", fits=True)
            require(pc.list_flatten(column), name, expected, fits=True)
            yield column

    return read_rounds_column(columns(), field)


def load_parquet(path: str | os.PathLike[str]) -> Batch:
    """Read a batch that `save` wrote.

    Screenshots stay in the file until one is requested, so the file must remain.
    """
    file = Path(path)
    with _load_errors(file), open_parquet(file) as source:
        return _read_batch(source, file)


_OF_BATCH = ("sample_id", "group_id", "reward", "prompt_ids", "round_columns")
_KNOWN = {
    *(*PER_TOKEN, *_OF_BATCH, TURNS, CONTEXTS, COLUMN, PICTURE_FACTS),
    *(f"{name}{end}" for name in SHAPED for end in ("", SHAPE_SUFFIX)),
}
_PREFIXES = (SAMPLE_PREFIX, *POSITION_PREFIXES.values())


def _read_batch(
    source: pq.ParquetFile,
    file: Path,
    *,
    names: Collection[str] | None = None,
    group: int | None = None,
) -> Batch:
    footer = Footer.from_metadata(source.schema_arrow.metadata)
    table = TableReader(source, names=names, group=group)
    fields = read_fields(table)
    if footer.meta.get("redacted"):
        fields["response_ids"] = None  # former versions wrote zeros
    meta = footer.meta_with_source(file)
    unknown = {name for name in table.names if not name.startswith(_PREFIXES)} - _KNOWN
    if unknown:
        meta |= left_out_entry({*unknown, *left_out_in(meta)})
    return Batch(
        **fields,
        images=stored_screenshots(source, file, group) if COLUMN in table else None,
        step=footer.step,
        meta=meta,
        tokenizer=find_tokenizer(footer, file.parent) if names is None else None,
    )


def load_columns(
    path: str | os.PathLike[str], names: Collection[str], *, open_columns: bool = False
) -> Batch:
    """Read some columns of a batch that `save` wrote, and none of its screenshots.

    `open_columns` adds those of samples, rounds and tokens.
    """
    file = Path(path)
    with _load_errors(file), open_parquet(file) as source:
        selected = {*names} - {COLUMN}
        if open_columns:
            selected |= {
                name
                for name in source.schema_arrow.names
                if name.startswith((SAMPLE_PREFIX, TOKEN_PREFIX))
                or name == "round_columns"
            }
        return _read_batch(source, file, names=selected)


def load_sample(path: str | os.PathLike[str], sample: int) -> Batch:
    """Read one sample of a batch that `save` wrote; only its row group is read."""
    file = Path(path)
    with _load_errors(file), open_parquet(file) as source:
        sizes = [
            source.metadata.row_group(group).num_rows
            for group in range(source.num_row_groups)
        ]
        ends = np.cumsum([0, *sizes])
        require_sample(sample, int(ends[-1]))
        group = int(np.searchsorted(ends, sample, side="right")) - 1
        batch = _read_batch(source, file, group=group)
    selected = batch[sample - int(ends[group])]
    # The file is a selection of samples: its column counts in the original batch.
    if ORIGINAL_SAMPLE.name in batch.sample_columns:
        return selected
    number = np.array([sample], dtype=ORIGINAL_SAMPLE.dtype)
    columns = {**selected.sample_columns, ORIGINAL_SAMPLE.name: number}
    return replace(selected, sample_columns=columns)


def require_sample(sample: int, num_samples: int) -> None:
    """Raise a LoadError if there is no sample of this number."""
    if not num_samples:
        raise LoadError.build(
            key="sample",
            expected="a step with samples",
            found="one without",
            advice="Choose another step.",
        )
    if not 0 <= sample < num_samples:
        raise LoadError.build(
            key="sample",
            expected=f"a sample from 0 to {num_samples - 1}",
            found=str(sample),
            advice="Count samples from 0.",
        )


def parquet_names(source: Source) -> dict[str, None]:
    """Return the names of the columns and of the metadata of a Parquet file."""
    try:
        with open_parquet(source.path) as file:
            schema = file.schema_arrow
    except BROKEN as error:
        said = str(error).partition(". ")[0]  # Arrow goes on to guess
        fault = f"{type(error).__name__}: {said:.80}"
        raise damage_error(found=fault) from error
    marks = [name.decode(errors="replace") for name in schema.metadata or {}]
    return dict.fromkeys([*schema.names, *marks])


@contextmanager
def _load_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except RounddiagError as error:
        raise LoadError(f"{file}: {error}") from error
    except BROKEN as error:
        raise LoadError.build(
            file=file,
            expected="a whole Parquet file as `rounddiag.save` writes it",
            found=f"{type(error).__name__}: {str(error)[:200].rstrip('.')}",
            advice="Save the batch again, or check that all of it was copied.",
        ) from error
