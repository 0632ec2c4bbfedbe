"""The columns of a batch's samples, rounds and tokens, for filters, `by` and lists."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.core import sample_frame, token_frame
from rounddiag.core.columns import extra_column_names, extra_column_values, token_roles
from rounddiag.errors import FrameError
from rounddiag.stats.grouping import images_before_rounds
from rounddiag.text import pieces, roles, special_tokens
from rounddiag.text.role_tagging import ROLES
from rounddiag.wording import join_names, with_minus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag._typing import Array
    from rounddiag.batch import Batch


# Columns of a sample frame that are measurements, not columns to choose by.
_OF_SAMPLES = ("sample_id", "group_id", "reward", "num_rounds", "num_tokens")
# Of a token frame, where the batch has them.
_NUMBERS_OF_TOKENS = ("entropy", "advantage", "loss_mask", "importance_weight")
_OF_TOKENS = ("token", "role", *_NUMBERS_OF_TOKENS)
# What the page says of a sample elsewhere, or tells of samples apart.
_NO_FACTS = ("sample_id", "num_rounds", "num_tokens")
# A column of numbers with more values than this is divided into as many bins.
MAX_GROUPS = 8
_MAX_NAMES = 64  # integers, each of which is a group
# Values that a menu lists.
_MAX_LISTED = 500
OTHERS = "others"


class Label(str):
    """The name of a group; names are in the order of their groups."""

    __slots__ = ("rank",)
    rank: int

    @classmethod
    def of(cls, text: str, rank: int) -> Label:
        """Name a group by its text and its place among all."""
        label = cls(text)
        label.rank = rank
        return label

    def __lt__(self, other: str) -> bool:
        return self.rank < getattr(other, "rank", -1)


class BatchColumns:
    """Every column of a batch with a value for each generated token.

    Parameters
    ----------
    batch : Batch

    Attributes
    ----------
    names : list of str
        `sample`, `round` and `token` (in its round), what is known of samples and
        rounds, and `role` if the batch has a tokenizer.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._codes: dict[str, tuple[Array, Array]] = {}
        samples = sample_frame(batch)
        self._samples = {
            name: samples[name].to_numpy() for name in _OF_SAMPLES if name in samples
        }
        has_roles = batch.tokenizer is not None and not batch.is_redacted
        self.names = [
            *dict.fromkeys(
                [
                    *(["role"] if has_roles else []),
                    *extra_column_names(batch),
                    *self._samples,
                    *(["num_images"] if self._num_images is not None else []),
                    *token_columns_of(batch),
                    *("sample", "round", "token"),
                ]
            )
        ]

    @property
    def sample_names(self) -> list[str]:
        """The columns with one value for each sample."""
        return [one for one in self.names if one in self._values_of_samples]

    @property
    def _values_of_samples(self) -> dict[str, Array]:
        return {**self.batch.sample_columns, **self._samples}

    def facts(self, sample: int) -> list[dict[str, Any]]:
        """Describe a sample by its columns, each with the condition that keeps it."""
        found = []
        for name in self.sample_names:
            if name in _NO_FACTS:
                continue
            codes, values = _factorize(self._values_of_samples[name])
            value = values[codes[sample]]
            if pd.isna(value) or value == "":
                continue
            plain = value.item() if isinstance(value, np.generic) else value
            is_range = is_ranged(name, values)
            found.append(
                {
                    "name": name,
                    "text": value_text(plain),
                    "condition": {"from": plain, "to": plain} if is_range else [plain],
                }
            )
        return found

    def mates(self, sample: int) -> list[dict[str, Any]]:
        """Describe the samples of a sample's group, itself among them."""
        group = self._samples.get("group_id")
        if group is None or group[sample] is None:
            return []
        known = {
            name: self._samples[name]
            for name in _OF_SAMPLES[2:]
            if name in self._samples
        }
        return [
            {
                "sample": mate,
                **{name: values[mate].item() for name, values in known.items()},
            }
            for mate in np.flatnonzero(group == group[sample]).tolist()
        ]

    def rank_samples(self, name: str) -> Array:
        """Rank all samples by a column of theirs; equal values have equal ranks."""
        ranks: Array = _factorize(self._values_of_samples[name])[0]
        return ranks

    @cached_property
    def round_sizes(self) -> Array:
        """The number of tokens of each round."""
        sizes: Array = self.batch.rounds.num_tokens.cpu().numpy()
        return sizes

    def num_tokens_of(self, sample: int) -> int:
        """Return the number of generated tokens of a sample."""
        return int(self.round_sizes[self._keys["sample"] == sample].sum())

    @cached_property
    def _begins(self) -> Array:
        """Where each round begins among the generated tokens."""
        begins: Array = np.cumsum(self.round_sizes) - self.round_sizes
        return begins

    @cached_property
    def _keys(self) -> dict[str, Array]:
        rounds = self.batch.rounds
        found = {"sample": rounds.sample, "round": rounds.round}
        return {name: values.cpu().numpy() for name, values in found.items()}

    @cached_property
    def _num_images(self) -> Array | None:
        """How many screenshots each round's sample has seen; None if not known."""
        if self.batch.images is None:
            return None
        try:
            return images_before_rounds(self.batch)
        except FrameError:
            return None

    def round_index(self, rows: pd.DataFrame) -> Array:
        """Return which of all rounds rows with `sample` and `round` are."""
        first = np.searchsorted(self._keys["sample"], rows["sample"].to_numpy())
        found: Array = first + rows["round"].to_numpy()
        return found

    def flat_index(self, rows: pd.DataFrame) -> Array:
        """Return which of all generated tokens rows with the three keys are."""
        found: Array = self._begins[self.round_index(rows)] + rows["token"].to_numpy()
        return found

    def codes(self, name: str) -> tuple[Array, Array]:
        """Return the code of each token's value, and the values by their codes."""
        if name not in self.names:
            raise _unknown_column(name, self.names)
        if name not in self._codes:
            self._codes[name] = self._factorize(name)
        codes, values = self._codes[name]
        if name not in _OF_TOKENS:
            codes = np.repeat(codes, self.round_sizes)
        return codes, values

    def use_roles(self, roles: pd.Categorical[str]) -> None:
        """Take the role of each token as the diagnosis has found it: it takes long."""
        self._codes.setdefault("role", _codes_of_roles(roles))

    def _factorize(self, name: str) -> tuple[Array, Array]:
        """Return codes and values of each round, or of each token."""
        if name == "role":
            return _codes_of_roles(token_roles(self.batch))
        if name == "token":
            token = np.arange(self.batch.num_tokens) - np.repeat(
                self._begins, self.round_sizes
            )
            return token, np.arange(int(self.round_sizes.max(initial=0)))
        if name in _NUMBERS_OF_TOKENS:
            return _factorize(self._numbers_of_tokens(name))
        return _factorize(self._of_rounds(name))

    def _numbers_of_tokens(self, name: str) -> Array:
        values: Array = token_frame(self.batch, [name])[name].to_numpy()
        return values

    def _of_rounds(self, name: str) -> Array:
        if name in self._keys:
            return self._keys[name]
        if name in self._samples:
            return self._samples[name][self._keys["sample"]]
        if name == "num_images" and self._num_images is not None:
            return self._num_images
        return extra_column_values(self.batch, name)

    def values_at(self, name: str, rows: pd.DataFrame) -> list[Any]:
        """Return the values of rows with the three keys."""
        if name == "role" and name not in self._codes:
            return self._roles_at(rows)
        codes, values = self.codes(name)
        found: list[Any] = values[codes[self.flat_index(rows)]].tolist()
        return found

    def _roles_at(self, rows: pd.DataFrame) -> list[str]:
        """Tag the rounds of these rows alone."""
        batch = self.batch
        places, own = np.unique(self.round_index(rows), return_inverse=True)
        sizes = self.round_sizes[places]
        starts = np.cumsum(sizes) - sizes
        first = batch.rounds.start.cpu().numpy()[places]
        ids = batch.response_ids.cpu().numpy()
        parts = [ids[f : f + n] for f, n in zip(first, sizes, strict=True)]
        texts = pieces(
            np.concatenate([ids[:0], *parts]), batch.tokenizer, starts=starts
        )
        special = {*special_tokens(batch.tokenizer).values()}
        found = roles(texts, starts=starts, special=special)
        return [found[i] for i in starts[own] + rows["token"].to_numpy()]

    def keep(self, name: str, condition: object) -> Array:
        """Mark the tokens whose value meets a condition of a filter."""
        codes, values = self.codes(name)
        if isinstance(condition, dict):
            low, high = _ends(name, condition, values)
            return ((low <= values) & (values <= high))[codes]
        wanted = condition if isinstance(condition, list | tuple) else [condition]
        known = self._names_of(name, values)
        unknown = [
            one for one in wanted if not isinstance(one, Hashable) or one not in known
        ]
        if unknown or not wanted:
            raise _unknown_value(name, unknown, values)
        return np.isin(codes, [known[one] for one in wanted])

    def _names_of(self, name: str, values: Array) -> Mapping[Any, int]:
        """Return the code of each value, by the value."""
        known: dict[Any, int] = {value: i for i, value in enumerate(values.tolist())}
        if name == "sample" and self.batch.sample_ids is not None:
            ids = [self.batch.sample_ids[i] for i in values]
            known = {**{one: i for i, one in enumerate(ids)}, **known}
        return known

    def offers(self) -> list[dict[str, Any]]:
        """Describe each column for a menu: its values, or the ends of its numbers."""
        return [self._offer(name) for name in self.names]

    def _offer(self, name: str) -> dict[str, Any]:
        if name == "role":
            return {"name": name, "values": [*ROLES]}
        if name == "token":
            return {"name": name, "ends": [0, int(self.round_sizes.max(initial=1)) - 1]}
        if name in _NUMBERS_OF_TOKENS:  # not put in order before anybody asks
            numbers = self._numbers_of_tokens(name)
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

    def groups(self, name: str, size: Array) -> tuple[Array, list[Label]]:
        """Divide all tokens into at most 8 groups by a column."""
        codes, values = self.codes(name)
        if len(values) <= MAX_GROUPS:
            texts = [value_text(value) for value in values.tolist()]
        elif is_ranged(name, values):
            codes, texts = _bins(codes, values)
        else:
            codes, texts = _largest(codes, values, size)
        return codes, [Label.of(text, rank) for rank, text in enumerate(texts)]


