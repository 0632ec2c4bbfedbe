"""Batch -> Parquet."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from rounddiag.batch.given import need_batch
from rounddiag.loaders.parquet.footer import KEY, Footer, tokenizer_name
from rounddiag.loaders.parquet.redaction import redacted
from rounddiag.loaders.parquet.screenshot_columns import FEATURES
from rounddiag.loaders.parquet.to_table import table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.batch import Batch

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
    need_batch(batch)
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
