"""Columns of samples and rounds, from plain values, dictionaries and records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.left_out import left_out_entry, left_out_of
from rounddiag.columns.column import (
    MAX_INTEGER_BITS,
    Column,
    are_same,
    scatter_with_missing,
)
from rounddiag.errors import BatchError
from rounddiag.loaders.fields import aliases_of
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.loaders.stored import scalar_value
from rounddiag.wording import pluralize

# Sample, round and the record itself.
Row = tuple[int, int, dict[str, Any]]


_KINDS = "biufmMSU"  # dtype kinds of a column
_MAX_FLOAT = 8  # bytes: files have no long doubles


def select_plain_columns(
    columns: Mapping[str, Any], num_samples: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns with one plain value (text, number, flag) per sample.

    Examples
    --------
    >>> select_plain_columns({"turns": [2, 3], "text": ["a", None], "chat": [[]]}, 2)
    {'turns': array([2, 3]), 'text': array(['a', None], dtype=object)}
    """
    arrays = {name: _plain(values) for name, values in columns.items()}
    return {
        name: values
        for name, values in arrays.items()
        if values is not None and len(values) == num_samples
    }


def _plain(values: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    if isinstance(values, np.ndarray) and values.dtype != object:
        is_known = values.dtype.kind in _KINDS and values.dtype.itemsize > 0
        if values.dtype.kind == "f" and values.dtype.itemsize > _MAX_FLOAT:
            with np.errstate(over="ignore"):
                values = values.astype(np.float64)
        return values if values.ndim == 1 and is_known else None
    items = list(values)
    if not {*map(type, items)} <= {*_PLAIN, bool}:
        items = [*map(scalar_value, items)]
    kinds = set(map(type, items))
    if not all(issubclass(kind, _PLAIN) for kind in kinds) or not _can_be_written(
        items
    ):
        return None
    fit = kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in items)
    if kinds in ({bool}, {float}) or fit:
        return np.array(items)
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column


def row_names(values: Iterable[object]) -> tuple[str, ...]:
    """Return a name for each row; one without a name is named by its number.

    Examples
    --------
    >>> row_names(["a", None, 7])
    ('a', 'row 1', '7')
    """
    items = enumerate(values)
    return tuple(f"row {row}" if name is None else str(name) for row, name in items)


_PLAIN = (int, float, str, NoneType)


def _can_be_written(values: Sequence[object]) -> bool:
    """Return whether all integers are short enough to be written as digits."""
    return all(v.bit_length() <= MAX_INTEGER_BITS for v in values if isinstance(v, int))


