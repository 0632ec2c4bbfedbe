"""Slices: the search for conjunctions of conditions whose tokens differ more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy import special

from rounddiag._typing import Array
from rounddiag.columns.predicates import Relation, meets
from rounddiag.findings.conditions import ColumnOfTokens
from rounddiag.findings.view import View

# Column, relation and code of a condition during the search.
Part: TypeAlias = "tuple[int, Relation, int]"
_BEAM, _DEPTH = 8, 3  # slices that are extended at a time; conditions of a slice
# A condition belongs to a place if the tokens that meet all of its other conditions,
# but not this one, exceed the usual less often by this factor (with 3.5 one fault of
# `tests.faults.bench --set` is lost, with 2 none),
_FEWER = 2.5
# and if they are enough: the excesses expected of them are this part of the place's.
_PART = 0.08
_ALL_BUT_FEW = 0.97  # a condition that more tokens of a slice meet does not narrow it
_MOST_KEYS = 1 << 62  # combinations of codes that an int64 key can number
MAD = 0.6745  # median absolute deviation of a standard normal
# A slice holds at most this part of the expected excesses: it needs other tokens to be
# compared with.
MOST = 0.9


@dataclass(frozen=True, eq=False)
class Cells:
    """Runs of tokens that have the same value in every column.

    Attributes
    ----------
    first: int64 array, one a cell
    codes: list of int64 array, one a column. Code of each cell plus 1; 0 where the
        value is missing. `bincount` would copy codes of another type.
    cluster, sample: int64 arrays, one a cell
    of_rounds: Indices of the columns that have one value in each round.
    num_tokens: How many tokens the cells have.
    """

    columns: list[ColumnOfTokens]
    first: Array
    codes: list[Array]
    cluster: Array
    sample: Array
    of_rounds: tuple[int, ...]
    num_tokens: int

    @classmethod
    def from_columns(
        cls, columns: list[ColumnOfTokens], view: View, cluster: Array
    ) -> Cells:
        """Cut the tokens of a view where a column, or the round, changes."""
        begins = np.zeros(len(view), dtype=bool)
        begins[0] = True
        for values in (view.segment, *(column.codes for column in columns)):
            begins[1:] |= values[1:] != values[:-1]
        first = np.flatnonzero(begins)
        codes = [column.codes[first].astype(np.int64) + 1 for column in columns]
        is_new = np.diff(view.segment[first], prepend=-1) != 0
        inside = np.flatnonzero(~is_new)
        of_rounds = (
            index
            for index, values in enumerate(codes)
            if (values[inside] == values[inside - 1]).all()
        )
        return cls(
            columns,
            first,
            codes,
            cluster[first],
            view.sample[first],
            tuple(of_rounds),
            len(view),
        )

    def of_tokens(self, values: Array) -> Array:
        """Return for each token the value of its cell."""
        return np.repeat(values, np.diff(np.r_[self.first, self.num_tokens]))

    @cached_property
    def merged(self) -> tuple[Cells, Array]:
        """Cells of other runs with the same values as one, and which one each is."""
        index, first = self._combine(range(len(self.columns)))
        codes = [codes[first] for codes in self.codes]
        return replace(self, first=self.first[first], codes=codes), index

    @cached_property
    def rounds(self) -> tuple[dict[int, Array], Array]:
        """Codes of the columns of rounds, one for each combination of their values.

        With the combination of each cell: there are few, of which sums are fast.
        """
        index, first = self._combine(self.of_rounds)
        return {column: self.codes[column][first] for column in self.of_rounds}, index

    def _combine(self, columns: Iterable[int]) -> tuple[Array, Array]:
        """Return the number of each cell's values in some columns, and where it begins.

        Equal numbers are equal values in all of them.
        """
        import pandas as pd

        key, size = np.zeros(len(self.first), dtype=np.int64), 1
        for column in columns:
            num = len(self.columns[column].values) + 1
            if size > _MOST_KEYS // num:
                key, known = pd.factorize(key)
                size = len(known)
            key, size = key * num + self.codes[column], size * num
        index, _ = pd.factorize(key)
        first = np.flatnonzero(np.diff(np.maximum.accumulate(index), prepend=-1))
        return index, first

    def rank(self, parts: Sequence[Part]) -> tuple[int, int]:
        """Return how far down a slice is among those that describe the same tokens."""
        return len(parts), sum(self.columns[index].rank for index, _, _ in parts)

    def selection_penalty(self, parts: Iterable[Part]) -> float:
        """Return the penalty of the sets that the data chose for a slice."""
        return sum(self.columns[index].selection_penalty for index, _, _ in parts)

    def sums(self, values: Array) -> Array:
        """Return the sum over each cell of a value per token."""
        return np.add.reduceat(values, self.first, dtype=np.float64)


def scan(hits: Array, expected: Array, all_hits: float, all_expected: float) -> Array:
    """Return Kulldorff's statistic of sets; 0 where there are fewer than expected."""
    expected = expected * (all_hits / max(all_expected, 1e-300))
    rest, rest_expected = all_hits - hits, all_hits - expected
    gain = special.xlogy(hits, hits / np.maximum(expected, 1e-12))
    gain += special.xlogy(rest, rest / np.maximum(rest_expected, 1e-12))
    return np.where(hits > expected, gain, 0.0)


