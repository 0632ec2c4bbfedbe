"""Train files of slime, and of a rank of miles, as columns.

=====================================  ==============================================
in the file                            in the columns
=====================================  ==============================================
`samples`, one dictionary each         a column per key
`rollout_data`, columns of one rank    the same columns, under the names of `samples`
`raw_reward` of all rollouts           `raw_reward`, by `rollout_position`
`micro_batch_indices` of a shard       `micro_batch`: the index in its shard
a dictionary, such as `metadata`       a column per entry, such as `metadata.task`
=====================================  ==============================================
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch import Tensor

from rounddiag.loaders.field_reader import FieldReader
from rounddiag.loaders.plain_columns import collect_columns
from rounddiag.loaders.source import Source, damage_error
from rounddiag.loaders.stored import StoredArray, find_array
from rounddiag.loaders.tables import LazyFields, as_list, column_values, rows_of

# One value per sample, by name.
Columns = dict[str, list[Any]]


_RENAMED = {"sample_indices": "sample_index", "partition": "rollout_position"}
# Values of a whole shard; `micro_batch` has them per sample.
_LAYOUT = {"micro_batch_indices", "num_microbatches", "global_batch_sizes"}
_FILE_KEYS = {
    "format_version",
    "rollout_id",
    "rank",
    "samples",
    "dp_shards",
    "raw_reward",
}
_SHARD_KEYS = {"rank", "data_parallel_rank", *_RENAMED, *_LAYOUT}


def columns_from_samples(root: Mapping[str, object]) -> tuple[Columns, list[str]]:
    """Return the columns of version 2, and the names of the fields left out."""
    samples = dictionaries(root["samples"])
    columns, left_out = collect_columns(samples)
    columns = with_entries(columns)
    shards = [dict(s) for s in as_list(root.get("dp_shards")) if isinstance(s, dict)]
    numbers = dict(_micro_batches(shards, len(samples)))
    positions = columns.get("rollout_position", [])
    if numbers:
        places = whole_numbers(positions)
        columns["micro_batch"] = [None if n is None else numbers.get(n) for n in places]
    unused = {str(key) for key in root} - _FILE_KEYS
    unused |= {str(key) for shard in shards for key in shard} - _SHARD_KEYS
    return columns, [*left_out, *unused]


def columns_from_rank(value: object) -> tuple[Columns, list[str]]:
    """Return the columns of a rank, and the names of those left out."""
    if not isinstance(value, dict):
        raise damage_error(found="`rollout_data` that is not a dictionary of columns")
    stored = {
        _RENAMED.get(str(name), str(name)): _column_as_list(column)
        for name, column in value.items()
        if name not in {*_LAYOUT, "raw_reward"} and column is not None
    }
    count = len(stored.get("response_lengths", ()))
    columns = {name: rows for name, rows in stored.items() if len(rows) == count}
    unused = [name for name in stored if name not in columns]
    for name in sorted({*unused} & {"tokens", *MASK, *_NAMES}):
        raise damage_error(
            found=f"{len(stored[name])} rows of `{name}`, {count} of `response_lengths`"
        )
    columns = with_entries(columns)
    shard = {**value, "partition": range(count)}
    numbers = dict(_micro_batches([shard], count))
    if numbers:
        columns["micro_batch"] = [numbers.get(row) for row in range(count)]
    return columns, unused


def _column_as_list(value: object) -> list[Any]:
    if isinstance(value, list | tuple):
        return [*value]
    array = find_array(value)
    if isinstance(array, StoredArray) and array.shape:
        rows = array.read() if array.num_dims > 1 else array.array().tolist()
        return [*rows]
    return array if isinstance(array, list) else []


def with_entries(columns: Mapping[str, list[Any]]) -> Columns:
    """Return the columns, with columns of dictionaries replaced by their entries.

    A column that is None everywhere is left out.

    Examples
    --------
    >>> with_entries({"metadata": [{"task": 1}, None], "label": [None, None]})
    {'metadata.task': [1, None]}
    """
    expanded: Columns = {}
    for name, column in columns.items():
        if name in PICTURES or not any(isinstance(row, dict) for row in column):
            expanded[name] = column
            continue
        rows = (row if isinstance(row, dict) else {} for row in column)
        entries, _ = collect_columns(rows)
        expanded |= {f"{name}.{key}": values for key, values in entries.items()}
    return {
        name: column
        for name, column in expanded.items()
        if any(value is not None for value in column)
    }


def dictionaries(value: object) -> list[dict[str, Any]]:
    """Return a list of samples; a LoadError for any other value."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise damage_error(found="`samples` that is not a list of dictionaries")
    return value


