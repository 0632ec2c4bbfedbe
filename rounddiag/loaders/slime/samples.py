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

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.slime.token_fields import USED
from rounddiag.loaders.slime.values import MAX_NAMES
from rounddiag.loaders.stored_fields import as_list, plain_values
from rounddiag.loaders.tensor_nodes import stored
from rounddiag.loaders.tensors import StoredTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rounddiag.loaders.source import Source

    Sample = dict[str, Any]

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
    samples = [dict(sample) for sample in dictionaries(root["samples"], source)]
    _check_names((name for sample in samples for name in sample), source)
    shards = [row for row in as_list(root.get("dp_shards")) if isinstance(row, dict)]
    by_position = {
        position: sample
        for sample in samples
        if isinstance(position := sample.get("rollout_position"), int)
    }
    for shard in shards:
        positions = as_list(shard.get("partition"))
        known = [n if isinstance(n, int) else -1 for n in positions]
        _add_micro_batches([by_position.get(n, {}) for n in known], shard)
    unused = {str(key) for key in root} - _OF_FILE
    unused |= {str(key) for shard in shards for key in shard} - _OF_SHARD
    return samples, unused | _add_raw_reward(samples, root.get("raw_reward"), source)


def of_columns(columns: object, source: Source) -> tuple[list[Sample], set[str]]:
    """Return the samples of a rank's columns, and the columns that are of none."""
    if not isinstance(columns, dict):
        raise source.damaged(found="`rollout_data` that is no dictionary of columns")
    _check_names(columns, source)
    rows = {
        _RENAMED.get(str(name), str(name)): _rows(value, source)
        for name, value in columns.items()
        if name not in {*_LAYOUT, "raw_reward"} and value is not None
    }
    count = len(rows.get("response_lengths", []))
    rows_of_samples = {
        name: values for name, values in rows.items() if len(values) == count
    }
    samples = [
        {name: values[index] for name, values in rows_of_samples.items()}
        for index in range(count)
    ]
    _add_micro_batches(samples, columns)
    unused = {*rows} - {*rows_of_samples}
    for name in sorted(unused & USED):
        raise source.damaged(
            found=f"{len(rows[name])} rows of `{name}`, {count} of `response_lengths`"
        )
    return samples, unused | _add_raw_reward(samples, columns.get("raw_reward"), source)


def dictionaries(value: object, source: Source) -> list[Sample]:
    """Return a list of samples; a LoadError where it is something else."""
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return value
    raise source.damaged(found="`samples` that is no list of dictionaries")


def _check_names(names: Iterable[object], source: Source) -> None:
    found = len(set(names))
    if found > MAX_NAMES:
        raise source.damaged(found=f"samples with {found} different fields")


def _rows(value: object, source: Source) -> list[object]:
    """Return what a column has of each sample; nothing where it is no column."""
    if isinstance(value, list | tuple):
        return list(value)
    found = stored(value, source)
    if isinstance(found, StoredTensor) and found.shape:
        return list(found.read())
    return []


def _add_micro_batches(samples: Sequence[Sample], shard: Mapping[Any, object]) -> None:
    """Note in each sample of a shard which of its micro batches it was in."""
    for number, indices in enumerate(as_list(shard.get("micro_batch_indices"))):
        for index in as_list(indices):
            if isinstance(index, int) and 0 <= index < len(samples):
                samples[index]["micro_batch"] = number


def _add_raw_reward(
    samples: Sequence[Sample], value: object, source: Source
) -> set[str]:
    """Add to each sample its reward as the environment gave it, where that is told.

    It is told for all rollouts, also for those that were not trained on.
    """
    rewards = plain_values(value, source)
    positions = [sample.get("rollout_position") for sample in samples]
    known = [n for n in positions if isinstance(n, int) and 0 <= n < len(rewards)]
    if len(known) < len(samples):
        return set() if value is None else {"raw_reward"}
    for sample, position in zip(samples, known, strict=True):
        sample["raw_reward"] = rewards[position]
    return set()
