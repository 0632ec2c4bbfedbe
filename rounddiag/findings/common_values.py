"""Values of columns that all samples of a set have: "all on rank 3"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import betaln

from rounddiag._typing import Array
from rounddiag.checks.contracts import LEVEL
from rounddiag.columns.predicates import Condition
from rounddiag.findings.conditions import ColumnOfTokens
from rounddiag.findings.view import View

_NEARLY_ALL = 0.95  # of the tokens of a set that exceed the usual
_ROUNDING = 1e-9  # relative, of a sum of float64
_SMALLEST = 1e-4  # smaller p-values are written as a bound


@dataclass(frozen=True, kw_only=True)
class CommonValue:
    """A value of a column that the samples of a set have in common, beyond chance.

    Attributes
    ----------
    condition: The column and the value, such as `rank = 3`.
    num_shared: Samples of the set that have it: all, or those with 95 % of the tokens
        that exceed the usual.
    num_in_set: Samples of the set.
    num_with_value: Samples of the batch that have it.
    is_whole: Whether the set has all samples with the value that can be in it.
    p: Probability that a value of any column has so much of a random set.
    """

    condition: Condition
    num_shared: int
    num_in_set: int
    num_with_value: int
    is_whole: bool
    p: float

    @property
    def text(self) -> str:
        """The value as part of a sentence.

        Examples
        --------
        >>> rank = Condition("rank", "=", 3, "on rank 3")
        >>> counts = {"num_shared": 4, "num_in_set": 4, "num_with_value": 8}
        >>> CommonValue(condition=rank, **counts, is_whole=False, p=0.0021).text
        'all on rank 3 (4 of its 8, p 0.002)'
        """
        is_all = self.num_shared == self.num_in_set
        samples = "all" if is_all else f"{self.num_shared} of these {self.num_in_set}"
        part = f"{self.num_shared} of its {self.num_with_value}"
        p = f"p {self.p:.1g}" if self.p >= _SMALLEST else f"p < {_SMALLEST:g}"
        return f"{samples} {self.condition.text} ({part}, {p})"


def find_common_values(
    view: View,
    columns: Sequence[ColumnOfTokens],
    *,
    tokens: Array,
    over: Array,
    candidates: Array,
) -> tuple[CommonValue, ...]:
    """Return the values that the samples of some tokens have in common, best first.

    Under the null the set is random: how many of its samples have a value is
    hypergeometric. A set of whole groups is a set of groups for what is constant in
    them. The p-value adds up, over all values of all columns, the largest probability
    that each can have up to that of the value (Tarone, Biometrics 46(2), 1990): a value
    that too few or too many samples have costs nothing.

    Parameters
    ----------
    tokens, over : bool arrays
        The tokens of the set, and those of them that exceed the usual.
    candidates : int array
        Samples that can be in the set: those with tokens at such a place.
    """
    samples = np.flatnonzero(view.num_per_sample)
    begins = np.searchsorted(view.sample, samples)
    is_candidate = np.isin(samples, candidates)
    in_set = np.isin(samples, view.sample[tokens])
    hits = np.bincount(view.sample[over], minlength=samples[-1] + 1)[samples]
    first_of_group = _whole_groups(view, samples, in_set)
    values = []
    for column in columns:
        if column.scope != "sample" or "=" not in column.relations:
            continue
        codes = column.codes[begins]
        units = np.flatnonzero(is_candidate)
        if first_of_group is not None and (codes == codes[first_of_group]).all():
            units = np.unique(first_of_group[units])
        num, chosen = len(column.values), in_set[units]
        num_with_value = _count(codes[units], num)
        num_shared = _count(codes[units][chosen], num)
        values += [
            _Value(
                condition=column.condition("=", code),
                has=codes == code,
                num_shared=num_shared[code],
                chances=overlap_chances(
                    int(num_with_value[code]), int(chosen.sum()), len(units)
                ),
            )
            for code in range(num)
        ]
    common = [
        CommonValue(
            condition=value.condition,
            num_shared=int((value.has & in_set).sum()),
            num_in_set=int(in_set.sum()),
            num_with_value=int(value.has.sum()),
            is_whole=not (value.has & is_candidate & ~in_set).any(),
            p=sum(other.largest_chance(value.chance) for other in values),
        )
        for value in values
        if hits[value.has].sum() >= _NEARLY_ALL * hits.sum()
    ]
    common.sort(key=lambda value: (value.p, value.num_with_value))
    return tuple(value for value in common if value.p <= LEVEL)


@dataclass(frozen=True, eq=False)
class _Value:
    """A value of a column: the samples that have it, and units of the set that do.

    Attributes
    ----------
    chances: Probability that at least 0, 1, ... units of a random set have it.
    """

    condition: Condition
    has: Array
    num_shared: int
    chances: Array

    @property
    def chance(self) -> float:
        """Probability that a random set has as many units with it."""
        return float(self.chances[self.num_shared])

    def largest_chance(self, limit: float) -> float:
        """Return the largest probability up to a limit that it can have."""
        possible = self.chances[self.chances <= limit * (1 + _ROUNDING)]
        return float(possible.max(initial=0.0))


def _whole_groups(view: View, samples: Array, in_set: Array) -> Array | None:
    """Return the first sample of each sample's group, of a set of whole groups."""
    if view.facts.group is None:
        return None
    first, code = np.unique(
        view.facts.group[samples], return_index=True, return_inverse=True
    )[1:]
    first_of_group: Array = first[code]
    is_whole = (in_set == in_set[first_of_group]).all()
    return first_of_group if is_whole else None


def _count(codes: Array, num: int) -> Array:
    return np.bincount(codes[codes >= 0], minlength=num)


@cache
def overlap_chances(size: int, chosen: int, total: int) -> Array:
    """Return the probabilities that two random sets share at least 0, 1, ... members.

    Sets of `size` and `chosen` out of `total`: the hypergeometric distribution, without
    `scipy.stats`, whose import takes longer than most diagnoses.

    Examples
    --------
    >>> overlap_chances(2, 2, 4).round(6).tolist()  # both in one pair out of six
    [1.0, 0.833333, 0.166667]
    """

    def log_choices(size: int, chosen: Array) -> Array:
        return -betaln(size - chosen + 1, chosen + 1) - np.log(size + 1)

    fewest = max(size + chosen - total, 0)
    shared = np.arange(fewest, min(size, chosen) + 1)
    ways = log_choices(size, shared) + log_choices(total - size, chosen - shared)
    chances = np.exp(ways - log_choices(total, np.array(chosen)))
    return np.r_[np.ones(fewest), chances[::-1].cumsum()[::-1]]
