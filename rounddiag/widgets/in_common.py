"""What some tokens have in common: values that they have more often than all tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.widgets.columns import MAX_GROUPS, range_text, value_text
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.widgets.columns import BatchColumns

# A column with more values than this names no place: ids, rewards of a continuous kind.
_MAX_VALUES = 100
_NUM_VALUES = 3  # of a column, those that stand out most
_SURE = 0.995  # shown as 100 %
_USUAL = 0.7  # a value of so many tokens is nothing that some have in common


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A value, and how many of some tokens and of all tokens have it.

    Attributes
    ----------
    column : str
    value : object
        A number, a text, or a range of numbers `{"from": lowest, "to": highest}`.
    num, num_some : int
        How many of the tokens have it, and how many these are.
    share_of_all : float
    """

    column: str
    value: Any
    num: int
    num_some: int
    share_of_all: float

    @property
    def share(self) -> float:
        """The share of the tokens that have it."""
        return self.num / self.num_some

    @property
    def text(self) -> str:
        """The value for a reader."""
        if isinstance(self.value, dict):
            return range_text(self.value["from"], self.value["to"])
        return value_text(self.value)

    @property
    def strength(self) -> float:
        """How much the value says of the tokens, in nats per token."""
        return self.share * float(np.log(self.share / self.share_of_all))


def shared_values(
    columns: BatchColumns, all_tokens: Array, some: Array
) -> list[Shared]:
    """Return the values that some tokens have more often than all, strongest first."""
    if not len(some):
        return []
    found = [
        one
        for name in columns.names
        if name not in ("sample", "importance_weight")
        for one in _of_column(columns, name, all_tokens, some)
    ]
    return sorted(found, key=lambda one: -one.strength)


def _of_column(
    columns: BatchColumns, name: str, all_tokens: Array, some: Array
) -> list[Shared]:
    codes, values = columns.codes(name)
    size = len(values)
    has_few = size <= _MAX_VALUES
    found = []
    if has_few:
        found += _over_represented(name, codes, values.tolist(), all_tokens, some)
    if values.dtype.kind in "iuf" and size > MAX_GROUPS:
        ranges = _over_represented(name, *_ranges(codes, values), all_tokens, some)
        # A range of one value is found already.
        found += [
            one for one in ranges if not has_few or one.value["from"] < one.value["to"]
        ]
    return sorted(found, key=lambda one: -one.strength)[:_NUM_VALUES]


def _over_represented(
    name: str, codes: Array, conditions: list[Any], all_tokens: Array, some: Array
) -> list[Shared]:
    """Return the values that more of some tokens have than of all."""
    size = len(conditions)
    num = np.bincount(codes[some], minlength=size)
    share = np.bincount(codes[all_tokens], minlength=size) / max(len(all_tokens), 1)
    return [
        Shared(
            column=name,
            value=conditions[code],
            num=int(num[code]),
            num_some=len(some),
            share_of_all=float(share[code]),
        )
        for code in np.flatnonzero(num / len(some) > share)
    ]


def _ranges(codes: Array, values: Array) -> tuple[Array, list[dict[str, Any]]]:
    """Put numbers into ranges with about as many values each."""
    numbers = np.nan_to_num(values.astype(np.float64), nan=np.inf)
    finite = numbers[np.isfinite(numbers)]
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, 2 * MAX_GROUPS + 1)))
    at = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 1)
    used, at = np.unique(at, return_inverse=True)
    conditions = []
    for one in range(len(used)):
        inside = values[(at == one) & np.isfinite(numbers)]
        ends = (inside[0], inside[-1]) if len(inside) else (values[-1], values[-1])
        low, high = (end.item() for end in ends)
        conditions.append({"from": low, "to": high})
    return at[codes], conditions


def summary_of(found: Sequence[Shared], tokens: pd.DataFrame, num_samples: int) -> str:
    """Say in one sentence what all of some tokens have in common; empty for nothing."""
    if not found:
        return ""
    parts = [f"{one.column} = {one.text}" for one in _of_all(found)]
    num, first = len(tokens), int(tokens["round"].min())
    own = f"all in {tokens['sample'].nunique()} of {pluralize(num_samples, 'sample')}"
    own += f", none before round {first}" if first else ""
    if not parts:
        return f"{pluralize(num, 'token')}, {own}."
    return f"{num:,} of {pluralize(num, 'token')}: {', '.join(parts)}; {own}."


def _of_all(found: Sequence[Shared]) -> Iterator[Shared]:
    """Yield the strongest value of each column that nearly all of them have."""
    columns = set()
    for one in found:
        is_all = one.share > _SURE and one.share_of_all < _USUAL
        # A range of rounds or of places says less than where they begin.
        if is_all and one.column not in columns and not isinstance(one.value, dict):
            columns.add(one.column)
            yield one