def _codes_of_roles(roles: pd.Categorical[str]) -> tuple[Array, Array]:
    return roles.codes.astype(np.int64), np.asarray(roles.categories, object)


def token_columns_of(batch: Batch) -> list[str]:
    """Return the columns of numbers with a value for each token that a batch has."""
    lacking = {
        "entropy": batch.entropy is None,
        "advantage": batch.advantages is None,
        "loss_mask": batch.loss_mask is None,
    }
    return [name for name in _NUMBERS_OF_TOKENS if not lacking.get(name)]


def _factorize(values: Array) -> tuple[Array, Array]:
    """Return codes and values, in order; objects are text."""
    if values.dtype.kind == "O":
        values = np.array(["" if v is None else str(v) for v in values], object)
    codes, found = pd.factorize(values, sort=True, use_na_sentinel=False)
    return codes, np.asarray(found)


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
    most = _MAX_NAMES if is_name else MAX_GROUPS
    return values.dtype.kind in "iuf" and len(values) > most


def _bins(codes: Array, values: Array) -> tuple[Array, list[str]]:
    """Put numbers into bins that have about as many tokens each."""
    numbers = values.astype(np.float64)
    each = numbers[codes]
    shares = np.linspace(0, 1, MAX_GROUPS)[1:-1]
    edges = np.unique(np.nanquantile(each, shares, method="inverted_cdf"))
    at = np.searchsorted(edges, numbers, side="left")
    at[np.isnan(numbers)] = len(edges) + 1
    used, at = np.unique(at, return_inverse=True)
    texts = []
    for one in range(len(used)):
        inside = values[at == one]
        texts.append(range_text(inside[0].item(), inside[-1].item()))
    return at[codes], texts


