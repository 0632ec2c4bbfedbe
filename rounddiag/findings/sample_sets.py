"""Sets of samples that no column names: a block, every n-th, whole groups, any.

The data choose the set, so it pays for its choice: the logarithm of the number of sets
among which it was chosen, in the units of the scan statistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from rounddiag.columns.phrases import Named
from rounddiag.findings.conditions import ColumnOfTokens
from rounddiag.findings.slices import overdispersion, scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rounddiag._typing import Array
    from rounddiag.columns import Scope
    from rounddiag.findings.view import View

_LONGEST_PERIOD, _MIN_PERIODS = 16, 4
_MAX_BLOCK_ROWS = 1024
_MIN_ROWS = 4
_LISTED = 3  # samples that a sentence lists
# Names of the columns made here.
EVERY_NTH, ALL_BUT_EVERY_NTH = "every_nth", "all_but_every_nth"
BLOCK, SAMPLES, GROUPS = "block_of_samples", "set_of_samples", "set_of_groups"
OWN_START = "own_start"
SETS = frozenset({EVERY_NTH, ALL_BUT_EVERY_NTH, BLOCK, SAMPLES, GROUPS, OWN_START})


@dataclass(frozen=True, eq=False)
class _Candidate:
    """The best set of one kind at one level."""

    name: str
    scope: Scope
    tokens: Array
    value: Named
    log_price: float
    worth: float


def columns_of_sets(
    view: View, excesses: Sequence[Array], bins_of_tokens: Array
) -> list[ColumnOfTokens]:
    """Return a column for the best set of each kind over all levels."""
    best: dict[str, _Candidate] = {}
    for over in excesses:
        for one in _sets(view, over, bins_of_tokens):
            if one.name not in best or one.worth > best[one.name].worth:
                best[one.name] = one
    return [
        ColumnOfTokens(
            one.name,
            one.scope,
            np.where(one.tokens, 0, -1).astype(np.int32),
            [one.value],
            ("=",),
            one.log_price,
        )
        for one in best.values()
        if one.worth > 0
    ]


def _sets(view: View, over: Array, code: Array) -> Iterator[_Candidate]:
    rate = np.bincount(code, weights=over) / np.maximum(np.bincount(code), 1)
    expected = rate[code]
    size = view.batch.num_samples
    h = np.bincount(view.sample[over], minlength=size).astype(float)
    e = np.bincount(view.sample, weights=expected, minlength=size)
    there = np.flatnonzero(e > 0)
    if len(there) < _MIN_ROWS or not over.any():
        return
    counts = _Counts(view, there, h, e)
    yield from counts.periods()
    yield from counts.block()
    yield from counts.any_set()
    yield from counts.groups()
    yield from _own_starts(view, over, expected, counts)


class _Counts:
    """Tokens of each sample that exceed a level, and how many are expected to."""

    def __init__(self, view: View, there: Array, hits: Array, expected: Array) -> None:
        self.view, self.there = view, there
        self.hits, self.expected = hits, expected
        self.whole = float(hits.sum()), float(expected.sum())
        self.spread = overdispersion(hits[there], expected[there])

    def _candidate(
        self, name: str, rows: Array, text: str, value: int, price: float
    ) -> _Candidate:
        inside = np.zeros(len(self.hits), dtype=bool)
        inside[rows] = True
        gain = float(
            scan(self.hits[inside].sum(), self.expected[inside].sum(), *self.whole)
        )
        return _Candidate(
            name,
            "sample",
            inside[self.view.sample],
            Named(value, text),
            price,
            gain / self.spread - price,
        )

    def periods(self) -> Iterator[_Candidate]:
        """Yield every n-th sample, or all but every n-th, as packs have."""
        num = len(self.hits)
        longest = min(_LONGEST_PERIOD, num // _MIN_PERIODS)
        if longest < 2:  # noqa: PLR2004 no period
            return
        price = float(np.log(longest * longest))
        rows = np.arange(num)
        found = []
        for period in range(2, longest + 1):
            for phase in range(period):
                nth = rows % period == phase
                text = f"every {_ordinal(period)} sample from sample {phase} on"
                found.append((EVERY_NTH, period, nth, text))
            if period > 2:  # noqa: PLR2004 the first of two is every second
                text = f"in all samples but every {_ordinal(period)}"
                found.append((ALL_BUT_EVERY_NTH, period, rows % period != 0, text))
        for name in (EVERY_NTH, ALL_BUT_EVERY_NTH):
            mine = [one for one in found if one[0] == name]
            h = np.array([self.hits[one[2]].sum() for one in mine])
            e = np.array([self.expected[one[2]].sum() for one in mine])
            if mine:
                _, period, inside, text = mine[int(scan(h, e, *self.whole).argmax())]
                yield self._candidate(name, inside, text, period, price)

    def block(self) -> Iterator[_Candidate]:
        """Yield the best block of neighbours."""
        num = len(self.there)
        if num > _MAX_BLOCK_ROWS:
            return
        h = np.r_[0.0, np.cumsum(self.hits[self.there])]
        e = np.r_[0.0, np.cumsum(self.expected[self.there])]
        begin, stop = np.triu_indices(num + 1, 2)  # a single sample is no block
        gain = scan(h[stop] - h[begin], e[stop] - e[begin], *self.whole)
        at = int(gain.argmax())
        rows = self.there[begin[at] : stop[at]]
        text = f"in samples {rows[0]} to {rows[-1]}"
        yield self._candidate(BLOCK, rows, text, int(rows[0]), 2 * float(np.log(num)))

    def any_set(self) -> Iterator[_Candidate]:
        """Yield the best set of samples."""
        h, e = self.hits[self.there], self.expected[self.there]
        chosen, price = _best_set(h, e, self.whole)
        rows = np.sort(self.there[chosen])
        listed = ", ".join(map(str, rows[:_LISTED]))
        more = f" and {len(rows) - _LISTED} more" if len(rows) > _LISTED else ""
        text = f"in sample{'s' * (len(rows) > 1)} {listed}{more}"
        yield self._candidate(SAMPLES, rows, text, len(rows), price)

    def groups(self) -> Iterator[_Candidate]:
        """Yield the best set of whole groups."""
        group = self.view.facts.group
        if group is None:
            return
        num = int(group.max()) + 1
        e = np.bincount(group, weights=self.expected, minlength=num)
        known = np.flatnonzero(e > 0)
        if not _MIN_ROWS <= len(known) < len(self.there):
            return
        h = np.bincount(group, weights=self.hits, minlength=num)
        chosen, price = _best_set(h[known], e[known], self.whole)
        rows = np.flatnonzero(np.isin(group, known[chosen]))
        text = f"in {len(chosen)} whole group{'s' * (len(chosen) > 1)}"
        yield self._candidate(GROUPS, rows, text, len(chosen), price)


def _ordinal(number: int) -> str:
    ends = {2: "second", 3: "third"}
    return ends.get(number, f"{number}th")


def _best_set(
    hits: Array, expected: Array, whole: tuple[float, float]
) -> tuple[Array, float]:
    """Return the units above the threshold that gains most, and the price of it."""
    num = len(hits)
    order = np.argsort(-hits / np.maximum(expected, 1e-300), kind="stable")
    h, e = np.cumsum(hits[order])[:-1], np.cumsum(expected[order])[:-1]
    sizes = np.arange(1, num)
    price = _log_binom(num, sizes)
    at = int((scan(h, e, *whole) - price).argmax())
    return order[: at + 1], float(price[at])


def _log_binom(num: int, chosen: Array) -> Array:
    """Return the logarithm of the number of sets of that size, and of all sizes."""
    sets = special.gammaln(num + 1) - special.gammaln(chosen + 1)
    result: Array = sets - special.gammaln(num - chosen + 1) + np.log(num)
    return result


def _own_starts(
    view: View, over: Array, expected: Array, counts: _Counts
) -> Iterator[_Candidate]:
    """Yield the samples that differ from a token of their own on."""
    hot = np.flatnonzero(over)
    sample = view.sample[hot]
    begins = np.searchsorted(sample, np.arange(len(counts.hits)))
    scale = counts.whole[0] / max(counts.whole[1], 1e-300)
    e_all = counts.expected[sample] * scale
    h_all = counts.hits[sample]
    before = np.cumsum(expected)[hot] - expected[hot]
    first = np.r_[0.0, np.cumsum(counts.expected)[:-1]]
    e_before = np.maximum((before - first[sample]) * scale, 0.0)
    h_before = np.arange(len(hot)) - begins[sample]
    h_after, e_after = h_all - h_before, e_all - e_before
    rate = special.xlogy(h_after, h_after / np.maximum(e_after, 1e-12))
    rate += special.xlogy(h_before, h_before / np.maximum(e_before, 1e-12))
    rate -= special.xlogy(h_all, h_all / np.maximum(e_all, 1e-12))
    is_rise = (h_after * e_before > h_before * e_after) & (h_after > e_after)
    is_rise &= h_before < h_all
    gain = np.where(is_rise & (e_before > 0), rate, 0.0) / counts.spread
    present = counts.there[counts.hits[counts.there] > 0]
    if not len(present):
        return
    most = np.zeros(len(counts.hits))
    most[present] = np.maximum.reduceat(gain, begins[present])
    price = np.log(np.maximum(counts.hits, 1)) + np.log(len(counts.there))
    chosen = np.flatnonzero(most > price)
    if not len(chosen):
        return
    start = np.full(len(counts.hits), len(view))
    at = np.flatnonzero(gain == most[sample])
    start[sample[at][::-1]] = hot[at][::-1]  # the first of equal ones
    inside = np.zeros(len(counts.hits), dtype=bool)
    inside[chosen] = True
    tokens = inside[view.sample] & (np.arange(len(view)) >= start[view.sample])
    text = "each from a token of its own on"
    cost = float(np.log(np.maximum(counts.hits[chosen], 1)).sum())
    cost += float(_log_binom(len(counts.there), np.array(len(chosen))))
    whole = float(scan(over[tokens].sum(), expected[tokens].sum(), *counts.whole))
    worth = whole / counts.spread - cost
    yield _Candidate(OWN_START, "round", tokens, Named(len(chosen), text), cost, worth)
