"""`Catalogue`: the columns of a batch by name, of its file and made of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.columns.column import (
    Column,
    ColumnSource,
    Kind,
    Scope,
    kind_of,
    plain_array,
    scatter_with_missing,
)
from rounddiag.schema import TOKENS

AnyBatch: TypeAlias = Any  # a Batch: the layer above
# Returns the source of a column, None for a batch that lacks it, and reads nothing.
Make: TypeAlias = Callable[[AnyBatch], "ColumnSource | None"]
_made: dict[str, tuple[Scope, Kind, Make]] = {}
_KEYS = ("sample", "round")  # of `round_columns`


def register_column(name: str, scope: Scope, kind: Kind, make: Make) -> None:
    """Add a column that is made of a batch's fields.

    Examples
    --------
    >>> register_column("length", "sample", "number", lambda batch: batch.lengths.numpy)
    >>> import rounddiag as rd
    >>> rd.load("sample_data/healthy.parquet").columns.made("length").values()[:3]
    array([60, 12, 59])
    """
    _made[name] = (scope, kind, make)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The columns of a batch by name; one is read when its values are asked for.

    Examples
    --------
    >>> import rounddiag as rd
    >>> columns = rd.load("sample_data/image_window.parquet").columns
    >>> columns.samples["status"].scope, columns.rounds["action"].kind
    ('sample', 'text')
    """

    batch: AnyBatch

    @cached_property
    def samples(self) -> dict[str, Column]:
        """The columns of samples that the file has."""
        stored = self.batch.sample_columns
        return {
            name: Column.of(name, "sample", values) for name, values in stored.items()
        }

    @cached_property
    def rounds(self) -> dict[str, Column]:
        """The columns of rounds that the file has, in the order of `batch.rounds`.

        The value of a round without a row is unknown; of several rows, the last counts.
        """
        stored = self.batch.round_columns
        return {
            name: Column(
                name, "round", partial(self._by_round, name), kind_of(name, values)
            )
            for name, values in stored.items()
            if name not in _KEYS
        }

    @cached_property
    def tokens(self) -> dict[str, Column]:
        """The columns of generated tokens that the file has."""
        return {
            name: Column(
                name,
                "token",
                partial(self._of_tokens, flat),
                _kind_of_tensor(name, flat),
            )
            for name, flat in self.batch.token_columns.items()
        }

    def _of_tokens(self, flat: Tensor) -> Array:
        values = flat[self.batch.response_mask != 0].cpu()
        has_numpy_dtype = values.dtype != torch.bfloat16
        return plain_array((values if has_numpy_dtype else values.float()).numpy())

    @property
    def extra_names(self) -> list[str]:
        """The names of the file's columns that frames do not use themselves."""
        own = {column.name for column in TOKENS.columns}
        names = dict.fromkeys(
            [
                *self.batch.token_columns,
                *self.batch.round_columns,
                *self.batch.sample_columns,
            ]
        )
        return [name for name in names if name not in own]

    def of_file(self, name: str) -> Column:
        """Return a column that the file has; of several, the one of finest scope."""
        tables = (self.tokens, self.rounds, self.samples)
        return next(table[name] for table in tables if name in table)

    def made(self, name: str) -> Column | None:
        """Return a column that is made of the batch's fields; None if it lacks them."""
        scope, kind, make = _made[name]
        source = make(self.batch)
        return None if source is None else Column(name, scope, source, kind)

    def available(self, names: Iterable[str]) -> dict[str, Column]:
        """Return those of some columns made of fields that the batch has."""
        made = ((name, self.made(name)) for name in names)
        return {name: column for name, column in made if column is not None}

    def at_rounds(self, column: Column) -> Column:
        """Return a column of samples or rounds with one row per round."""
        if column.scope == "round":
            return column
        return Column(
            column.name, "round", lambda: column.filled[self.owner], column.kind
        )

    @cached_property
    def owner(self) -> Array:
        """The sample of each round."""
        return _of_rounds(self.batch, "sample")

    @cached_property
    def rounds_per_sample(self) -> Array:
        """How many rounds each sample has."""
        return np.bincount(self.owner, minlength=self.batch.num_samples)

    def _by_round(self, name: str) -> Array:
        rows, places = self._rows_of_rounds
        values = plain_array(self.batch.round_columns[name])[rows]
        return scatter_with_missing(values, places, len(self.owner))

    def stored_by_round(self, name: str) -> Array:
        """Return a column of rounds as the file has it, such as lists; None if unknown.

        `rounds` has the same as plain values.
        """
        values = np.full(len(self.owner), None, dtype=object)
        rows, places = self._rows_of_rounds
        for row, place in zip(rows.tolist(), places.tolist(), strict=True):
            values[place] = self.batch.round_columns[name][row]
        return values

    @cached_property
    def _rows_of_rounds(self) -> tuple[Array, Array]:
        sample, index = (self.batch.round_columns[name] for name in _KEYS)
        counts = self.rounds_per_sample
        rows = np.flatnonzero((sample >= 0) & (sample < len(counts)) & (index >= 0))
        rows = rows[index[rows] < counts[sample[rows]]]
        first = np.cumsum(counts) - counts
        return rows, (first[sample[rows]] + index[rows]).astype(np.int64)

    @property
    def num_rounds_known(self) -> int:
        """How many rounds have a row in `round_columns`."""
        return len(np.unique(self._rows_of_rounds[1]))


def _kind_of_tensor(name: str, values: Tensor) -> Kind:
    dtype = "bool" if values.dtype == torch.bool else "float32"
    return kind_of(name, np.empty(0, dtype))


def _texts(names: tuple[str, ...] | None) -> ColumnSource | None:
    return None if names is None else lambda: np.array(names, dtype=object)


def _rewards(batch: AnyBatch) -> ColumnSource | None:
    rewards = batch.rewards
    return None if rewards is None else lambda: rewards.double().cpu().numpy()


def _of_rounds(batch: AnyBatch, name: str) -> Array:
    return getattr(batch.rounds, name).cpu().numpy()


def _num_rounds(batch: AnyBatch) -> ColumnSource:
    return lambda: np.bincount(_of_rounds(batch, "sample"), minlength=len(batch))


def _num_tokens(batch: AnyBatch) -> ColumnSource:
    def read() -> Array:
        sample, num = (_of_rounds(batch, name) for name in ("sample", "num_tokens"))
        return np.bincount(sample, num, len(batch)).astype(np.int64)

    return read


register_column("sample_id", "sample", "text", lambda batch: _texts(batch.sample_ids))
register_column("group_id", "sample", "text", lambda batch: _texts(batch.group_ids))
register_column("reward", "sample", "number", _rewards)
register_column("num_rounds", "sample", "number", _num_rounds)
register_column("num_tokens", "sample", "number", _num_tokens)
register_column("sample", "round", "name", lambda b: partial(_of_rounds, b, "sample"))
register_column("round", "round", "number", lambda b: partial(_of_rounds, b, "round"))
