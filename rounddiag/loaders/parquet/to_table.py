"""The fields of a Batch as the columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from rounddiag.loaders.parquet.columns import (
    host_array,
    list_array,
    mask_array,
    text_array,
)
from rounddiag.loaders.parquet.open_columns import open_column
from rounddiag.loaders.parquet.round_columns import rounds_array
from rounddiag.loaders.parquet.screenshots import COLUMN, screenshot_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from rounddiag.batch import Batch

    Column = tuple[pa.Field, pa.Array]

# What stands before the names of open columns.
SCORE, SAMPLE = "score:", "sample:"


def table_of(batch: Batch) -> pa.Table:
    """Return the table of a batch: one row a sample, padding left out.

    Raises
    ------
    BatchError
        If an open column holds objects that a file cannot hold.
    """
    parts = (_named(batch), _tokens(batch), _prompts(batch), _others(batch))
    fields, arrays = zip(*(column for part in parts for column in part), strict=True)
    return pa.Table.from_arrays(list(arrays), schema=pa.schema(fields))


def _named(batch: Batch) -> Iterator[Column]:
    for name, texts in (
        ("sample_id", batch.sample_ids),
        ("group_id", batch.group_ids),
    ):
        if texts is not None:
            yield _column(name, text_array(name, texts))
    if batch.rewards is not None:
        yield _column("reward", pa.array(host_array(batch.rewards)))


def _tokens(batch: Batch) -> Iterator[Column]:
    lengths = batch.lengths.cpu()
    scores = {f"{SCORE}{name}": value for name, value in batch.scores.items()}
    for name, flat in {**batch.per_token, **scores}.items():
        real = _without_padding(flat, batch.offsets.cpu(), lengths)
        is_mask = name in {"response_mask", "loss_mask"}
        values = mask_array(real) if is_mask else host_array(real)
        yield _column(name, list_array(values, lengths.numpy()))


def _prompts(batch: Batch) -> Iterator[Column]:
    if batch.prompt_ids is not None and batch.prompt_offsets is not None:
        limits = batch.prompt_offsets.cpu()
        values = host_array(batch.prompt_ids[limits[0] :])
        yield _column("prompt_ids", list_array(values, limits.diff().numpy()))


def _others(batch: Batch) -> Iterator[Column]:
    if batch.position_ids is not None:
        yield from _positions(batch.position_ids)
    if batch.images is not None:
        yield _column(COLUMN, screenshot_array(batch.images))
    if batch.round_columns:
        array = rounds_array(batch.round_columns, batch.num_samples)
        yield _column("round_columns", array)
    for name, values in batch.sample_columns.items():
        yield open_column(f"{SAMPLE}{name}", values)


def _positions(rows: tuple[Tensor, ...]) -> Iterator[Column]:
    flat = [row.reshape(-1) for row in rows]
    values = torch.cat(flat) if flat else torch.empty(0, dtype=torch.int64)
    sizes = np.array([len(row) for row in flat], dtype=np.int64)
    yield _column("position_ids", list_array(host_array(values), sizes))
    shapes = [list(row.shape) for row in rows]
    yield _column("position_ids_shape", pa.array(shapes, pa.list_(pa.int32())))


def _without_padding(flat: Tensor, offsets: Tensor, lengths: Tensor) -> Tensor:
    if bool((offsets.diff() == lengths).all()):
        return flat
    spans = zip(offsets[:-1].tolist(), lengths.tolist(), strict=True)
    return torch.cat([flat[start : start + length] for start, length in spans])


def _column(name: str, array: pa.Array) -> Column:
    return pa.field(name, array.type), array
