"""Batch -> Parquet."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from rounddiag.errors import BatchError
from rounddiag.loaders.parquet import columns, screenshots
from rounddiag.loaders.parquet.footer import KEY, Footer, tokenizer_name
from rounddiag.loaders.parquet.table import SAMPLE, SCORE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

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
    >>> save(batch, "step_40.parquet")  # doctest: +SKIP
    """
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    table = _table(batch, file.parent)
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


def _table(batch: Batch, folder: Path) -> pa.Table:
    found = [*_named(batch), *_tokens(batch), *_prompts(batch), *_open(batch)]
    fields, arrays = zip(*found, strict=True)
    footer = Footer(
        step=batch.step, tokenizer=tokenizer_name(batch, folder), meta=batch.meta
    )
    schema = pa.schema(fields, metadata={KEY: footer.to_json()})
    return pa.Table.from_arrays(list(arrays), schema=schema)


Column = tuple[pa.Field, pa.Array]


def _named(batch: Batch) -> Iterator[Column]:
    for name, texts in (
        ("sample_id", batch.sample_ids),
        ("group_id", batch.group_ids),
    ):
        if texts is not None:
            yield _column(name, columns.text_array(name, texts))
    if batch.rewards is not None:
        yield _column("reward", pa.array(columns.host_array(batch.rewards)))


def _tokens(batch: Batch) -> Iterator[Column]:
    lengths = batch.lengths.cpu()
    scores = {f"{SCORE}{name}": value for name, value in batch.scores.items()}
    for name, flat in {**batch.per_token, **scores}.items():
        real = _without_padding(flat, batch.offsets.cpu(), lengths)
        is_mask = name in {"response_mask", "loss_mask"}
        values = columns.mask_array(real) if is_mask else columns.host_array(real)
        yield _column(name, columns.list_array(values, lengths.numpy()))


def _prompts(batch: Batch) -> Iterator[Column]:
    if batch.prompt_ids is not None and batch.prompt_offsets is not None:
        limits = batch.prompt_offsets.cpu()
        values = columns.host_array(batch.prompt_ids[limits[0] :])
        yield _column("prompt_ids", columns.list_array(values, limits.diff().numpy()))


def _open(batch: Batch) -> Iterator[Column]:
    if batch.position_ids is not None:
        yield from _positions(batch.position_ids)
    if batch.images is not None:
        yield _column(screenshots.COLUMN, _screenshots(batch))
    if batch.round_columns:
        yield _column("round_columns", _round_columns(batch))
    for name, values in batch.sample_columns.items():
        yield columns.open_column(f"{SAMPLE}{name}", values)


def _positions(rows: tuple[Tensor, ...]) -> Iterator[Column]:
    flat = [row.reshape(-1) for row in rows]
    values = torch.cat(flat) if flat else torch.empty(0, dtype=torch.int64)
    sizes = np.array([len(row) for row in flat], dtype=np.int64)
    yield _column("position_ids", columns.list_array(columns.host_array(values), sizes))
    shapes = [list(row.shape) for row in rows]
    yield _column("position_ids_shape", pa.array(shapes, pa.list_(pa.int32())))


def _screenshots(batch: Batch) -> pa.Array:
    rows = [
        [
            {
                "bytes": screenshots.encoded_bytes(shot),
                "path": None,
                "round": shot.round,
            }
            for shot in shots
        ]
        for shots in batch.images or ()
    ]
    return pa.array(rows, screenshots.TYPE)


def _round_columns(batch: Batch) -> pa.Array:
    sample = batch.round_columns["sample"]
    sizes = _rows_a_sample(sample, batch.num_samples)
    order = np.argsort(sample, kind="stable")
    found = [
        columns.open_column(name, values[order])
        for name, values in batch.round_columns.items()
        if name != "sample"
    ]
    structs = pa.StructArray.from_arrays(
        [array for _, array in found], fields=[field for field, _ in found]
    )
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, structs)


def _rows_a_sample(
    sample: np.ndarray[Any, Any], num_samples: int
) -> np.ndarray[Any, Any]:
    if sample.dtype.kind not in "iu" or ((sample < 0) | (sample >= num_samples)).any():
        raise BatchError.build(
            key="round_columns",
            expected=f"samples from 0 to {num_samples - 1}",
            found=f"{sample.dtype} values {sorted(set(sample.tolist()), key=str)[-3:]}",
            advice="Number the samples as the batch does.",
        )
    return np.bincount(sample, minlength=num_samples)


def _without_padding(flat: Tensor, offsets: Tensor, lengths: Tensor) -> Tensor:
    if bool((offsets.diff() == lengths).all()):
        return flat
    spans = zip(offsets[:-1].tolist(), lengths.tolist(), strict=True)
    return torch.cat([flat[start : start + length] for start, length in spans])


def _column(name: str, array: pa.Array) -> Column:
    return pa.field(name, array.type), array


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
