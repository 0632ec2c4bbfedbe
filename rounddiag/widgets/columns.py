"""The columns of a batch's samples, rounds and tokens, for filters, `by` and lists."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns import Column
from rounddiag.columns.column import Scope, is_real
from rounddiag.columns.predicates import rows_between
from rounddiag.core import token_roles
from rounddiag.core.columns import span_texts
from rounddiag.errors import FrameError
from rounddiag.text import roles, special_tokens
from rounddiag.text.role_tagging import ROLES
from rounddiag.widgets.outcomes import successes
from rounddiag.wording import join_names, with_minus

# Numbers of tokens, where the batch has them.
_NUMBERS_OF_TOKENS = ("entropy", "advantage", "loss_mask", "importance_weight")
# Made of the batch's fields, in the order of a menu; the file has others.
_MADE = (
    "role",
    *("sample_id", "group_id", "reward", "num_rounds", "num_tokens", "num_images"),
    *_NUMBERS_OF_TOKENS,
    *("sample", "round", "token"),
)
# What the page says of a sample elsewhere, or tells of samples apart.
_NO_FACTS = ("sample_id", "num_rounds", "num_tokens")
# What a reader of samples asks first: in chips and in the list of samples.
_FIRST = ("reward", "status", "rank")
# A column of numbers with more values than this is divided into as many bins.
MAX_GROUPS = 8
_MAX_NAMES = 64  # integers, each of which is a group
# Values that a menu lists.
_MAX_LISTED = 500
OTHERS = "others"


class BatchColumns:
    """The columns of a batch as categoricals: of its samples, its rounds, its tokens.

    An unknown number has no category. An unknown text is an empty one.

    Parameters
    ----------
    batch : Batch

    Attributes
    ----------
    names: `sample`, `round` and `token` (in its round), what is known of samples and
        rounds, and `role` if the batch has a tokenizer.
    sample_names: Those with one value for each sample.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._catalogue = catalogue = batch.columns
        self._made = catalogue.available(
            name for name in _MADE if name != "num_images" or batch.images is not None
        )
        of_samples = (c for c in self._made.values() if c.scope == "sample")
        self._samples = catalogue.samples | {c.name: c for c in of_samples}
        roles = {"role"} & self._made.keys()
        self.names = [*dict.fromkeys([*roles, *catalogue.extra_names, *self._made])]
        self.sample_names = [name for name in self.names if name in self._samples]
        self._coded: dict[str, pd.Categorical[Any]] = {}  # of rounds and tokens

    def facts(self, sample: int) -> list[dict[str, Any]]:
        """Describe a sample by its columns, each with the condition that keeps it."""
        described = []
        for name in self.names_of_samples():
            column = self._samples[name]
            if name in _NO_FACTS or not column.is_known()[sample]:
                continue
            coded = self._of_samples[name]
            values = known_values(coded)
            (value,) = values[coded.codes[[sample]]].tolist()
            is_range = is_ranged(name, values)
            condition = {"from": value, "to": value} if is_range else [value]
            if value != "":
                text = value_text(value)
                described.append({"name": name, "text": text, "condition": condition})
        return described

    def names_of_samples(self) -> list[str]:
        """Return the columns of samples, what is asked first in front.

        Without those that repeat the id of each sample.
        """
        ids = [*(self.batch.sample_ids or ())]
        own = {"sample", "sample_id"} if ids else {*self.sample_names}
        names = [
            name
            for name in self.sample_names
            if name in own or self._samples[name].filled.tolist() != ids
        ]
        return [*dict.fromkeys([*self.first_names, *names])]

    @property
    def first_names(self) -> list[str]:
        """The columns of samples that a reader asks for first."""
        return [name for name in _FIRST if name in self.sample_names]

    def scope(self, name: str) -> Scope:
        """Return what has one value of a column."""
        return "sample" if name in self._samples else self._column(name).scope

    def mates(self, sample: int) -> list[dict[str, Any]]:
        """Describe the samples of a sample's group, itself among them."""
        group = self._made.get("group_id")
        if group is None or not group.is_known()[sample]:
            return []
        names = ("reward", "num_rounds", "num_tokens")
        known = {n: self._made[n].filled for n in names if n in self._made}
        table = pd.DataFrame({**known, "success": successes(self.batch)}, dtype=object)
        own = group.filled == group.filled[sample]
        return table[own].rename_axis("sample").reset_index().to_dict("records")

    def rank_samples(self, name: str) -> Array:
        """Rank all samples by a column of theirs; equal values have equal ranks."""
        return codes_of(self._of_samples[name])

    @cached_property
    def _of_samples(self) -> dict[str, pd.Categorical[Any]]:
        return {name: _coded(column) for name, column in self._samples.items()}

    @cached_property
    def round_sizes(self) -> Array:
        """The number of tokens of each round."""
        return self.batch.rounds.num_tokens.cpu().numpy()

    @cached_property
    def _edges(self) -> Array:
        """Where each round begins among the generated tokens, and the last one ends."""
        return np.cumsum(np.r_[0, self.round_sizes])

    def tokens_of(self, sample: int) -> slice:
        """Return which of all generated tokens are those of a sample."""
        ends = np.searchsorted(self._catalogue.owner, [sample, sample + 1])
        return slice(*self._edges[ends].tolist())

    def known_roles(self, sample: int) -> pd.Categorical[Any] | None:
        """Return the roles of a sample's tokens, if those of all tokens are known."""
        roles = self._coded.get("role")
        return None if roles is None else roles[self.tokens_of(sample)]

    def round_index(self, rows: pd.DataFrame) -> Array:
        """Return which of all rounds rows with `sample` and `round` are."""
        first = np.searchsorted(self._catalogue.owner, rows["sample"].to_numpy())
        return first + rows["round"].to_numpy()

    def flat_index(self, rows: pd.DataFrame) -> Array:
        """Return which of all generated tokens rows with the three keys are."""
        return self._edges[self.round_index(rows)] + rows["token"].to_numpy()

    def use_roles(self, roles: pd.Categorical[Any]) -> None:
        """Take the role of each token as the diagnosis has found it: it takes long."""
        self._coded.setdefault("role", roles)

    def _column(self, name: str) -> Column:
        """Return a column with one row per round, or per token."""
        if name not in self.names:
            raise _unknown_column(name, self.names)
        column = self._made.get(name) or self._catalogue.of_file(name)
        is_of_tokens = column.scope == "token"
        return column if is_of_tokens else self._catalogue.at_rounds(column)

    def _rows(self, name: str) -> pd.Categorical[Any]:
        """Return the values of all rounds, or of all tokens."""
        if name not in self._coded:
            is_role, column = name == "role", self._column(name)
            self._coded[name] = token_roles(self.batch) if is_role else _coded(column)
        return self._coded[name]

    def _at_tokens(self, name: str, rows: Array) -> Array:
        is_of_tokens = self._column(name).scope == "token"
        return rows if is_of_tokens else rows.repeat(self.round_sizes)

    def codes(self, name: str) -> tuple[Array, Array]:
        """Return the code of each token's value, and the values by their codes."""
        coded = self._rows(name)
        return self._at_tokens(name, codes_of(coded)), known_values(coded)

    def values_at(self, name: str, rows: pd.DataFrame) -> list[Any]:
        """Return the values of rows with the three keys."""
        if name == "role" and name not in self._coded:
            return self._roles_at(rows)
        coded, is_of_tokens = self._rows(name), self._column(name).scope == "token"
        at = self.flat_index(rows) if is_of_tokens else self.round_index(rows)
        return known_values(coded)[coded.codes[at]].tolist()

    def _roles_at(self, rows: pd.DataFrame) -> list[str]:
        batch = self.batch
        places, own = np.unique(self.round_index(rows), return_inverse=True)
        sizes = self.round_sizes[places]
        starts = np.cumsum(sizes) - sizes
        first = batch.rounds.start.cpu().numpy()[places]
        texts = [*chain.from_iterable(span_texts(batch, first, sizes))]
        special = {*special_tokens(batch.tokenizer).values()}
        tagged = roles(texts, starts=starts, special=special)
        return [tagged[i] for i in starts[own] + rows["token"].to_numpy()]

    def keep(self, name: str, condition: object) -> Array:
        """Mark the tokens whose value meets a condition of a filter."""
        column = self._column(name)
        if isinstance(condition, dict):
            rows = rows_between(column, *_ends(column, condition))
        else:
            rows = self._rows_with(name, condition)
        return self._at_tokens(name, rows)

    def _rows_with(self, name: str, condition: object) -> Array:
        coded, ids = self._rows(name), self.batch.sample_ids
        values = known_values(coded)
        known: dict[Any, int] = {value: i for i, value in enumerate(in_json(values))}
        if name == "sample" and ids is not None:
            known = {**{ids[value]: i for i, value in enumerate(values)}, **known}
        wanted = condition if isinstance(condition, list | tuple) else [condition]
        unknown = [
            value
            for value in wanted
            if not isinstance(value, Hashable) or value not in known
        ]
        if unknown or not wanted:
            raise _unknown_value(name, unknown, values)
        return np.isin(codes_of(coded), [known[value] for value in wanted])

    def offers(self) -> list[dict[str, Any]]:
        """Describe each column for a menu: its values, or the ends of its numbers."""
        return [{"name": name, **self._offer(name)} for name in self.names]

    def _offer(self, name: str) -> dict[str, Any]:
        if name == "role":
            return {"values": [*ROLES]}
        if name == "token":
            return {"ends": [0, int(self.round_sizes.max(initial=1)) - 1]}
        if self._is_measure_of_tokens(name):
            # Not put in order before anybody asks, and read anew: it is not kept.
            numbers = replace(self._column(name)).values()
            numbers = numbers[np.isfinite(numbers)]
            ends = [numbers.min(), numbers.max()] if len(numbers) else [0, 0]
            return {"ends": [*map(float, ends)]}
        values = known_values(self._rows(name))
        has_many = name == "round" and len(values) > MAX_GROUPS
        if name != "sample" and (has_many or is_ranged(name, values)):
            known = values[~np.isnan(values)].tolist() or [0]
            return {"ends": [values[0].item(), known[-1]]}
        return {"values": values[:_MAX_LISTED].tolist()}

    def _is_measure_of_tokens(self, name: str) -> bool:
        if name in self._made:
            return name in _NUMBERS_OF_TOKENS
        flat = self.batch.token_columns.get(name)
        return flat is not None and flat.dtype.is_floating_point

    def groups(self, name: str, size: Array) -> pd.Categorical[str]:
        """Divide all tokens into at most 8 groups by a column, in their order."""
        codes, values = self.codes(name)
        if len(values) <= MAX_GROUPS:
            texts = [value_text(value) for value in values.tolist()]
        elif is_ranged(name, values):
            bins, ends = bins_of(codes, values, MAX_GROUPS - 1)
            codes, texts = bins[codes], [range_text(*end) for end in ends]
        else:
            codes, texts = _largest(codes, values, size)
        names = pd.Index(texts, dtype=object).unique()
        own = names.get_indexer(pd.Index(texts, dtype=object))
        return pd.Categorical.from_codes(own[codes], names, ordered=True)


