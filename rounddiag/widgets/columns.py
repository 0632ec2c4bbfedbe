"""The columns of a batch's samples, rounds and tokens, for filters, `by` and lists."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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
    """Every column of a batch with a value for each generated token.

    Where a value is unknown, a group of its own has it: NaN for numbers, else "".

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
        self._codes: dict[str, tuple[Array, Array]] = {}
        self._catalogue = batch.columns
        has_images = batch.images is not None
        offered = [name for name in _MADE if has_images or name != "num_images"]
        self._made = self._catalogue.available(offered)
        self._samples = {
            **self._catalogue.samples,
            **{
                n: column
                for n, column in self._made.items()
                if column.scope == "sample"
            },
        }
        roles = [name for name in self._made if name == "role"]
        self.names = [
            *dict.fromkeys([*roles, *self._catalogue.extra_names, *self._made])
        ]
        self.sample_names = [name for name in self.names if name in self._samples]

    def facts(self, sample: int) -> list[dict[str, Any]]:
        """Describe a sample by its columns, each with the condition that keeps it."""
        described = []
        for name in self.names_of_samples():
            column = self._samples[name]
            if name in _NO_FACTS or not column.is_known()[sample]:
                continue
            codes, values = _with_unknown(column)
            (plain,) = values[codes[[sample]]].tolist()
            if plain == "":
                continue
            is_range = is_ranged(name, values)
            described.append(
                {
                    "name": name,
                    "text": value_text(plain),
                    "condition": {"from": plain, "to": plain} if is_range else [plain],
                }
            )
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
        first = self.first_names
        return [*first, *(name for name in names if name not in first)]

    @property
    def first_names(self) -> list[str]:
        """The columns of samples that a reader asks for first."""
        return [name for name in _FIRST if name in self.sample_names]

    def scope(self, name: str) -> Scope:
        """Return what has one value of a column."""
        if name in self._samples:
            return "sample"
        return self._column(name).scope

    def mates(self, sample: int) -> list[dict[str, Any]]:
        """Describe the samples of a sample's group, itself among them."""
        group = self._made.get("group_id")
        if group is None or not group.is_known()[sample]:
            return []
        codes = group.codes()[0]
        names = ("reward", "num_rounds", "num_tokens")
        known = {n: self._made[n].filled for n in names if n in self._made}
        success = successes(self.batch)
        return [
            {
                "sample": mate,
                **{name: values[mate].item() for name, values in known.items()},
                "success": success[mate],
            }
            for mate in np.flatnonzero(codes == codes[sample]).tolist()
        ]

    def rank_samples(self, name: str) -> Array:
        """Rank all samples by a column of theirs; equal values have equal ranks."""
        return _with_unknown(self._samples[name])[0]

    @cached_property
    def round_sizes(self) -> Array:
        """The number of tokens of each round."""
        return self.batch.rounds.num_tokens.cpu().numpy()

    def tokens_of(self, sample: int) -> slice:
        """Return which of all generated tokens are those of a sample."""
        first, stop = np.searchsorted(self._catalogue.owner, [sample, sample + 1])
        begin = int(self.round_sizes[:first].sum())
        return slice(begin, begin + int(self.round_sizes[first:stop].sum()))

    def known_roles(self, sample: int) -> pd.Categorical[str] | None:
        """Return the roles of a sample's tokens, if those of all tokens are known."""
        if "role" not in self._codes:
            return None
        codes, names = self._codes["role"]
        kinds = pd.Index(map(str, names))
        return pd.Categorical.from_codes(codes[self.tokens_of(sample)], kinds)

    @cached_property
    def _begins(self) -> Array:
        """Where each round begins among the generated tokens."""
        return np.cumsum(self.round_sizes) - self.round_sizes

    def round_index(self, rows: pd.DataFrame) -> Array:
        """Return which of all rounds rows with `sample` and `round` are."""
        first = np.searchsorted(self._catalogue.owner, rows["sample"].to_numpy())
        return first + rows["round"].to_numpy()

    def flat_index(self, rows: pd.DataFrame) -> Array:
        """Return which of all generated tokens rows with the three keys are."""
        return self._begins[self.round_index(rows)] + rows["token"].to_numpy()

    def codes(self, name: str) -> tuple[Array, Array]:
        """Return the code of each token's value, and the values by their codes."""
        if name not in self.names:
            raise _unknown_column(name, self.names)
        if name == "role":
            if name not in self._codes:
                self.use_roles(token_roles(self.batch))
            return self._codes[name]
        column = self._column(name)
        if name not in self._codes:
            self._codes[name] = _with_unknown(column)
        codes, values = self._codes[name]
        return self._at_tokens(column, codes), values

    def use_roles(self, roles: pd.Categorical[str]) -> None:
        """Take the role of each token as the diagnosis has found it: it takes long."""
        coded = roles.codes.astype(np.int64), np.asarray(roles.categories, object)
        self._codes.setdefault("role", coded)

    def _column(self, name: str) -> Column:
        """Return a column with one row per round, or per token."""
        made = self._made.get(name)
        column = self._catalogue.of_file(name) if made is None else made
        is_of_tokens = column.scope == "token"
        return column if is_of_tokens else self._catalogue.at_rounds(column)

    def _at_tokens(self, column: Column, rows: Array) -> Array:
        is_of_tokens = column.scope == "token"
        return rows if is_of_tokens else np.repeat(rows, self.round_sizes)

    def values_at(self, name: str, rows: pd.DataFrame) -> list[Any]:
        """Return the values of rows with the three keys."""
        if name == "role" and name not in self._codes:
            return self._roles_at(rows)
        codes, values = self.codes(name)
        return values[codes[self.flat_index(rows)]].tolist()

    def _roles_at(self, rows: pd.DataFrame) -> list[str]:
        """Tag the rounds of these rows alone."""
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
        if name not in self.names:
            raise _unknown_column(name, self.names)
        if isinstance(condition, dict):
            column = self._column(name)
            low, high = _ends(column, condition)
            return self._at_tokens(column, rows_between(column, low, high))
        codes, values = self.codes(name)
        wanted = condition if isinstance(condition, list | tuple) else [condition]
        known = self._names_of(name, values)
        unknown = [
            value
            for value in wanted
            if not isinstance(value, Hashable) or value not in known
        ]
        if unknown or not wanted:
            raise _unknown_value(name, unknown, values)
        return np.isin(codes, [known[value] for value in wanted])

    def _names_of(self, name: str, values: Array) -> Mapping[Any, int]:
        """Return the code of each value by the value; None is an unknown number."""
        known: dict[Any, int] = {value: i for i, value in enumerate(in_json(values))}
        if name == "sample" and self.batch.sample_ids is not None:
            ids = [self.batch.sample_ids[i] for i in values]
            known = {**{value: i for i, value in enumerate(ids)}, **known}
        return known

    def offers(self) -> list[dict[str, Any]]:
        """Describe each column for a menu: its values, or the ends of its numbers."""
        return [self._offer(name) for name in self.names]

    def _offer(self, name: str) -> dict[str, Any]:
        if name == "role":
            return {"name": name, "values": [*ROLES]}
        if name == "token":
            return {"name": name, "ends": [0, int(self.round_sizes.max(initial=1)) - 1]}
        if name in _NUMBERS_OF_TOKENS or self._is_measure_of_tokens(name):
            # Not put in order before anybody asks, and read anew: it is not kept.
            fresh = self.batch.columns
            column = fresh.made(name) if name in self._made else fresh.tokens[name]
            numbers = np.empty(0) if column is None else column.values()
            finite = numbers[np.isfinite(numbers)]
            ends = (
                [float(f(finite)) for f in (np.min, np.max)] if len(finite) else [0, 0]
            )
            return {"name": name, "ends": ends}
        values = self.codes(name)[1]
        has_many = name == "round" and len(values) > MAX_GROUPS
        if name != "sample" and (has_many or is_ranged(name, values)):
            return {"name": name, "ends": [values[0].item(), _last(values)]}
        return {"name": name, "values": values[:_MAX_LISTED].tolist()}

    def _is_measure_of_tokens(self, name: str) -> bool:
        flat = self.batch.token_columns.get(name)
        if flat is None or name in self._made:
            return False
        return flat.dtype.is_floating_point

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