def whole_numbers(column: object) -> list[int | None]:
    """Return a column of integers, None for anything else."""
    values = column_values(column)
    items = [v.item() if hasattr(v, "item") else v for v in values]
    return [item if isinstance(item, int) else None for item in items]


def _micro_batches(
    shards: Sequence[Mapping[str, Any]], count: int
) -> Iterator[tuple[int, int]]:
    """Yield positions of samples, and the micro batch of its shard of each.

    Examples
    --------
    >>> shard = {"partition": [4, 7], "micro_batch_indices": [[1], [0]]}
    >>> list(_micro_batches([shard], 2))
    [(7, 0), (4, 1)]
    """
    places = (
        (shard["partition"][index], number)
        for shard in shards
        for number, batch in enumerate(as_list(shard.get("micro_batch_indices")))
        for index in as_list(batch)
        if isinstance(index, int) and 0 <= index < len(shard.get("partition") or ())
    )
    return islice(((at, n) for at, n in places if isinstance(at, int)), count)


MASK = ("loss_masks",)
# Fields per token of the response, and verl's names for them.
_NAMES = {
    "rollout_log_probs": "rollout_log_probs",
    "log_probs": "old_log_probs",
    "ref_log_probs": "ref_log_probs",
    "teacher_log_probs": "teacher_log_probs",
    "entropy": "entropy",
    "advantages": "advantages",
}
PICTURES = ("multimodal_inputs", "multimodal_train_inputs")
_AGAIN = "Dump the step again: a sample has one number per token in each field."
_MASK_AGAIN = (
    "Dump the step again; the mask of a rollout that was resumed must grow with its"
    " response (slime pull request 1445)."
)


def token_fields(columns: Columns, source: Source) -> dict[str, list[Tensor]]:
    """Take the fields per token out of the columns, under verl's names."""
    taken = {
        name: columns.pop(name)
        for name in ("tokens", *MASK, *_NAMES)
        if name in columns
    }
    saved = LazyFields(taken, lambda name: rows_of(taken[name]))
    lengths = columns.pop("response_lengths", [])
    prompts, responses = divide_tokens(saved, lengths, source)
    fields = ChainMap[str, Any]({"responses": responses}, saved)  # type: ignore[arg-type]
    reader = FieldReader(fields, source.path, "responses", advice=_AGAIN)
    rows = {ours: reader.token_rows(theirs) for theirs, ours in _NAMES.items()}
    masks = FieldReader(fields, source.path, "responses", advice=_MASK_AGAIN)
    return {
        "prompts": prompts,
        "responses": responses,
        "response_mask": masks.required_token_rows("loss_masks"),
        **{name: values for name, values in rows.items() if values is not None},
    }


def divide_tokens(
    fields: Mapping[str, Any], lengths: Sequence[object], source: Source
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tokens of the prompts and of the responses, of these lengths."""
    reader = FieldReader(fields, source.path, "tokens", advice=_AGAIN)
    rows, sizes = reader.tokens.rows(), whole_numbers([*lengths])
    if len(sizes) != len(rows):
        raise reader.misfit(
            key="response_lengths", expected=f"{len(rows)}", found=f"{len(sizes)}"
        )
    for sample, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        if size is None or not 0 <= size <= len(row):
            raise reader.misfit(
                key="response_lengths",
                expected=f"0 to {len(row)} for sample {sample}, as there are tokens",
                found="no number" if size is None else str(size),
            )
    starts = [len(row) - (size or 0) for row, size in zip(rows, sizes, strict=True)]
    pairs = [*zip(rows, starts, strict=True)]
    return [row[:at] for row, at in pairs], [row[at:] for row, at in pairs]
