"""The samples of slime's train files, of either layout: one dictionary a sample.

=====================================  ==============================================
in the file                            in the samples
=====================================  ==============================================
`samples`, a dictionary each           as they are
`rollout_data`, columns of one rank    row by row, under the names of `samples`
`raw_reward` of all rollouts           `raw_reward`, by `rollout_position`
`micro_batch_indices` of a shard       `micro_batch`: which one of its shard
=====================================  ==============================================
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.loaders.frameworks.slime.micro_batches import micro_batches
from rounddiag.loaders.frameworks.slime.token_fields import USED
from rounddiag.loaders.frameworks.slime.values import MAX_VALUES, whole
from rounddiag.loaders.tables.stored_fields import as_list, plain_values
from rounddiag.loaders.tensors.stored import StoredTensor
from rounddiag.loaders.tensors.tensor_nodes import stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag.loaders.source import Source

    Sample = dict[str, Any]
    Column = Sequence[object] | StoredTensor

MAX_SAMPLES = 1 << 15
_RENAMED = {"sample_indices": "sample_index", "partition": "rollout_position"}
# What there is one of for all samples of a shard, and is told by `micro_batch`.
_LAYOUT = {"micro_batch_indices", "num_microbatches", "global_batch_sizes"}
_OF_FILE = {
    "format_version",
    "rollout_id",
    "rank",
    "samples",
    "dp_shards",
    "raw_reward",
}
_OF_SHARD = {"rank", "data_parallel_rank", *_RENAMED, *_LAYOUT}


def of_records(
    root: Mapping[str, object], source: Source
) -> tuple[list[Sample], set[str]]:
    """Return the samples of version 2, and the names of what is in none of them."""
    samples = [dict(row) for row in dictionaries(root["samples"], source)]
    shards = as_list(root.get("dp_shards"))
    numbers = dict(micro_batches(shards, len(samples)))
    for sample in samples:
        position = whole(sample.get("rollout_position"))
        if position in numbers:
            sample["micro_batch"] = numbers[position]
    first = next((shard for shard in shards if isinstance(shard, dict)), {})
    unused = {str(key) for key in root} - _OF_FILE
    unused |= {str(key) for key in first} - _OF_SHARD
    return samples, unused | _add_raw_reward(samples, root.get("raw_reward"), source)


def of_columns(columns: object, source: Source) -> tuple[list[Sample], set[str]]:
    """Return the samples of a rank's columns, and the columns that are of none."""
    if not isinstance(columns, dict):
        raise source.damaged(found="`rollout_data` that is no dictionary of columns")
    found = {
        _RENAMED.get(str(name), str(name)): _column(value, source)
        for name, value in columns.items()
        if name not in {*_LAYOUT, "raw_reward"} and value is not None
    }
    count = _num_rows(found.get("response_lengths", ()))
    _check_size(count, count * len(found), source)
    of_samples = {
        n: column for n, column in found.items() if _num_rows(column) == count
    }
    unused = {*found} - {*of_samples}
    for name in sorted(unused & USED):
        rows = _num_rows(found[name])
        raise source.damaged(
            found=f"{rows} rows of `{name}`, {count} of `response_lengths`"
        )
    samples = [
        {name: _row(column, i) for name, column in of_samples.items()}
        for i in range(count)
    ]
    for index, number in micro_batches([{**columns, "partition": range(count)}], count):
        samples[index]["micro_batch"] = number
    return samples, unused | _add_raw_reward(samples, columns.get("raw_reward"), source)


def dictionaries(value: object, source: Source) -> list[Sample]:
    """Return a list of samples; a LoadError where it is something else."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise source.damaged(found="`samples` that is no list of dictionaries")
    _check_size(len(value), sum(map(len, value)), source)
    return value


def _check_size(count: int, num_values: int, source: Source) -> None:
    """Refuse what no step has: a file can name one thing in many places."""
    if count > MAX_SAMPLES or num_values > MAX_VALUES:
        raise source.damaged(found=f"{count} samples with {num_values} values")


def _column(value: object, source: Source) -> Column:
    """Return a column; an empty one where it is none."""
    if isinstance(value, list | tuple):
        return value
    found = stored(value, source)
    return found if isinstance(found, StoredTensor) and found.shape else ()


def _num_rows(column: Column) -> int:
    return column.shape[0] if isinstance(column, StoredTensor) else len(column)


def _row(column: Column, index: int) -> object:
    if not isinstance(column, StoredTensor):
        return column[index]
    row = column.rows(index, index + 1)
    return replace(row, shape=row.shape[1:], stride=row.stride[1:])


def _add_raw_reward(
    samples: Sequence[Sample], value: object, source: Source
) -> set[str]:
    """Add to each sample its reward as the environment gave it, where that is told.

    It is told for all rollouts, also for those that were not trained on.
    """
    rewards = plain_values(value, source)
    positions = [whole(sample.get("rollout_position")) for sample in samples]
    known = [n for n in positions if n is not None and 0 <= n < len(rewards)]
    if len(known) < len(samples):
        return set() if value is None else {"raw_reward"}
    for sample, position in zip(samples, known, strict=True):
        sample["raw_reward"] = rewards[position]
    return set()
