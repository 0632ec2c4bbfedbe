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
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from rounddiag.errors import LoadError
from rounddiag.loaders.lazy.arrays import StoredArray, scalar_value, stored_array
from rounddiag.loaders.lazy.tensors import StoredTensor, stored
from rounddiag.loaders.tabular.table import as_list, plain_values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from torch import Tensor

    from rounddiag.loaders.source import Source

    Column = Sequence[object] | StoredTensor
    Sample = dict[str, Any]


MAX_CELLS = 1 << 20  # of all plain columns together
MAX_VALUES = 1 << 20  # of all samples together
_MAX_ENTRIES = 32  # of a dictionary, such as `metadata`


def plain_table(
    samples: Sequence[Mapping[str, Any]], used: Collection[str], source: Source
) -> tuple[dict[str, list[Any]], set[str]]:
    """Return a column of each field that is plain, and the names of the others.

    The entries of a dictionary are columns of their own, such as `metadata.task`. A
    field that is None in every sample is in neither.

    Parameters
    ----------
    samples : sequence of mapping
    used : collection of str
        Fields that have another place in the Batch.
    source : Source

    Returns
    -------
    columns : dict of str to list
    left_out : set of str

    Examples
    --------
    >>> from pathlib import Path
    >>> from rounddiag.loaders.source import Source
    >>> samples = [{"status": "completed", "metadata": {"task": 1}}, {"kl": [0.5]}]
    >>> plain_table(samples, (), Source(path=Path("3.pt"), size=0))
    ({'status': ['completed', None], 'metadata.task': [1, None]}, {'kl'})
    """
    places = dict.fromkeys(
        place for sample in samples for place in _places(sample, used)
    )
    names = {".".join(map(str, place)): place for place in places}
    most = MAX_CELLS // max(len(samples), 1)
    columns, left_out = dict[str, list[Any]](), {*list(names)[most:]}
    for name, place in list(names.items())[:most]:
        values = [_plain(_at(sample, place), source) for sample in samples]
        if all(isinstance(value, str | int | float | None) for value in values):
            columns[name] = values
        else:
            left_out.add(name)
    return columns, left_out


def _places(
    sample: Mapping[str, Any], used: Collection[str]
) -> Iterator[tuple[object, ...]]:
    """Give where the values of a sample stand: a key, or a key and one below it."""
    for key, value in sample.items():
        if key in used or value is None:
            continue
        if isinstance(value, dict) and len(value) <= _MAX_ENTRIES:
            yield from ((key, entry) for entry in value)
        else:
            yield (key,)


def _at(sample: Mapping[str, Any], place: tuple[object, ...]) -> object:
    value: object = sample
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _plain(value: object, source: Source) -> object:
    """Return a number that a tensor or numpy wraps as it is; others unchanged."""
    tensor = stored(value, source)
    if isinstance(tensor, StoredTensor) and not tensor.shape:
        return tensor.read().item()
    return scalar_value(value)


def whole(value: object) -> int | None:
    """Return an integer, also of a tensor of one; None for anything else."""
    if isinstance(value, StoredTensor) and not value.shape:
        value = value.read().item()
    return value if isinstance(value, int) else None


def micro_batches(shards: Sequence[object], count: int) -> Iterator[tuple[int, int]]:
    """Give positions of samples, and which micro batch of its shard each was in.

    Parameters
    ----------
    shards : sequence of dict
        `partition`, the positions of its samples, and `micro_batch_indices`, a list of
        indices in it for each micro batch.
    count : int
        How many samples there are: no more is given, whatever the lists repeat.

    Examples
    --------
    >>> shard = {"partition": [4, 7], "micro_batch_indices": [[1], [0]]}
    >>> list(micro_batches([shard], 2))
    [(7, 0), (4, 1)]
    """
    batches = islice(_batches(shards[:count]), count)
    indices = (
        (partition, index, number)
        for partition, number, batch in batches
        for index in as_list(batch)
    )
    for partition, index, number in islice(indices, count):
        if isinstance(index, int) and 0 <= index < len(partition):
            position = whole(partition[index])
            if position is not None:
                yield position, number


def _batches(
    shards: Sequence[object],
) -> Iterator[tuple[Sequence[object], int, object]]:
    for shard in shards:
        match shard:
            case {"partition": [*_] as partition, "micro_batch_indices": list(batches)}:
                yield from ((partition, n, batch) for n, batch in enumerate(batches))


# A file can name the same numbers again and again, which costs it nothing.
SPARE_BYTES = 1 << 26
_ADVICE = {
    "rollout_log_probs": "Let the rollout keep the engine's log-probabilities"
    " (`Sample.rollout_log_probs`), and dump the step again.",
    "log_probs": "The trainer computed none: run without `--use-rollout-logprobs`, or"
    " with `--get-mismatch-metrics`, and dump the step again.",
}
_AGAIN = (
    "Dump the step again; older versions that trained with context parallelism wrote"
    " a slice of each sample, which cannot be read."
)