def token_columns_of(batch: Batch) -> list[str]:
    """Return the columns of numbers with a value for each token that a batch has."""
    return [*batch.columns.available(_NUMBERS_OF_TOKENS)]


def _coded(column: Column) -> pd.Categorical[Any]:
    codes, values = column.codes()
    if values.dtype.kind == "O" and (codes < 0).any():  # texts
        texts = values if "" in values[:1] else np.array(["", *values], object)
        codes, values = codes + len(texts) - len(values), texts
        codes = codes.clip(0)
    if values.dtype.kind in "biuf":
        categories = pd.Index(values)
    else:  # pandas has units of time of its own
        categories = pd.Index(values.tolist(), dtype=object)
    return pd.Categorical.from_codes(codes, categories, ordered=True)


def known_values(coded: pd.Categorical[Any]) -> Array:
    """Return the values by their codes; the last is NaN or None if some are unknown."""
    values = np.asarray(coded.categories)
    if (coded.codes >= 0).all():
        return values
    unknown: Any = np.nan if values.dtype.kind == "f" else None
    return np.append(values, unknown)


def codes_of(coded: pd.Categorical[Any]) -> Array:
    """Return the place of each value among `known_values`."""
    return np.arange(len(known_values(coded)))[coded.codes]


def is_ranged(name: str, values: Array) -> bool:
    """Return whether a column has measures, which have ranges, and not names as ranks.

    Examples
    --------
    >>> [is_ranged(name, np.arange(16)) for name in ("rank", "num_tokens")]
    [False, True]
    """
    is_name = values.dtype.kind in "iu" and not name.startswith("num_")
    num_names = _MAX_NAMES if is_name else MAX_GROUPS
    return values.dtype.kind in "iuf" and len(values) > num_names