def _with_unknown(column: Column) -> tuple[Array, Array]:
    """Return codes and values of a column; NaN or "" stands for what is unknown."""
    codes, values = column.codes()
    unknown = codes < 0
    if not unknown.any():
        return codes, values
    if values.dtype.kind != "O":
        missing = np.array(np.nan if values.dtype.kind == "f" else "NaT", values.dtype)
        return np.where(unknown, len(values), codes), np.append(values, missing)
    texts = values if "" in values[:1] else np.array(["", *values], object)
    return np.where(unknown, 0, codes + len(texts) - len(values)), texts


def _last(values: Array) -> Any:  # noqa: ANN401 an int or a float
    """Return the largest number; missing values stand after it."""
    return values[~np.isnan(values)][-1].item() if len(values) else 0


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
        raise _invalid(column.name, expected, f"{condition!r:.80}")
    if column.kind in ("text", "time"):
        expected = "a column of numbers for a range"
        raise _invalid(column.name, expected, "a column of text")
    low, high = ends
    return -np.inf if low is None else low, np.inf if high is None else high


def _unknown_column(name: str, known: list[str]) -> FrameError:
    return _invalid(name, f"a column out of {join_names([*known], most=20)}", "none")


def _unknown_value(name: str, unknown: list[Any], values: Array) -> FrameError:
    if name == "sample" and len(values):
        expected = f"samples from 0 to {values[-1]}, or their ids"
    else:
        names = [repr(value) for value in values.tolist()]
        expected = f"values out of {join_names(names, most=8)}"
    return _invalid(name, expected, f"{unknown!r:.80}")


def _invalid(name: str, expected: str, content: str) -> FrameError:
    return FrameError.build(
        key=name,
        expected=expected,
        found=content,
        advice="Remove it from the filter, or choose another value.",
    )
