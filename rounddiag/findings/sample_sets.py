"""Sets of samples that no value names: a block, every n-th, whole groups, any.

The data choose the set, so it has a penalty: the logarithm of the number of sets
among which it was chosen, in the units of the scan statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
from scipy import special

from rounddiag._typing import Array
from rounddiag.columns import Scope
from rounddiag.columns.predicates import Relation
from rounddiag.core.aggregation import run_sums
from rounddiag.findings.conditions import ColumnOfTokens
from rounddiag.findings.slices import overdispersion, scan
from rounddiag.findings.view import View
from rounddiag.wording import join_names, pluralize

LONGEST_PERIOD, MIN_PERIODS = 16, 4  # samples; how often a period must fit
_MAX_BLOCK_ROWS = 1024  # all blocks of n samples are n^2 / 2 sums
_MIN_ROWS = 4  # of a batch: fewer samples have no sets
_MIN_UNION, _MAX_UNION = 3, 16  # values of a column of which several can be a place
# Samples turn at one decoding step if half of them do within this part of the longest.
_ONE_STEP = 32
# Names of the columns made here.
EVERY_NTH, ALL_BUT_EVERY_NTH = "every_nth", "all_but_every_nth"
BLOCK, SAMPLE_SET, GROUPS = "block_of_samples", "set_of_samples", "set_of_groups"
OWN_START = "own_start"
LISTS = frozenset({BLOCK, SAMPLE_SET})  # named by a column where one has them
SETS = frozenset({EVERY_NTH, ALL_BUT_EVERY_NTH, BLOCK, SAMPLE_SET, GROUPS, OWN_START})


# The best set of one kind at one level: its name, what makes its column, and its
# log-likelihood ratio.
_Candidate: TypeAlias = tuple[str, Callable[[], ColumnOfTokens], float]


def columns_of_sets(
    view: View,
    excesses: Sequence[Array],
    bins_of_tokens: Array,
    columns: Sequence[ColumnOfTokens] = (),
) -> list[ColumnOfTokens]:
    """Return a column for the best set of each kind over all levels.

    Of `columns` that name samples, sets of several values are tried.
    """
    best: dict[str, _Candidate] = {}
    for over in excesses:
        for candidate in _sets(view, over, bins_of_tokens, columns):
            name, _, ratio = candidate
            if name not in best or ratio > best[name][-1]:
                best[name] = candidate
    return [make() for _, make, ratio in best.values() if ratio > 0]


def _column(
    name: str,
    tokens: Array,
    value: object,
    penalty: float,
    *,
    scope: Scope = "sample",
    relation: Relation = "=",
    label: str = "",
) -> ColumnOfTokens:
    codes, labels = tokens.astype(np.int32) - 1, [label] if label else []
    return ColumnOfTokens(name, scope, codes, [value], (relation,), penalty, labels)


def _sets(
    view: View, over: Array, code: Array, columns: Sequence[ColumnOfTokens]
) -> Iterator[_Candidate]:
    num = np.maximum(np.bincount(code), 1)
    expected = (np.bincount(code[over], minlength=len(num)) / num)[code]
    size = view.batch.num_samples
    h = np.bincount(view.sample[over], minlength=size).astype(float)
    e = run_sums(expected, view.num_per_sample)
    present = np.flatnonzero(e > 0)
    if len(present) < _MIN_ROWS or not over.any():
        return
    sets = _Sets(present, h, e, view)
    yield from sets.periods()
    yield from sets.block()
    yield from sets.any_set()
    yield from sets.groups()
    yield from sets.unions(columns)
    yield from _own_starts(view, over, expected, sets)


@dataclass(frozen=True, eq=False)
class SampleCounts:
    """Tokens of each sample that exceed a level, and how many are expected to.

    Attributes
    ----------
    present: int64 array. Samples with tokens.
    """

    present: Array
    hits: Array
    expected: Array

    @cached_property
    def whole(self) -> tuple[float, float]:
        """Both sums."""
        return float(self.hits.sum()), float(self.expected.sum())

    @cached_property
    def spread(self) -> float:
        """The variance between samples over that of independent tokens."""
        return overdispersion(self.hits[self.present], self.expected[self.present])


def has_unions(relations: Sequence[str], num_values: int) -> bool:
    """Return whether several values of a column can be one place."""
    return tuple(relations) == ("=",) and _MIN_UNION <= num_values <= _MAX_UNION


def best_union(hits: Array, expected: Array) -> tuple[Array, Array, Array]:
    """Return the sums over the values with the highest rates, two and more of them.

    Each row is a table of its own. The values in the order of their rates come third.
    """
    order = np.argsort(-hits / np.maximum(expected, 1e-300), axis=-1, kind="stable")
    h, e = (
        np.take_along_axis(values, order, axis=-1).cumsum(axis=-1)[..., 1:-1]
        for values in (hits, expected)
    )
    return h, e, order


@dataclass(frozen=True, eq=False)
class _Sets(SampleCounts):
    """The sets of samples at one level."""

    view: View

    def _candidate(
        self, name: str, rows: Array, text: str, value: int, penalty: float
    ) -> _Candidate:
        inside = np.zeros(len(self.hits), dtype=bool)
        inside[rows] = True
        gain = float(
            scan(self.hits[inside].sum(), self.expected[inside].sum(), *self.whole)
        )

        def make() -> ColumnOfTokens:
            return _column(name, inside[self.view.sample], value, penalty, label=text)

        return name, make, gain / self.spread - penalty

    def periods(self) -> Iterator[_Candidate]:
        """Yield every n-th sample, or all but every n-th, as packs have."""
        num = len(self.hits)
        longest = min(LONGEST_PERIOD, num // MIN_PERIODS)
        if longest < 2:  # noqa: PLR2004 no period
            return
        penalty = float(np.log(longest * longest))
        rows = np.arange(num)
        sets = []
        for period in range(2, longest + 1):
            for phase in range(period):
                nth = rows % period == phase
                text = f"in every {_ordinal(period)} sample from sample {phase} on"
                sets.append((EVERY_NTH, period, nth, text))
            if period > 2:  # noqa: PLR2004 the first of two is every second
                text = f"in all samples but every {_ordinal(period)}"
                sets.append((ALL_BUT_EVERY_NTH, period, rows % period != 0, text))
        for name in (EVERY_NTH, ALL_BUT_EVERY_NTH):
            own = [(period, *rest) for kind, period, *rest in sets if kind == name]
            h = np.array([self.hits[inside].sum() for _, inside, _ in own])
            e = np.array([self.expected[inside].sum() for _, inside, _ in own])
            if own:
                period, inside, text = own[int(scan(h, e, *self.whole).argmax())]
                yield self._candidate(name, inside, text, period, penalty)

    def block(self) -> Iterator[_Candidate]:
        """Yield the best block of neighbours."""
        num = len(self.present)
        if num > _MAX_BLOCK_ROWS:
            return
        h = np.r_[0.0, np.cumsum(self.hits[self.present])]
        e = np.r_[0.0, np.cumsum(self.expected[self.present])]
        begin, stop = np.triu_indices(num + 1, 2)  # a single sample is no block
        gain = scan(h[stop] - h[begin], e[stop] - e[begin], *self.whole)
        at = int(gain.argmax())
        rows = self.present[begin[at] : stop[at]]
        text = f"in samples {rows[0]} to {rows[-1]}"
        yield self._candidate(BLOCK, rows, text, int(rows[0]), 2 * float(np.log(num)))

    def any_set(self) -> Iterator[_Candidate]:
        """Yield the best set of samples."""
        h, e = self.hits[self.present], self.expected[self.present]
        chosen, penalty = _best_set(h, e, self.whole)
        rows = np.sort(self.present[chosen])
        names = join_names(rows.tolist())
        text = f"in sample {names}" if len(rows) == 1 else f"in samples {names}"
        yield self._candidate(SAMPLE_SET, rows, text, len(rows), penalty)

    def groups(self) -> Iterator[_Candidate]:
        """Yield the best set of whole groups."""
        group = self.view.facts.group
        if group is None:
            return
        num = int(group.max()) + 1
        e = np.bincount(group, weights=self.expected, minlength=num)
        known = np.flatnonzero(e > 0)
        if not _MIN_ROWS <= len(known) < len(self.present):
            return
        h = np.bincount(group, weights=self.hits, minlength=num)
        chosen, penalty = _best_set(h[known], e[known], self.whole)
        rows = np.flatnonzero(np.isin(group, known[chosen]))
        text = f"in {pluralize(len(chosen), 'whole group')}"
        yield self._candidate(GROUPS, rows, text, len(chosen), penalty)

    def unions(self, columns: Sequence[ColumnOfTokens]) -> Iterator[_Candidate]:
        """Yield the best set of several values of each column that names samples."""
        begins = np.searchsorted(self.view.sample, self.present)
        for column in columns:
            num = len(column.values)
            if column.scope != "sample" or not has_unions(column.relations, num):
                continue
            codes = np.full(len(self.hits), -1)
            codes[self.present] = column.codes[begins]
            known = codes >= 0
            h, e = (
                np.bincount(codes[known], weights=values[known], minlength=num)
                for values in (self.hits, self.expected)
            )
            hits, expected, order = best_union(h, e)
            penalty = _log_binom(num, np.arange(2, num))
            gain = scan(hits, expected, *self.whole) / self.spread - penalty
            at = int(gain.argmax())
            chosen = np.sort(order[: at + 2])
            make = partial(_union, column, chosen, float(penalty[at]))
            yield column.name, make, float(gain[at])


def _union(column: ColumnOfTokens, chosen: Array, penalty: float) -> ColumnOfTokens:
    values = tuple(column.values[code] for code in chosen)
    tokens = np.isin(column.codes, chosen)
    return _column(column.name, tokens, values, penalty, relation="in")


def _ordinal(number: int) -> str:
    ends = {2: "second", 3: "third"}
    return ends.get(number, f"{number}th")


def _best_set(
    hits: Array, expected: Array, whole: tuple[float, float]
) -> tuple[Array, float]:
    num = len(hits)
    order = np.argsort(-hits / np.maximum(expected, 1e-300), kind="stable")
    h, e = np.cumsum(hits[order])[:-1], np.cumsum(expected[order])[:-1]
    sizes = np.arange(1, num)
    penalty = _log_binom(num, sizes)
    at = int((scan(h, e, *whole) - penalty).argmax())
    return order[: at + 1], float(penalty[at])


def _log_binom(num: int, chosen: Array) -> Array:
    """Return the logarithm of the number of sets of that size, and of all sizes."""
    sets = special.gammaln(num + 1) - special.gammaln(chosen + 1)
    return sets - special.gammaln(num - chosen + 1) + np.log(num)


@dataclass(frozen=True, eq=False)
class _Turns:
    """Samples that differ each from a token of its own on."""

    chosen: Array
    starts: Array  # index of the first hit of each chosen sample
    selection_penalty: float
    log_likelihood_ratio: float


def find_turns(sample: Array, before: Array, counts: SampleCounts) -> _Turns | None:
    """Return the samples that turn, from the sample of each hit, in order.

    `before` is what is expected before each hit, in its sample; None if none turns.
    """
    scale = counts.whole[0] / max(counts.whole[1], 1e-300)
    begins = np.searchsorted(sample, np.arange(len(counts.hits)))
    e_all, h_all = counts.expected[sample] * scale, counts.hits[sample]
    e_before = np.maximum(before * scale, 0.0)
    h_before = np.arange(len(sample)) - begins[sample]
    h_after, e_after = h_all - h_before, e_all - e_before
    rate = special.xlogy(h_after, h_after / np.maximum(e_after, 1e-12))
    rate += special.xlogy(h_before, h_before / np.maximum(e_before, 1e-12))
    rate -= special.xlogy(h_all, h_all / np.maximum(e_all, 1e-12))
    is_rise = (h_after * e_before > h_before * e_after) & (h_after > e_after)
    is_rise &= h_before < h_all
    gain = np.where(is_rise & (e_before > 0), rate, 0.0) / counts.spread
    present = counts.present[counts.hits[counts.present] > 0]
    if not len(present):
        return None
    highest = np.zeros(len(counts.hits))
    highest[present] = np.maximum.reduceat(gain, begins[present])
    penalty = np.log(np.maximum(counts.hits, 1)) + np.log(len(counts.present))
    chosen = np.flatnonzero(highest > penalty)
    if not len(chosen):
        return None
    starts = np.full(len(counts.hits), -1)
    at = np.flatnonzero(gain == highest[sample])
    starts[sample[at][::-1]] = at[::-1]  # the first of equal ones
    starts = starts[chosen]
    cost = float(np.log(np.maximum(counts.hits[chosen], 1)).sum())
    cost += float(_log_binom(len(counts.present), np.array(len(chosen))))
    inside = float(h_after[starts].sum()), float((e_after[starts] / scale).sum())
    whole = float(scan(*inside, *counts.whole))  # type: ignore[arg-type]
    return _Turns(chosen, starts, cost, whole / counts.spread - cost)


def _own_starts(
    view: View, over: Array, expected: Array, counts: SampleCounts
) -> Iterator[_Candidate]:
    hot = np.flatnonzero(over)
    sample = view.sample[hot]
    first = np.r_[0.0, np.cumsum(counts.expected)[:-1]]
    before = np.cumsum(expected)[hot] - expected[hot] - first[sample]
    turns = find_turns(sample, before, counts)
    if turns is None:
        return
    steps = view.num_before[hot[turns.starts]]
    middle = np.quantile(steps, (0.25, 0.75))
    if len(steps) > 1 and np.diff(middle) <= view.num_before.max() / _ONE_STEP:
        return  # one decoding step says it
    start = np.full(len(counts.hits), len(view))
    start[turns.chosen] = hot[turns.starts]

    def make() -> ColumnOfTokens:
        return _column(
            OWN_START,
            np.arange(len(view)) >= start[view.sample],
            len(turns.chosen),
            turns.selection_penalty,
            scope="round",
            label="each from a token of its own on",
        )

    yield OWN_START, make, turns.log_likelihood_ratio
