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
    """Return a column of each plain field, and the names of the other fields.

    The entries of a dictionary become columns of their own, such as `metadata.task`. A
    field that is None in every sample is in neither result.

    Parameters
    ----------
    samples : sequence of mapping
    used : collection of str
        Fields that have their own place in a Batch.
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
    """Yield the paths to the values of a sample: one key, or two nested ones."""
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
    """Return a scalar of torch or numpy as a Python value; other values unchanged."""
    tensor = stored(value, source)
    if isinstance(tensor, StoredTensor) and not tensor.shape:
        return tensor.read().item()
    return scalar_value(value)


def whole(value: object) -> int | None:
    """Return an integer or the item of a 0-D tensor of integers, else None."""
    if isinstance(value, StoredTensor) and not value.shape:
        value = value.read().item()
    return value if isinstance(value, int) else None


def micro_batches(shards: Sequence[object], count: int) -> Iterator[tuple[int, int]]:
    """Yield positions of samples, and the micro batch of its shard of each.

    Parameters
    ----------
    shards : sequence of dict
        `partition`, the positions of its samples, and `micro_batch_indices`, for each
        micro batch a list of indices into it.
    count : int
        The number of samples: at most as many are yielded, even if the lists repeat.

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


# Bytes beyond twice the file: a file can refer to the same numbers many times.
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
    """Reads the fields of samples that have one value per token.

    Parameters
    ----------
    samples : sequence of mapping
    source : Source
    """

    def __init__(self, samples: Sequence[Mapping[str, Any]], source: Source) -> None:
        self._samples, self._source = samples, source
        self._bytes_left = 2 * source.size + SPARE_BYTES

    def row(self, number: int, key: str) -> Tensor:
        """Return the row of numbers of a sample.

        Raises
        ------
        LoadError
            If there is none, or if all rows together exceed what the file can hold.
        """
        value = self._samples[number].get(key)
        row = vector(value, self._source)
        if row is None:
            raise self._misfit(
                number,
                key,
                expected="a row of numbers",
                found="nothing" if value is None else "something else",
            )
        self._bytes_left -= row.nbytes
        if self._bytes_left < 0:
            raise self._source.damaged(found="samples that repeat each other's numbers")
        return row

    def per_token(self, number: int, key: str, count: int) -> Tensor:
        """Return a row of numbers of length `count`; a LoadError for another length."""
        row = self.row(number, key)
        if len(row) != count:
            expected = f"{count} values, one a token of the response"
            raise self._misfit(number, key, expected=expected, found=str(len(row)))
        return row

    def divided(self, number: int, length_key: str) -> tuple[Tensor, Tensor]:
        """Return the tokens of the prompt and those of the response."""
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
    """Return a tensor, an array or a list of numbers as a row, else None.

    Lists become int64 or, as slime stores them, float32.

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
        row = torch.from_numpy(array.read())
        return row if row.dim() == 1 else None
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
        `tokens` are prompt and response; the other fields are of the response only.
    source : Source

    Raises
    ------
    LoadError
        If a sample lacks a field, or a field has another number of values than tokens.
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
# Values of a whole shard; `micro_batch` has them per sample.
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
    """Return the samples of version 2, and the names of the fields left out."""
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
    """Return the samples of a rank's columns, and the names of the columns left out."""
    if not isinstance(columns, dict):
        raise source.damaged(found="`rollout_data` that is no dictionary of columns")
    table = {
        _RENAMED.get(str(name), str(name)): _column(value, source)
        for name, value in columns.items()
        if name not in {*_LAYOUT, "raw_reward"} and value is not None
    }
    count = _num_rows(table.get("response_lengths", ()))
    _check_size(count, count * len(table), source)
    of_samples = {
        n: column for n, column in table.items() if _num_rows(column) == count
    }
    unused = {*table} - {*of_samples}
    for name in sorted(unused & USED):
        rows = _num_rows(table[name])
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
    """Return a list of samples; a LoadError for any other value."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise source.damaged(found="`samples` that is no list of dictionaries")
    _check_size(len(value), sum(map(len, value)), source)
    return value


def _check_size(count: int, num_values: int, source: Source) -> None:
    """Refuse more values than a step has: a file can refer to one value many times."""
    if count > MAX_SAMPLES or num_values > MAX_VALUES:
        raise source.damaged(found=f"{count} samples with {num_values} values")


def _column(value: object, source: Source) -> Column:
    """Return a column, or an empty one if the value is none."""
    if isinstance(value, list | tuple):
        return value
    tensor = stored(value, source)
    return tensor if isinstance(tensor, StoredTensor) and tensor.shape else ()


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
    """Add to each sample its reward as the environment returned it, if it is saved.

    The file has it for all rollouts, including those that were not trained on.
    """
    rewards = plain_values(value, source)
    positions = [whole(sample.get("rollout_position")) for sample in samples]
    known = [n for n in positions if n is not None and 0 <= n < len(rewards)]
    if len(known) < len(samples):
        return set() if value is None else {"raw_reward"}
    for sample, position in zip(samples, known, strict=True):
        sample["raw_reward"] = rewards[position]
    return set()