def in_json(values: Array) -> list[Any]:
    """Return values as a filter names them: None for an unknown number.

    Examples
    --------
    >>> in_json(np.array([0.5, np.nan]))
    [0.5, None]
    """
    return [value if value == value else None for value in values.tolist()]  # noqa: PLR0124 NaN


def bins_of(
    codes: Array, values: Array, num_bins: int
) -> tuple[Array, list[tuple[Any, Any]]]:
    """Put numbers into bins that have about as many tokens each; unknown ones apart.

    Returns the bin of each value, and the lowest and highest value of each bin.

    Examples
    --------
    >>> bins_of(np.array([0, 1, 2, 3]), np.array([1.0, 2.0, 3.0, np.nan]), 2)
    (array([0, 0, 1, 2]), [(1.0, 2.0), (3.0, 3.0), (nan, nan)])
    """
    numbers = values.astype(np.float64)
    shares = np.linspace(0, 1, num_bins + 1)[1:-1]
    edges = np.unique(np.nanquantile(numbers[codes], shares, method="inverted_cdf"))
    at = np.searchsorted(edges, numbers, side="left")
    at[np.isnan(numbers)] = len(edges) + 1
    used, at = np.unique(at, return_inverse=True)
    parts = [values[at == number] for number in range(len(used))]
    return at, [(part[0].item(), part[-1].item()) for part in parts]


