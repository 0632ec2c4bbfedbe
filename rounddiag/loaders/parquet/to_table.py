"""The fields of a Batch as the columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import (
    host_array,
    list_array,
    mask_array,
    text_array,
)
from rounddiag.loaders.parquet.dtypes import tensor_mark
from rounddiag.loaders.parquet.open_columns import open_column
from rounddiag.loaders.parquet.round_columns import rounds_column
from rounddiag.loaders.parquet.screenshot_columns import screenshot_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from rounddiag.batch import Batch

    Column = tuple[pa.Field, pa.Array]

# What stands before the names of open columns.
SCORE, SAMPLE = "score:", "sample:"
SHAPE = "_shape"  # after the name of a field whose rows have dimensions of their own


def table_of(batch: Batch) -> pa.Table:
    """Return the table of a batch: one row a sample, padding left out.

    Raises
    ------
    BatchError
        If an open column holds objects that a file cannot hold, or has a name that is
        no Unicode.
    """
    parts = (_named(batch), _tokens(batch), _prompts(batch), _others(batch))
    try:
        columns = [column for part in parts for column in part]
    except UnicodeEncodeError as error:
        raise BatchError.build(
            expected="names of columns and scores that UTF-8 can hold",
            found=repr(error.object),
            advice="Rename it.",
        ) from error
    fields, arrays = zip(*columns, strict=True)
    return pa.Table.from_arrays(list(arrays), schema=pa.schema(fields))


def _named(batch: Batch) -> Iterator[Column]:
    for name, texts in (
        ("sample_id", batch.sample_ids),
        ("group_id", batch.group_ids),
    ):
        if texts is not None:
            yield _column(name, text_array(name, texts))
    if batch.rewards is not None:
        array = pa.array(host_array(batch.rewards))
        yield _column("reward", array, batch.rewards)


def _tokens(batch: Batch) -> Iterator[Column]:
    lengths = batch.lengths.cpu()
    scores = {f"{SCORE}{name}": value for name, value in batch.scores.items()}
    for name, flat in {**batch.per_token, **scores}.items():
        real = _without_padding(flat, batch.offsets.cpu(), lengths)
        is_mask = name in {"response_mask", "loss_mask"}
        values = mask_array(real) if is_mask else host_array(real)
        yield _column(name, list_array(values, lengths.numpy()), flat)


def _prompts(batch: Batch) -> Iterator[Column]:
    ids, offsets = batch.prompt_ids, batch.prompt_offsets
    if ids is not None and offsets is not None:
        limits = offsets.cpu()
        values = host_array(ids[limits[0] :])
        yield _column("prompt_ids", list_array(values, limits.diff().numpy()), ids)


def _others(batch: Batch) -> Iterator[Column]:
    for name in ("position_ids", "rollout_ids"):
        rows = getattr(batch, name)
        if rows is not None:
            yield from _rows(name, rows)
    if batch.images is not None:
        yield from screenshot_columns(batch.images)
    if batch.round_columns:
        yield rounds_column(batch.round_columns, batch.num_samples)
    for name, values in batch.sample_columns.items():
        yield open_column(f"{SAMPLE}{name}", values)


def _rows(name: str, rows: tuple[Tensor, ...]) -> Iterator[Column]:
    """Yield one tensor a sample, and their shapes if they have any."""
    flat = [row.reshape(-1) for row in rows]
    values = torch.cat(flat) if flat else torch.empty(0, dtype=torch.int64)
    sizes = np.array([len(row) for row in flat], dtype=np.int64)
    yield _column(name, list_array(host_array(values), sizes), values)
    if any(row.dim() != 1 for row in rows):
        shapes = [list(row.shape) for row in rows]
        yield _column(f"{name}{SHAPE}", pa.array(shapes, pa.list_(pa.int32())))


def _without_padding(flat: Tensor, offsets: Tensor, lengths: Tensor) -> Tensor:
    if bool((offsets.diff() == lengths).all()):
        return flat
    spans = zip(offsets[:-1].tolist(), lengths.tolist(), strict=True)
    return torch.cat([flat[start : start + length] for start, length in spans])


def _column(name: str, array: pa.Array, tensor: Tensor | None = None) -> Column:
    """Return a column, marked with the dtype of the tensor that it stands for."""
    mark = None if tensor is None else tensor_mark(tensor.dtype)
    return pa.field(name, array.type, metadata=mark), array