class RowReader:
    """Reads what samples have one value a token of.

    Parameters
    ----------
    samples : sequence of mapping
    source : Source
    """

    def __init__(self, samples: Sequence[Mapping[str, Any]], source: Source) -> None:
        self._samples, self._source = samples, source
        self._bytes_left = 2 * source.size + SPARE_BYTES

    def row(self, number: int, key: str) -> Tensor:
        """Return the numbers that a sample has under a key.

        Raises
        ------
        LoadError
            If it has none, or all samples together more than the file can hold.
        """
        value = self._samples[number].get(key)
        found = vector(value, self._source)
        if found is None:
            raise self._misfit(
                number,
                key,
                expected="a row of numbers",
                found="nothing" if value is None else "something else",
            )
        self._bytes_left -= found.nbytes
        if self._bytes_left < 0:
            raise self._source.damaged(found="samples that repeat each other's numbers")
        return found

    def per_token(self, number: int, key: str, count: int) -> Tensor:
        """Return the numbers under a key, which must be `count`."""
        row = self.row(number, key)
        if len(row) != count:
            expected = f"{count} values, one a token of the response"
            raise self._misfit(number, key, expected=expected, found=str(len(row)))
        return row

    def divided(self, number: int, length_key: str) -> tuple[Tensor, Tensor]:
        """Return the tokens of the prompt, and of the response, which has a length."""
        row = self.row(number, "tokens")
        size = whole(self._samples[number].get(length_key))
        if size is None or not 0 <= size <= len(row):
            expected = f"0 to {len(row)}, as there are tokens"
            found = "nothing" if size is None else str(size)
            raise self._misfit(number, length_key, expected=expected, found=found)
        start = len(row) - size
        return row[:start], row[start:]

    def _misfit(self, number: int, key: str, *, expected: str, found: str) -> LoadError:
        return LoadError.build(
            file=self._source.path,
            key=f"samples[{number}].{key}",
            expected=expected,
            found=found,
            advice=_ADVICE.get(key, _AGAIN) if found == "nothing" else _AGAIN,
        )


def vector(value: object, source: Source) -> Tensor | None:
    """Return a row of numbers: a tensor, an array or a list; None for anything else.

    Numbers of a list are int64 or, as slime stores them, float32.

    Examples
    --------
    >>> from pathlib import Path
    >>> from rounddiag.loaders.source import Source
    >>> vector([1, 2], Source(path=Path("3.pt"), size=0))
    tensor([1, 2])
    """
    if isinstance(value, list):
        return _of_list(value)
    array = stored_array(value, source)
    if isinstance(array, StoredArray) and array.dtype.kind in "biuf":
        found = torch.from_numpy(array.read())
        return found if found.dim() == 1 else None
    tensor = stored(value, source)
    if isinstance(tensor, StoredTensor) and len(tensor.shape) == 1:
        return tensor.read()
    return None


def _of_list(values: list[Any]) -> Tensor | None:
    kinds = set(map(type, values))
    if not kinds <= {int, float, bool}:
        return None
    dtype = torch.float32 if float in kinds else torch.int64
    try:
        return torch.tensor(values, dtype=dtype)
    except (RuntimeError, ValueError):  # an integer of more than 64 bits
        return None


_REQUIRED = {
    "loss_masks": "response_mask",
    "rollout_log_probs": "rollout_log_probs",
    "log_probs": "old_log_probs",
}
_OPTIONAL = {
    "ref_log_probs": "ref_log_probs",
    "teacher_log_probs": "teacher_log_probs",
    "entropy": "entropy",
    "advantages": "advantages",
}
USED = {"tokens", "response_lengths", *_REQUIRED, *_OPTIONAL}


def token_fields(
    samples: Sequence[Mapping[str, Any]], source: Source
) -> dict[str, list[Tensor]]:
    """Return prompts, responses, mask and log-probabilities, a row a sample.

    Parameters
    ----------
    samples : sequence of mapping
        `tokens` are prompt and response; all else is of the response.
    source : Source

    Raises
    ------
    LoadError
        If a sample lacks one of them, or has more or fewer values than tokens.
    """
    reader = RowReader(samples, source)
    pairs = [reader.divided(i, "response_lengths") for i in range(len(samples))]
    fields = {
        "prompts": [row for row, _ in pairs],
        "responses": [row for _, row in pairs],
    }
    sizes = [len(row) for row in fields["responses"]]
    for key, name in {**_REQUIRED, **_OPTIONAL}.items():
        if key in _REQUIRED or any(sample.get(key) is not None for sample in samples):
            fields[name] = [
                reader.per_token(number, key, size) for number, size in enumerate(sizes)
            ]
    return fields


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
