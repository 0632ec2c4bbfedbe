"""Batch -> Parquet."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from rounddiag.loaders.parquet.footer import KEY, Footer, tokenizer_name
from rounddiag.loaders.parquet.to_table import table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.batch import Batch

# Positions a row group: one sample is read fast, and short ones share a group.
_GROUP = 1 << 15


def save(batch: Batch, path: str | os.PathLike[str]) -> None:
    """Write a batch as Parquet, one row a sample, without loss.

    Padding is left out; bfloat16 and float16 become float32, and objects in
    `sample_columns` and `round_columns` come back as JSON has them (a tuple as a
    list). A `tokenizer` is kept if it is a file beside or below `path`. A file that is
    there already is replaced only when the new one is whole.

    Parameters
    ----------
    batch : Batch
    path : path-like
        Where to write; its folder is made if it is not there.

    Raises
    ------
    BatchError
        If an open column or `meta` holds objects that a file cannot hold.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rd.save(batch[:2], f"{folder}/two.parquet")
    ...     len(rd.load(f"{folder}/two.parquet"))
    2
    """
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    footer = Footer(
        step=batch.step, tokenizer=tokenizer_name(batch, file.parent), meta=batch.meta
    )
    table = table_of(batch).replace_schema_metadata({KEY: footer.to_json()})
    with whole_file(file) as partial:
        pq.write_table(
            table,
            partial,
            row_group_size=_rows_a_group(batch),
            compression="zstd",
            use_dictionary=False,
            write_statistics=False,
            column_encoding=_encodings(table.schema),
        )


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Give a path to write to, whose file takes the place of `file` when whole."""
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _rows_a_group(batch: Batch) -> int:
    mean = int(batch.lengths.sum()) // max(batch.num_samples, 1)
    return max(1, _GROUP // max(mean, 1))


def _encodings(schema: pa.Schema) -> dict[str, str]:
    """Name an encoding for each list of numbers; other columns keep the default."""
    found = {}
    for field in schema:
        if pa.types.is_list(field.type):
            path = f"{field.name}.list.element"
            if pa.types.is_floating(field.type.value_type):
                found[path] = "BYTE_STREAM_SPLIT"
            elif pa.types.is_integer(field.type.value_type):
                found[path] = "DELTA_BINARY_PACKED"
    return found
