"""Write a batch as our own Parquet file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.batch.batch import require_batch
from rounddiag.batch.context_store import Contexts
from rounddiag.errors import LoadError
from rounddiag.loaders.output import (
    FileKind,
    check_target,
    write_atomically,
)
from rounddiag.loaders.parquet.columns import (
    BROKEN,
    CONTEXTS,
    CONTEXTS_TYPE,
    OPEN_TEXT,
    POSITION_PREFIXES,
    SAMPLE_PREFIX,
    SHAPE_SUFFIX,
    SHAPED,
    TURNS,
    TURNS_TYPE,
    list_array,
    mask_array,
    open_column,
    real_values,
    rounds_column,
    stored_array,
    tensor_mark,
)
from rounddiag.loaders.parquet.metadata import KEY, Footer, tokenizer_name
from rounddiag.loaders.parquet.redaction import redact as redact_batch
from rounddiag.loaders.parquet.screenshots import (
    HUGGINGFACE_FEATURES,
    screenshot_columns,
)
from rounddiag.loaders.parquet.totals import reserve_digest, totals_entry, write_digest
from rounddiag.loaders.paths import resolve_paths

_Column = tuple[pa.Field, pa.Array]


def _make_table(batch: Batch) -> pa.Table:
    parts = (_sample_values(batch), _tokens(batch), _prompts(batch), _others(batch))
    columns = [column for part in parts for column in part]
    fields, arrays = zip(*columns, strict=True)
    return pa.Table.from_arrays(list(arrays), schema=pa.schema(fields))


def _sample_values(batch: Batch) -> Iterator[_Column]:
    for name, texts in (("sample_id", batch.sample_ids), ("group_id", batch.group_ids)):
        if texts is not None:
            yield _column(name, pa.array(texts, pa.string()))
    if batch.rewards is not None:
        array = pa.array(stored_array(batch.rewards))
        yield _column("reward", array, batch.rewards)


def _tokens(batch: Batch) -> Iterator[_Column]:
    lengths = batch.lengths.cpu()
    others = {
        f"{prefix}{name}": flat
        for table, prefix in POSITION_PREFIXES.items()
        for name, flat in getattr(batch, table).items()
    }
    for name, flat in {**batch.per_token, **others}.items():
        real = real_values(flat, batch.offsets.cpu(), lengths)
        match name:
            case "response_mask":  # of 0 and 1, as every batch's
                values = stored_array(real != 0)
            case "loss_mask":
                values = mask_array(real)
            case _:
                values = stored_array(real)
        yield _column(name, list_array(values, lengths.numpy()), flat)


def _prompts(batch: Batch) -> Iterator[_Column]:
    ids, offsets = batch.prompt_ids, batch.prompt_offsets
    if ids is not None and offsets is not None:
        limits = offsets.cpu()
        values = stored_array(ids[limits[0] :])
        yield _column("prompt_ids", list_array(values, limits.diff().numpy()), ids)


def _others(batch: Batch) -> Iterator[_Column]:
    for name in SHAPED:
        rows = getattr(batch, name)
        if rows is not None:
            yield from _rows(name, rows)
    if batch.turns is not None:
        rows = [[turn._asdict() for turn in turns] for turns in batch.turns]
        yield _column(TURNS, pa.array(rows, TURNS_TYPE))
    if batch.contexts is not None:
        yield _column(CONTEXTS, _context_array(batch.contexts, batch.num_samples))
    if batch.images is not None:
        yield from screenshot_columns(batch.images)
    if batch.round_columns:
        yield rounds_column(batch.round_columns, batch.num_samples)
    for name, values in batch.sample_columns.items():
        yield open_column(f"{SAMPLE_PREFIX}{name}", values)


def _context_array(contexts: Contexts, num_samples: int) -> pa.Array:
    """Return the contexts of each sample that do not append to the one before."""
    numbers = pa.array(contexts.ranges.reshape(-1), pa.int32())
    offsets = pa.array(2 * contexts.offsets, pa.int32())
    parts = [
        pa.array(contexts.round, pa.int32()),
        pa.array(contexts.start, pa.int32()),
        pa.ListArray.from_arrays(offsets, numbers),
    ]
    limits = np.searchsorted(contexts.sample, np.arange(num_samples + 1))
    kind = CONTEXTS_TYPE.value_type
    structs = pa.StructArray.from_arrays(parts, fields=[*kind])
    return pa.ListArray.from_arrays(pa.array(limits, pa.int32()), structs)


def _rows(name: str, rows: tuple[Tensor, ...]) -> Iterator[_Column]:
    flat = [row.reshape(-1) for row in rows]
    values = torch.cat(flat) if flat else torch.empty(0, dtype=torch.int64)
    sizes = np.array([len(row) for row in flat], dtype=np.int64)
    yield _column(name, list_array(stored_array(values), sizes), values)
    if any(row.dim() != 1 for row in rows):
        shapes = [list(row.shape) for row in rows]
        yield _column(f"{name}{SHAPE_SUFFIX}", pa.array(shapes, pa.list_(pa.int32())))


def _column(name: str, array: pa.Array, tensor: Tensor | None = None) -> _Column:
    mark = None if tensor is None else tensor_mark(tensor.dtype)
    return pa.field(name, array.type, metadata=mark), array


# Positions per row group. One sample is read by reading its group, so that large ones
# would be slow; all samples are read nearly twice as fast as in groups of 2^15. A
# picture is read with all others of its group.
_GROUP, _GROUP_WITH_PICTURES = 1 << 17, 1 << 15


def save(batch: Batch, path: str | os.PathLike[str], *, redact: bool = False) -> None:
    """Write a batch as Parquet, one row per sample, without loss.

    - Everything keeps its values and its dtype. Padding is left out, and objects in
      `sample_columns`, `round_columns` and `meta` come back as in JSON (a tuple as a
      list).
    - A `tokenizer` is kept if it is a file in the folder of `path` or below.
    - An existing file is replaced only when the new one is complete, and only if it is
      such a file too, and not the one that the batch was loaded from.

    Parameters
    ----------
    batch : Batch
    path : path-like
        The file to write. Its folder is created if it does not exist.
    redact : bool
        Leave out everything that could reveal the task, and print what the file has.

        =========  =================================================================
        kept       masks, both log-probabilities, `entropy`, `advantages`, `rewards`,
                   `position_ids`, `step`, the ranges of `contexts`; columns of one
                   number or flag per row or token, and `scores`
        numbered   sample ids, group ids and `round_ids`; the values of columns named
                   after an id or a hash, in any spelling; whole numbers in columns
                   whose name is not known (of tokens they are left out: they can be
                   ids); the names of such columns and scores
        of `meta`  `num_dropped_rows`, `num_dropped_copies`,
                   `num_records_without_tokens`, the sampler's numbers and
                   `logprobs_mode` in `sampling`, `mask_source` and `rounds`
        left out   everything else: token ids, prompts, texts, screenshots, the
                   tokenizer, columns of texts, times, lists and objects
        =========  =================================================================

        Names that are known are those in
        `rounddiag.loaders.parquet.redaction.KNOWN_COLUMNS` and `KNOWN_SCORES`. When the
        file is loaded, `meta["redacted"]` is True.

    Notes
    -----
    pandas, DuckDB and Hugging Face `datasets` read the file without this package;
    `datasets` shows the screenshots. The mean of the absolute `diff` of each round in
    DuckDB, in nats, for a batch without `round_ids`:

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
    2 samples, of which the file has:
      unchanged: response_mask, rollout_log_probs, old_log_probs, rewards, step
      numbered: sample_ids, group_ids
      sample_columns: original_sample
      round_columns: sample, round, parsed, weight_version, num_images
      meta: mask_source, sampling, redacted, temperature, top_p, top_k, logprobs_mode
    """
    require_batch(batch)
    # A redacted batch does not say what it was loaded from.
    check_target(Path(path), BATCH_FILE, _source_files(batch))
    if not redact:
        write_batch(batch, path)
        return
    redacted = redact_batch(batch)
    write_batch(redacted.batch, path)
    print(redacted)  # noqa: T201 what the user is about to hand on


def has_entry(stream: IO[bytes], *keys: str) -> bool:
    """Return whether a file is a batch of ours; with entries in its `meta`."""
    with suppress(*BROKEN):  # also a LoadError, which is a ValueError
        metadata = pq.read_schema(stream).metadata or {}
        known = Footer.from_metadata(metadata).meta if keys else {}
        return KEY in metadata and {*keys} <= known.keys()
    return False


BATCH_FILE = FileKind("a batch that rounddiag saved", has_entry)


def write_batch(
    batch: Batch, path: str | os.PathLike[str], kind: FileKind = BATCH_FILE
) -> None:
    """Write a batch as `save` does."""
    batch = batch if batch.response_mask.is_cpu else batch.to("cpu")
    file = Path(path)
    footer = Footer(
        step=batch.step, tokenizer=tokenizer_name(batch, file.parent), meta=batch.meta
    )
    metadata = {KEY: footer.to_json(), **totals_entry(batch)}
    if batch.images is not None:
        metadata[b"huggingface"] = json.dumps(
            {"info": {"features": HUGGINGFACE_FEATURES}}
        )
    table = _make_table(batch).replace_schema_metadata(metadata)
    with write_atomically(file, kind, _source_files(batch)) as partial:
        with pq.ParquetWriter(
            partial,
            table.schema,
            write_statistics=False,
            dictionary_pagesize_limit=_DICTIONARY,
            **_storage(table.schema),
        ) as writer:
            writer.write_table(table, row_group_size=_rows_per_group(batch))
            reserve_digest(writer)
        write_digest(partial)


_SEVERAL = re.compile(r"(.*) \(\d+ files\)", re.DOTALL)


def _source_files(batch: Batch) -> list[Path]:
    source = str(batch.meta.get("source", ""))
    several = _SEVERAL.fullmatch(source)
    with suppress(LoadError, RuntimeError):  # no such files; no home of a user
        return resolve_paths(several[1]) if several else [Path(source).expanduser()]
    return []


def _rows_per_group(batch: Batch) -> int:
    mean = int(batch.lengths.sum()) // max(batch.num_samples, 1)
    size = _GROUP if batch.images is None else _GROUP_WITH_PICTURES
    return max(1, size // max(mean, 1))


# Tokens recur, those of a screenshot hundreds of times, which zstd finds: plain ids of
# text take 1 byte each and as differences 2.4, those of trajectories 0.25 and 0.8.
_TOKEN_IDS = ("response_ids", "prompt_ids", "rollout_ids")
# Half of the time goes into the structure of the lists. Of the levels of zstd, -1
# writes 5 to 15 % faster than 1, for files that are 1 % larger. Log-probs in LZ4 are
# written in 3/4 of the time, and are 6 to 9 % larger; pyarrow, DuckDB and `datasets`
# read them.
_ZSTD_LEVEL = -1
_DICTIONARY = 1 << 28  # bytes of distinct texts: a long one is stored once


def _storage(schema: pa.Schema) -> dict[str, Any]:
    encodings, codecs = {}, {}
    texts: list[str] = []
    for field in schema:
        numbers = field.type.value_type if pa.types.is_list(field.type) else None
        for path, kind in _leaves(field.name, field.type):
            codecs[path] = "zstd"
            if OPEN_TEXT.fullmatch(path) and kind in (pa.string(), pa.binary()):
                texts.append(path)
            if kind != numbers:
                continue
            if pa.types.is_floating(kind):
                encodings[path], codecs[path] = "BYTE_STREAM_SPLIT", "lz4"
            elif pa.types.is_integer(kind) and field.name not in _TOKEN_IDS:
                encodings[path] = "DELTA_BINARY_PACKED"
    levels = {path: _ZSTD_LEVEL for path in codecs if codecs[path] == "zstd"}
    return {
        "use_dictionary": texts,
        "column_encoding": encodings,
        "compression": codecs,
        "compression_level": levels,
    }


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for part in kind:
            yield from _leaves(f"{path}.{part.name}", part.type)
    else:
        yield path, kind