@dataclass(frozen=True)
class Slice:
    """A conjunction of conditions during the search."""

    parts: tuple[Part, ...]
    gain: float
    hits: float
    expected: float


@dataclass(frozen=True, eq=False)
class Counts:
    """Tokens of each cell that exceed a level, and how many are expected to."""

    hits: Array
    expected: Array
    over: Array

    def sums(self, index: Array) -> Counts:
        """Return the sums over cells of the same index."""
        hits, expected = (
            np.bincount(index, weights=values) for values in (self.hits, self.expected)
        )
        return Counts(hits, expected, self.over)

    def where(self, cells: Array, tokens: Array) -> Counts:
        """Return the counts of some cells, which have these tokens."""
        return Counts(self.hits * cells, self.expected * cells, self.over & tokens)

    def spread(self, cluster: Array, size: int) -> float:
        """Return the variance between clusters over that of independent tokens."""
        hits = np.bincount(cluster, weights=self.hits, minlength=size)
        expected = np.bincount(cluster, weights=self.expected, minlength=size)
        return overdispersion(hits, expected)


def overdispersion(hits: Array, expected: Array) -> float:
    """Return the variance between units over that of independent tokens; at least 1.

    From the shortest interval with half of the units (Rousseeuw, J. Am. Stat. Assoc.
    79, 1984): a fault in up to half of them is no spread of all.
    """
    use = expected > 0
    z = np.sort((hits[use] - expected[use]) / np.sqrt(expected[use]))
    num = len(z)
    half = (num + 1) // 2
    if half < 2:  # noqa: PLR2004 no interval
        return 1.0
    shortest = float((z[half - 1 :] - z[: num - half + 1]).min())
    spread = shortest / (2 * MAD) * (1 + 5 / (num - 1))
    return max(spread**2, 1.0)


@dataclass(frozen=True, eq=False)
class Trial:
    """A slice at one level of excess.

    Attributes
    ----------
    gain: Its statistic over the spread between clusters, less the penalty of chosen
        sets, in nats.
    """

    conjunction: Slice
    counts: Counts
    gain: float

    @property
    def parts(self) -> tuple[Part, ...]:
        """Its conditions."""
        return self.conjunction.parts


def find_slices(cells: Cells, counts: Counts, spread: float) -> list[Slice]:
    """Return conjunctions of which every condition is needed, best first.

    A set of samples that the data chose costs its penalty times the spread.
    """
    cells, index = cells.merged
    counts = counts.sums(index)
    whole = (float(counts.hits.sum()), float(counts.expected.sum()))
    base = Slice((), 0.0, *whole)
    beam = [base]
    known: dict[tuple[Part, ...], Slice] = {(): base}
    for _ in range(_DEPTH):
        longer: dict[tuple[int, int], Slice] = {}
        for shorter in beam:
            for candidate in _extend(cells, counts, shorter, whole, spread):
                # Of slices of the same tokens, the plainest.
                key = (round(candidate.hits), round(10 * candidate.expected))
                if candidate.gain > shorter.gain and (
                    key not in longer
                    or cells.rank(candidate.parts) < cells.rank(longer[key].parts)
                ):
                    longer[key] = candidate
        beam = sorted(longer.values(), key=lambda candidate: -candidate.gain)[:_BEAM]
        known |= {candidate.parts: candidate for candidate in beam}
    best_first = sorted(known.values(), key=lambda candidate: -candidate.gain)
    return [
        candidate
        for candidate in best_first
        if candidate.parts and _is_minimal(cells, counts, candidate)
    ]


