"""Batch -> Parquet."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from rounddiag.batch.batch import require_batch
from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import (
    list_array,
    mask_array,
    open_column,
    rounds_column,
    tensor_mark,
    text_array,
    to_numpy,
)
from rounddiag.loaders.parquet.metadata import KEY, Footer, redacted, tokenizer_name
from rounddiag.loaders.parquet.screenshots import FEATURES, screenshot_columns

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
        array = pa.array(to_numpy(batch.rewards))
        yield _column("reward", array, batch.rewards)


def _tokens(batch: Batch) -> Iterator[Column]:
    lengths = batch.lengths.cpu()
    scores = {f"{SCORE}{name}": value for name, value in batch.scores.items()}
    for name, flat in {**batch.per_token, **scores}.items():
        real = _without_padding(flat, batch.offsets.cpu(), lengths)
        is_mask = name in {"response_mask", "loss_mask"}
        values = mask_array(real) if is_mask else to_numpy(real)
        yield _column(name, list_array(values, lengths.numpy()), flat)


def _prompts(batch: Batch) -> Iterator[Column]:
    ids, offsets = batch.prompt_ids, batch.prompt_offsets
    if ids is not None and offsets is not None:
        limits = offsets.cpu()
        values = to_numpy(ids[limits[0] :])
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
    yield _column(name, list_array(to_numpy(values), sizes), values)
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


# Positions a row group: one sample is read fast, and short ones share a group.
_GROUP = 1 << 15


def save(batch: Batch, path: str | os.PathLike[str], *, redact: bool = False) -> None:
    """Write a batch as Parquet, one row a sample, without loss.

    Padding is left out, and objects in `sample_columns`, `round_columns` and `meta`
    come back as JSON has them (a tuple as a list); everything else comes back with its
    values and its dtype. A `tokenizer` is kept if it is a file beside or below `path`.
    A file that is there already is replaced only when the new one is whole.

    Parameters
    ----------
    batch : Batch
    path : path-like
        Where to write; its folder is made if it is not there.
    redact : bool
        Leave out whatever could tell the task: token ids (the responses' become 0),
        prompts, the sampler's ids, screenshots, the tokenizer, columns of texts, times,
        lists and objects, columns named after an id or a hash, and `meta`.

        What stays: the masks, all log-probabilities with the scores' names, `entropy`,
        `advantages`, `rewards`, `round_ids`, `position_ids`, `step`, columns of one
        number or flag a row with their names, and of `meta` the counts (`num_*`), the
        numbers in `sampling`, `mask_source` and `rounds`. Sample and group ids become
        numbers, so that groups stay groups. Loaded, `meta["redacted"]` is True.

    Raises
    ------
    BatchError
        If it is no Batch, or an open column or `meta` holds objects that a file cannot
        hold.

    Notes
    -----
    pandas, DuckDB and Hugging Face `datasets` read the file without this package, and
    the last shows the screenshots. In DuckDB, the mean of the absolute `diff` of each
    round, in nats, where the mask alone tells the rounds:

    .. code-block:: sql

        WITH tokens AS (
            SELECT
                sample,
                unnest(range(len(response_mask))) AS position,
                unnest(response_mask) AS is_written,
                unnest(old_log_probs) - unnest(rollout_log_probs) AS diff
            FROM (SELECT row_number() OVER () AS sample, * FROM 'batch.parquet')
        ),
        numbered AS (
            SELECT *, position - row_number() OVER in_order AS run
            FROM tokens WHERE is_written
            WINDOW in_order AS (PARTITION BY sample ORDER BY position)
        ),
        rounds AS (
            SELECT *, dense_rank() OVER (PARTITION BY sample ORDER BY run) - 1 AS round
            FROM numbered
        )
        SELECT round, count(*) AS num_tokens, avg(abs(diff)) AS mean_abs_diff
        FROM rounds GROUP BY round ORDER BY round

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rd.save(batch[:2], f"{folder}/two.parquet", redact=True)
    ...     rd.load(f"{folder}/two.parquet").group_ids
    ('0', '0')
    """
    require_batch(batch)
    batch = redacted(batch) if redact else batch
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    footer = Footer(
        step=batch.step, tokenizer=tokenizer_name(batch, file.parent), meta=batch.meta
    )
    metadata = {KEY: footer.to_json()}
    if batch.images is not None:
        metadata[b"huggingface"] = json.dumps({"info": {"features": FEATURES}})
    table = table_of(batch).replace_schema_metadata(metadata)
    with write_atomically(file) as partial:
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
def write_atomically(file: Path) -> Iterator[Path]:
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