def _largest(codes: Array, values: Array, size: Array) -> tuple[Array, list[str]]:
    """Keep the values with the largest mean, and call all others so."""
    finite = np.isfinite(size)
    num = np.bincount(codes[finite], minlength=len(values))
    total = np.bincount(codes[finite], size[finite], len(values))
    mean = np.divide(total, num, out=np.full(len(values), -1.0), where=num > 0)
    first = np.argsort(-mean, kind="stable")[: MAX_GROUPS - 1]
    group = np.full(len(values), len(first))
    group[first] = np.arange(len(first))
    return group[codes], [*(value_text(one) for one in values[first].tolist()), OTHERS]


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


def _ends(
    name: str, condition: Mapping[str, Any], values: Array
) -> tuple[float, float]:
    """Return both ends of a range; an end that is left out is infinite."""
    ends = [condition.get("from"), condition.get("to")]
    numbers = [e is None or isinstance(e, int | float) for e in ends]
    if not all(numbers) or set(condition) - {"from", "to"} or ends == [None, None]:
        expected = "{'from': lowest, 'to': highest}, with one of them at least"
        raise _invalid(name, expected, f"{condition!r:.80}")
    if values.dtype.kind not in "iufb":
        raise _invalid(name, "a column of numbers for a range", "a column of text")
    low, high = ends
    return -np.inf if low is None else low, np.inf if high is None else high


def _unknown_column(name: str, known: list[str]) -> FrameError:
    return _invalid(
        name, f"a column out of {join_names([*known], len(known), most=20)}", "none"
    )


def _unknown_value(name: str, unknown: list[Any], values: Array) -> FrameError:
    if name == "sample" and len(values):
        expected = f"samples from 0 to {values[-1]}, or their ids"
    else:
        names = [repr(value) for value in values.tolist()]
        expected = f"values out of {join_names(names, len(names), most=8)}"
    return _invalid(name, expected, f"{unknown!r:.80}")


def _invalid(name: str, expected: str, found: str) -> FrameError:
    return FrameError.build(
        key=name,
        expected=expected,
        found=found,
        advice="Remove it from the filter, or choose another value.",
    )