def replaced_names(values: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """Return the names under which others have another value.

    Examples
    --------
    >>> replaced_names({"a": [1], "b": [2], "c": 0}, {"a": [1], "b": [3]})
    ['b']
    """
    return [
        name
        for name, value in values.items()
        if name in others and value is not None and not are_same(value, others[name])
    ]


_MAX_CELLS_PER_VALUE = 64  # beyond which columns are left out
_ALLOWED_CELLS = 1 << 18  # of any table, however few its values


def collect_columns(
    rows: Iterable[Mapping[Any, Any]], cell: Callable[[Any], Any] = lambda value: value
) -> tuple[dict[str, list[Any]], list[str]]:
    """Return mappings, one per row, as columns; a missing key becomes None.

    If the rows have different keys, the table is mostly empty, and its size grows with
    the square of the rows. Then the columns with the fewest values are left out.

    Examples
    --------
    >>> collect_columns([{"ids": [5, 6]}, {"ids": [7], "turns": 2}])
    ({'ids': [[5, 6], [7]], 'turns': [None, 2]}, [])
    """
    places: dict[str, list[int]] = defaultdict(list)
    values: dict[str, list[Any]] = defaultdict(list)
    num_rows = 0
    for index, row in enumerate(rows):
        num_rows = index + 1
        # Keys that become the same text, as 1 and "1", keep the last value.
        for key, value in {str(key): value for key, value in row.items()}.items():
            places[key].append(index)
            values[key].append(cell(value))
    max_columns = max(
        _ALLOWED_CELLS, _MAX_CELLS_PER_VALUE * sum(map(len, places.values()))
    ) // max(num_rows, 1)
    fullest = sorted(places, key=lambda key: len(places[key]), reverse=True)
    selected = {*fullest[:max_columns]}
    columns = {
        key: _fill_column(places[key], values.pop(key), num_rows)
        for key in places
        if key in selected
    }
    num_left_out = len(places) - len(selected)
    note = f"{pluralize(num_left_out, 'column')} with few values"
    return columns, [note] if num_left_out else []


def _fill_column(places: list[int], values: list[Any], num_rows: int) -> list[Any]:
    if len(values) == num_rows:
        return values
    column = [None] * num_rows
    for place, value in zip(places, values, strict=True):
        column[place] = value
    return column


# Columns of verl's agent loop that hold dictionaries of further columns.
_DICT_COLUMNS = ("extra_fields", "reward_extra_info")
RECORDS, TURN_SCORES = "round_records", "turn_scores"


def expand_entries(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Replace verl's columns of dictionaries by one column per entry.

    An existing column of the same name is not replaced.

    Examples
    --------
    >>> expand_entries({"step": [7], "extra_fields": [{"step": 1, "min_step": 6}]})
    {'step': [7], 'min_step': [6]}
    """
    expanded = dict(columns)
    for parent in _DICT_COLUMNS:
        rows = expanded.get(parent)
        if rows is None or not any(isinstance(row, Mapping) for row in rows):
            continue
        entries = [
            {name: row[name] for name in row if isinstance(name, str)}
            if isinstance(row, Mapping)
            else {}
            for row in expanded.pop(parent)
        ]
        new, left_out = collect_columns(entries, scalar_value)
        new |= {note: [[]] * len(entries) for note in left_out}  # left out: not plain
        expanded |= {name: new[name] for name in new if name not in expanded}
    return expanded


def take_round_records(columns: dict[str, Any]) -> list[Any] | None:
    """Remove and return the records of each sample's rounds; None if there are none.

    verl's `turn_scores`, one number per turn, become `turn_score` of the records if
    there are as many.
    """
    stored, scores = columns.pop(RECORDS, None), columns.get(TURN_SCORES)
    records = None if stored is None else [_items(calls) for calls in stored]
    if scores is None or not any(map(_items, scores)):
        return records
    rows = [[scalar_value(value) for value in _items(row)] for row in scores]
    calls = records or [[{} for _ in row] for row in rows]
    is_known = all(isinstance(call, dict) for row in calls for call in row)
    if not is_known or [*map(len, calls)] != [*map(len, rows)]:
        return records
    del columns[TURN_SCORES]
    return [
        [{**call, "turn_score": score} for call, score in zip(*pair, strict=True)]
        for pair in zip(calls, rows, strict=True)
    ]


def _items(value: object) -> list[Any]:
    if value is None:
        return []
    return [*value] if isinstance(value, list | tuple | np.ndarray) else [value]


def with_versions(batch: Batch, versions: Tensor) -> Batch:
    """Return the batch with the weight versions of each sample and each round."""
    rounds = batch.rounds
    sample, num = rounds.sample.numpy(), rounds.num_tokens.numpy()
    known, first = np.unique(sample, return_index=True)  # some samples have no rounds
    values = versions[batch.response_mask != 0].long().numpy()
    sample_columns: dict[str, Array] = {}
    round_columns = {"sample": sample, "round": rounds.round.numpy()}
    for end, extreme in (("min", np.minimum), ("max", np.maximum)):
        name = f"{end}_weight_version"
        of_rounds = extreme.reduceat(values, np.cumsum(num) - num) if len(num) else num
        of_samples = extreme.reduceat(of_rounds, first) if len(num) else num
        round_columns[name] = of_rounds
        sample_columns[name] = scatter_with_missing(of_samples, known, len(batch))
    return replace(
        batch,
        sample_columns={**sample_columns, **batch.sample_columns},
        round_columns=batch.round_columns or round_columns,
    )


def with_round_rewards(batch: Batch, scores: Tensor) -> Batch:
    """Return the batch with the reward of each round, if earlier rounds have some.

    That is the sum over its tokens and the observation after it, in the round column
    `round_reward`; one that the file has stays.
    """
    rounds, at = batch.rounds, scores.nonzero()[:, 0]
    if "round_reward" in batch.round_columns or not len(rounds) or not len(at):
        return batch
    sample = torch.searchsorted(batch.offsets, at, right=True) - 1
    # A token before the first round counts with it; without rounds, with none.
    owner = torch.searchsorted(rounds.start, at, right=True) - 1
    owner = owner.maximum(torch.searchsorted(rounds.sample, sample))
    known = (owner < len(rounds)).nonzero()[:, 0]
    known = known[rounds.sample[owner[known]] == sample[known]]
    last = torch.searchsorted(rounds.sample, sample[known], right=True) - 1
    if (owner[known] == last).all():
        return batch
    rewards = torch.zeros(len(rounds), dtype=torch.float64)
    rewards.index_add_(0, owner[known], scores[at[known]].double())
    return with_round_column(batch, "round_reward", rewards.numpy())


def with_round_column(batch: Batch, name: str, values: Array) -> Batch:
    """Return the batch with one more round column, which has a value for each round."""
    own = np.stack([batch.rounds.sample.numpy(), batch.rounds.round.numpy()], axis=1)
    columns = dict(batch.round_columns)
    stored = np.empty((0, 2), dtype=np.int64)
    if columns:
        stored = np.stack([columns.pop("sample"), columns.pop("round")], axis=1)
    place = {tuple(key): row for row, key in enumerate(own.tolist())}
    matched = [place.pop(tuple(key), -1) for key in stored.tolist()]
    rows = np.array([*matched, *place.values()], dtype=np.int64)
    keys = np.concatenate([stored, own[rows[len(stored) :]]]).astype(np.int32)
    filled = {
        key: scatter_with_missing(column, np.arange(len(column)), len(rows))
        for key, column in columns.items()
    }
    new = np.where(rows < 0, np.nan, values[rows])
    return replace(
        batch,
        round_columns={"sample": keys[:, 0], "round": keys[:, 1], **filled, name: new},
    )


def sum_rewards(columns: Mapping[str, Array]) -> tuple[Array | None, dict[str, str]]:
    """Return the sum of TRL's columns of rewards, and a note on it; None without them.

    A log of completions has a column per reward function, named as this is, and after
    them `advantage`. An unknown reward counts as 0; all unknown, so is the sum.

    Examples
    --------
    >>> columns = {"format": [0.5, 0.5], "right": [1.0, None], "advantage": [1.0, 0]}
    >>> sum_rewards({name: np.array(v) for name, v in columns.items()})[0]
    array([1.5, 0.5])
    """
    names, aliases = [*columns], aliases_of("advantages")
    end = min((names.index(name) for name in aliases if name in names), default=0)
    floats = [name for name in names[:end] if _are_floats(columns[name])]
    chosen = [name for name in floats if "reward" in name.lower()] or floats
    if not chosen:
        return None, {}
    values = np.stack([columns[name].astype(np.float64) for name in chosen])
    total = np.nansum(values, axis=0)
    total[np.isnan(values).all(axis=0)] = np.nan
    listed = ", ".join(f"`{name}`" for name in chosen)
    return total, {"reward_source": f"the sum of {listed}, each with a weight of 1"}


def _are_floats(values: Array) -> bool:
    if values.dtype.kind == "f":
        return True
    known = [value for value in values.tolist() if value is not None]
    return len(known) > 0 and all(isinstance(value, float) for value in known)


def with_sample_advantages(batch: Batch) -> Batch:
    """Return the batch with the advantages that a file has one of per sample.

    They become those of all tokens that the model wrote, as in the loss of TRL, unless
    some are unknown. The column of samples stays.
    """
    columns = batch.sample_columns
    name = next((name for name in aliases_of("advantages") if name in columns), None)
    if name is None or batch.advantages is not None:
        return batch
    column = Column.of(name, "sample", columns[name])
    if column.kind != "number" or not column.is_known().all():
        return batch
    values = torch.from_numpy(column.filled.astype(np.float32))
    flat = values.repeat_interleave(batch.offsets.diff())
    flat[batch.response_mask == 0] = 0
    return replace(batch, advantages=flat)


def with_round_records(batch: Batch, records: Sequence[Any]) -> Batch:
    """Return the batch with the records in its `round_columns`."""
    if len(records) != batch.num_samples:
        raise _record_error(batch.num_samples, f"{len(records)}")
    rows: list[Row] = []
    num_without_tokens = 0
    for sample, calls in enumerate(records):
        all_calls = _dictionaries(batch, calls)
        answered = [record for record in all_calls if record.get("num_tokens") != 0]
        num_without_tokens += len(all_calls) - len(answered)
        rows += [(sample, index, record) for index, record in enumerate(answered)]
    meta = dict(batch.meta)
    if num_without_tokens:
        meta["num_records_without_tokens"] = num_without_tokens
    columns, left_out = record_columns(rows)
    meta |= left_out_entry([*left_out_of(batch), *left_out])
    return replace(batch, round_columns=columns, meta=meta)


def _dictionaries(batch: Batch, calls: object) -> list[dict[str, Any]]:
    rows = _items(calls)
    for row in rows:
        if not isinstance(row, dict):
            raise _record_error(batch.num_samples, f"a {type(row).__name__} in one")
    return [
        {k: _value(v) for k, v in row.items() if isinstance(k, str)} for row in rows
    ]


def _value(value: object) -> object:
    """Return a value of a record; None for an object of a pickle."""
    if isinstance(value, list):
        return [*map(_value, value)]
    plain = scalar_value(value)
    return None if isinstance(plain, Node) else plain


def record_columns(rows: Sequence[Row]) -> tuple[dict[str, Array], list[str]]:
    """Return records as columns, and a note on columns left out."""
    values, left_out = collect_columns(record for _, _, record in rows)
    plain = select_plain_columns(values, len(rows))
    keys = {
        "sample": np.array([sample for sample, _, _ in rows], dtype=np.int32),
        "round": np.array([index for _, index, _ in rows], dtype=np.int32),
    }
    others = {
        name: plain.get(name, np.fromiter(items, dtype=object, count=len(items)))
        for name, items in values.items()
        if name not in keys
    }
    return ({**keys, **others} if rows else {}), left_out


def _record_error(num_samples: int, content: str) -> BatchError:
    return BatchError.build(
        key="round_records",
        expected=f"{num_samples} lists of dictionaries, one list per sample",
        found=content,
        advice="Collect the return values of `rounddiag.capture.round_record`.",
    )


SAME_PROMPT = {"group_source": "samples whose prompts have the same tokens"}


def prompt_group(prompt: Tensor) -> str:
    """Return a group name that is the same for prompts with the same tokens.

    Examples
    --------
    >>> import torch
    >>> prompt_group(torch.tensor([1, 2])) == prompt_group(torch.tensor([1, 2]).int())
    True
    """
    return blake2b(prompt.long().numpy().tobytes(), digest_size=8).hexdigest()