def _is_minimal(cells: Cells, counts: Counts, conjunction: Slice) -> bool:
    rate = conjunction.hits / conjunction.expected
    inside = [select_cells(cells, (part,)) for part in conjunction.parts]
    for index in range(len(conjunction.parts)):
        near = ~inside[index]
        for other in (*inside[:index], *inside[index + 1 :]):
            near &= other
        hits, expected = counts.hits[near].sum(), counts.expected[near].sum()
        if expected < _PART * conjunction.expected or hits > rate * expected / _FEWER:
            return False
    return True


def _extend(
    cells: Cells, counts: Counts, base: Slice, whole: tuple[float, float], spread: float
) -> Iterator[Slice]:
    used = {part[0] for part in base.parts}
    conditions = [
        condition
        for condition in _conditions(cells, counts, base)
        if condition.column not in used
    ]
    hits = np.concatenate([condition.hits for condition in conditions])
    expected = np.concatenate([condition.expected for condition in conditions])
    paid = [
        cells.columns[condition.column].selection_penalty for condition in conditions
    ]
    penalty = np.repeat(paid, [len(condition.hits) for condition in conditions])
    gain = scan(hits, expected, *whole)
    gain -= spread * (cells.selection_penalty(base.parts) + penalty)
    gain[expected > _ALL_BUT_FEW * base.expected] = 0.0
    gain[expected > MOST * whole[1]] = 0.0
    stop = 0
    for condition in conditions:
        start, stop = stop, stop + len(condition.hits)
        for code in np.argsort(-gain[start:stop])[:_BEAM]:
            if gain[start + code] <= 0:
                break
            part = (condition.column, condition.relation, int(code))
            yield Slice(
                tuple(sorted((*base.parts, part))),
                float(gain[start + code]),
                float(condition.hits[code]),
                float(condition.expected[code]),
            )


@dataclass(frozen=True, eq=False)
class _Sums:
    """Hits and expected hits of the tokens of a slice, for each value of a column."""

    column: int
    relation: Relation
    hits: Array
    expected: Array


def _conditions(cells: Cells, counts: Counts, base: Slice) -> Iterator[_Sums]:
    inside = select_cells(cells, base.parts)
    # Few cells have hits, and few of a longer slice have anything.
    chosen = np.flatnonzero(inside) if base.parts else slice(None)
    hot = np.flatnonzero((counts.hits > 0) & inside)
    hot_hits, expected = counts.hits[hot], counts.expected[chosen]
    of_rounds, number = cells.rounds
    by_round = np.bincount(number[chosen], weights=expected)
    for index, column in enumerate(cells.columns):
        codes, size = cells.codes[index], len(column.values) + 1
        h = np.bincount(codes[hot], weights=hot_hits, minlength=size)[1:]
        if index in of_rounds:
            codes_of_rounds = of_rounds[index][: len(by_round)]
            e = np.bincount(codes_of_rounds, weights=by_round, minlength=size)[1:]
        else:
            e = np.bincount(codes[chosen], weights=expected, minlength=size)[1:]
        for relation in column.relations:
            sums = (sums_of_relation(relation, values) for values in (h, e))
            yield _Sums(index, relation, *sums)


@dataclass(frozen=True, eq=False)
class Labels:
    """The values of a column that units have, counted from 1; 0 where it is missing."""

    codes: Array
    num_values: int
    relations: tuple[str, ...]


def sums_of_relation(relation: str, sums: Array) -> Array:
    """Return the sums over the values that meet each condition of a relation.

    Examples
    --------
    >>> sums_of_relation(">=", np.array([1, 2, 4]))
    array([7, 6, 4])
    """
    if relation == ">=":
        return sums[..., ::-1].cumsum(axis=-1)[..., ::-1]
    return sums.cumsum(axis=-1) if relation == "<=" else sums


def select_cells(cells: Cells, parts: Iterable[Part]) -> Array:
    """Return which cells meet all conditions of a slice."""
    inside = np.ones(len(cells.first), dtype=bool)
    for index, relation, code in parts:
        inside &= meets(cells.codes[index], relation, code)
    return inside