def _largest(codes: Array, values: Array, size: Array) -> tuple[Array, list[str]]:
    """Keep the values with the largest mean, and call all others so."""
    finite = np.isfinite(size)
    num = np.bincount(codes[finite], minlength=len(values))
    total = np.bincount(codes[finite], size[finite], len(values))
    mean = np.divide(total, num, out=np.full(len(values), -1.0), where=num > 0)
    first = np.argsort(-mean, kind="stable")[: MAX_GROUPS - 1]
    group = np.full(len(values), len(first))
    group[first] = np.arange(len(first))
    return group[codes], [
        *(value_text(value) for value in values[first].tolist()),
        OTHERS,
    ]


def value_text(value: object) -> str:
    """Write a value of a column for a reader."""
    if isinstance(value, str):
        return value
    return with_minus(f"{value:.4g}" if isinstance(value, float) else str(value))


def range_text(low: float, high: float) -> str:
    """Write a range of numbers for a reader.

    Examples
    --------
    >>> range_text(1.0, 2.5), range_text(3, 3)
    ('1 to 2.5', '3')
    """
    first, last = value_text(low), value_text(high)
    return first if first == last else f"{first} to {last}"


def _ends(column: Column, condition: Mapping[str, Any]) -> tuple[float, float]:
    """Return both ends of a range; an end that is left out is infinite."""
    ends = [condition.get("from"), condition.get("to")]
    numbers = [end is None or (is_real(end) and end == end) for end in ends]  # noqa: PLR0124 NaN
    if not all(numbers) or set(condition) - {"from", "to"} or ends == [None, None]:
        expected = "{'from': lowest, 'to': highest}, with one of them at least"
        raise invalid_condition(column.name, expected, f"{condition!r:.80}")
    if column.kind in ("text", "time"):
        expected = "a column of numbers for a range"
        raise invalid_condition(column.name, expected, "a column of text")
    low, high = ends
    return -np.inf if low is None else low, np.inf if high is None else high


def _unknown_column(name: str, known: list[str]) -> FrameError:
    return invalid_condition(
        name, f"a column out of {join_names([*known], most=20)}", "none"
    )


def _unknown_value(name: str, unknown: list[Any], values: Array) -> FrameError:
    if name == "sample" and len(values):
        expected = f"samples from 0 to {values[-1]}, or their ids"
    else:
        names = [repr(value) for value in values.tolist()]
        expected = f"values out of {join_names(names, most=8)}"
    return invalid_condition(name, expected, f"{unknown!r:.80}")


def invalid_condition(name: str, expected: str, content: str) -> FrameError:
    """Build the error of a condition of a filter."""
    return FrameError.build(
        key=name,
        expected=expected,
        found=content,
        advice="Remove it from the filter, or choose another value.",
    )
