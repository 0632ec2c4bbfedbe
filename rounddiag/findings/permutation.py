"""Whether a slice is more than chance: what varies is permuted where it varies.

The null of a condition changes nothing but which tokens have it:

- one that varies between the samples of a group, such as a rank, is permuted between
  the samples of each group;
- one that is constant in each group is permuted between groups;
- one that varies inside samples, such as a role or a round, stays, and the tokens that
  exceed the usual are rotated along each sample; contents differ by nature, so that of
  a content in some rounds its own tokens alone are rotated;
- a set of samples that the data chose is compared with the best split of samples whose
  log ratio of |diff| to the usual is normal, with the variances between and within
  groups of this batch (Engelman and Hartigan, J. Am. Stat. Assoc. 64, 1969).

Each draw gives the maximum of the scan statistic over all conditions of its kind, so
that the search has no other price. A slice is significant if none of 199 draws reaches
it; the draws end with the first that does. Of few arrangements, and for a set that the
data chose, 9 of 9,999 draws may reach it: the five nulls of a batch share the level.
Where that is not enough, the samples that have the condition are compared as a set that
the data chose.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from rounddiag.columns.predicates import meets
from rounddiag.findings.sample_sets import (
    BLOCK,
    GROUPS,
    LONGEST_PERIOD,
    MIN_PERIODS,
    OWN_START,
    SAMPLE_SET,
    SampleCounts,
    best_union,
    find_turns,
    has_unions,
)
from rounddiag.findings.slices import MOST, Counts, overdispersion, scan, select_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rounddiag._typing import Array
    from rounddiag.findings.slices import Cells, Part, Slice
    from rounddiag.findings.view import View

NUM_DRAWS = 199
LEVEL = 1 / (NUM_DRAWS + 1)
_CHUNKS = (9, 40, 150)  # draws at a time: most slices of chance end in the first
_MORE = (1800, 8000)  # further draws where few arrangements, or a normal model, count
_FINE = LEVEL / 5
_ROUNDING = 1e-6
_BLOCK = 1 << 20  # values that are drawn at a time: 8 MB an array
# Tokens that are rotated: a random part of more hits says the same at less cost.
_MAX_ROTATED = 2000
# With fewer units no half of them is one of 200 arrangements: sets are described only.
_FEWEST = 10
_LEAST_UNITS = 5  # of four normal values, two and two are often far apart
# A permutation is coarse if it has fewer arrangements a draw and label.
_COARSE = 10
# A sample that agrees more than ten times better than the middle one is no other kind.
_TENTH = 0.1
_CHOSEN = frozenset({SAMPLE_SET, BLOCK, GROUPS})
# What was written, and where in a round: equally likely tokens differ by it.
CONTENT = frozenset({"role", "token_id", "application", "first_tokens", "last_tokens"})
_LEAST = 1e-6  # nats: float32 rounds a log-prob to more
_LARGEST = 3.0  # nats: one token beyond it weighs no more


@dataclass(eq=False)
class _Null:
    """Maxima of a statistic under a null, drawn when they are asked for.

    Attributes
    ----------
    draw: Takes how many to draw, of arrays of so many `units`.
    """

    draw: Callable[[int], Array]
    units: int
    drawn: list[Array] = field(default_factory=list)

    def is_below(self, value: float, *, is_fine: bool = False) -> bool:
        """Return whether a value is in the upper 1 / 200; stop when it is not.

        Of 199 draws none must reach it; if `is_fine`, 9 of 9,999 may.
        """
        chunks = (*_CHUNKS, *_MORE) if is_fine else _CHUNKS
        most = (_FINE if is_fine else LEVEL) * (sum(chunks) + 1) - 1
        reached = 0
        for index, size in enumerate(chunks):
            if index == len(self.drawn):
                self.drawn.append(self._draw_in_blocks(size))
            reached += int((self.drawn[index] >= value).sum())
            if reached > most + _ROUNDING:
                return False
        return True

    def _draw_in_blocks(self, size: int) -> Array:
        rows = max(_BLOCK // self.units, 1)
        blocks = (min(rows, size - first) for first in range(0, size, rows))
        return np.concatenate([self.draw(block) for block in blocks])


@dataclass(frozen=True, eq=False)
class _Base:
    """Tokens that exceed the usual and are expected to, by unit, where a slice is."""

    hits: Array
    expected: Array

    @cached_property
    def spread(self) -> float:
        """The variance between units over that of independent tokens."""
        return overdispersion(self.hits, self.expected)

    def statistic(self, hits: Array, expected: Array) -> Array:
        """Return the scan statistic of sets of units, relative to the spread."""
        whole = float(self.hits.sum()), float(self.expected.sum())
        gain = scan(hits, expected, *whole) / self.spread
        result: Array = np.where(expected > MOST * whole[1], 0.0, gain)
        return result


@dataclass(frozen=True, eq=False)
class _Labels:
    """A condition of each unit: a code, 0 where it is missing, and its relations."""

    codes: Array
    size: int
    relations: tuple[str, ...]

    def maximum(self, base: _Base, hits: Array, expected: Array) -> Array:
        """Return the largest statistic of each row of permuted counts."""
        rows = len(hits)
        at = (self.codes + (self.size + 1) * np.arange(rows)[:, None]).ravel()
        num = rows * (self.size + 1)
        h, e = (
            np.bincount(at, weights=one.ravel(), minlength=num).reshape(rows, -1)[:, 1:]
            for one in (hits, expected)
        )
        found = []
        if "=" in self.relations:
            found.append(base.statistic(h, e))
        if "not" in self.relations:
            whole = base.hits.sum(), base.expected.sum()
            found.append(base.statistic(whole[0] - h, whole[1] - e))
        if ">=" in self.relations:
            found.append(
                base.statistic(*(one[:, ::-1].cumsum(axis=1) for one in (h, e)))
            )
        if "<=" in self.relations:
            found.append(base.statistic(h.cumsum(axis=1), e.cumsum(axis=1)))
        if has_unions(self.relations, self.size):
            found.append(base.statistic(*best_union(h, e)[:2]))
        result: Array = np.hstack(found).max(axis=1)
        return result


@dataclass(frozen=True, eq=False)
class Chance:
    """The nulls of one search, over the slices that it found.

    Attributes
    ----------
    there: bool array. Tokens that are searched.
    slices: sequence of (Slice, Counts)
    """

    view: View
    cells: Cells
    there: Array
    slices: Sequence[tuple[Slice, Counts]]
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def is_significant(self, one: Slice, counts: Counts) -> bool | None:
        """Return whether chance does not explain a slice; None if it cannot be said."""
        names = {self.cells.columns[index].name for index, _, _ in one.parts}
        if OWN_START in names:
            return self._turns(counts)
        chosen, within, between = (
            self._parts_of(one, kind) for kind in ("chosen", "within", "between")
        )
        if chosen:
            return self._split(one, chosen)
        if within:
            outer, units, null = within, self._group, self._within
        elif between:
            outer, units, null = between, np.zeros_like(self._groups), self._between
        else:
            return self._is_along(one, counts)
        base = self._base(one, counts, outer, is_group=not within)
        member = self._members(outer, is_group=not within)
        value = base.statistic(base.hits[member].sum(), base.expected[member].sum())
        arrangements = _num_arrangements(member, units)
        labels = self._labels("within" if within else "between")
        is_coarse = arrangements < _COARSE * NUM_DRAWS * sum(o.size for o in labels)
        if arrangements > NUM_DRAWS and null.is_below(float(value), is_fine=is_coarse):
            return True
        return self._split(one, outer) if is_coarse else False

    # What the conditions vary between.

    @cached_property
    def _group(self) -> Array:
        """The group of each sample; one for all where groups are unknown or alone."""
        group = self.view.facts.group
        num = self.view.batch.num_samples
        if group is None or not 1 < len(np.unique(group)) < num:
            return np.zeros(num, dtype=np.int64)
        return group

    @cached_property
    def _groups(self) -> Array:
        """The distinct groups."""
        return np.arange(int(self._group.max()) + 1)

    @cached_property
    def _there(self) -> Array:
        """Samples with tokens."""
        return np.unique(self.cells.sample)

    @cached_property
    def _codes(self) -> list[Array | None]:
        """The code of each sample in each column; None if it varies inside samples."""
        begins = np.searchsorted(self.cells.sample, self._there)
        found: list[Array | None] = []
        for column, cells in zip(self.cells.columns, self.cells.codes, strict=True):
            most = np.maximum.reduceat(cells, begins)
            least = np.minimum.reduceat(np.where(cells > 0, cells, len(cells)), begins)
            if column.name == OWN_START or (least < most).any():
                found.append(None)
                continue
            codes = np.zeros(self.view.batch.num_samples, dtype=np.int64)
            codes[self._there] = most
            found.append(codes)
        return found

    @cached_property
    def _kinds(self) -> list[str]:
        """For each column, what its conditions vary between."""
        kinds = []
        for column, codes in zip(self.cells.columns, self._codes, strict=True):
            if column.name in _CHOSEN:
                kinds.append("chosen")
            elif codes is None:
                kinds.append("along")
            else:
                known = codes[self._there]
                of_group = np.zeros(len(self._groups), dtype=np.int64)
                of_group[self._group[self._there]] = known
                is_constant = (known == of_group[self._group[self._there]]).all()
                is_between = is_constant and len(self._groups) > 1
                kinds.append("between" if is_between else "within")
        return kinds

    def _parts_of(self, one: Slice, kind: str) -> tuple[Part, ...]:
        return tuple(part for part in one.parts if self._kinds[part[0]] == kind)

    def _members(self, parts: Iterable[Part], *, is_group: bool = False) -> Array:
        """Which samples, or groups, meet conditions on samples."""
        inside = np.zeros(self.view.batch.num_samples, dtype=bool)
        inside[self._there] = True
        for index, relation, code in parts:
            codes = self._codes[index]
            if codes is not None:
                inside &= meets(codes, relation, code)
        if not is_group:
            return inside
        groups = np.zeros(len(self._groups), dtype=bool)
        groups[self._group[inside]] = True
        return groups

    def _base(
        self, one: Slice, counts: Counts, outer: tuple[Part, ...], *, is_group: bool
    ) -> _Base:
        """Sum the tokens that meet the other conditions, by sample or group."""
        others = tuple(part for part in one.parts if part not in outer)
        inside = select_cells(self.cells, others)
        unit = self.cells.sample[inside]
        num = self.view.batch.num_samples
        if is_group:
            unit, num = self._group[unit], len(self._groups)
        h, e = (
            np.bincount(unit, weights=values[inside], minlength=num)
            for values in (counts.hits, counts.expected)
        )
        return _Base(h, e)

    # Columns that are permuted between samples or groups.

    @cached_property
    def _within(self) -> _Null:
        return self._permuted("within", self._group)

    @cached_property
    def _between(self) -> _Null:
        return self._permuted("between", np.zeros_like(self._groups))

    def _permuted(self, kind: str, block: Array) -> _Null:
        """Return the null of the columns of a kind: permute units in their blocks."""
        is_group = kind == "between"
        bases: dict[tuple[object, int], _Base] = {}
        labels = self._labels(kind)
        known: set[tuple[Part, ...]] = set()
        for one, counts in self.slices:
            outer = self._parts_of(one, kind)
            others = tuple(part for part in one.parts if part not in outer)
            if not outer or self._parts_of(one, "chosen"):
                continue
            if is_group and self._parts_of(one, "within"):
                continue
            key = (others, id(counts))
            if key not in bases:
                bases[key] = self._base(one, counts, outer, is_group=is_group)
            if len(outer) > 1 and outer not in known:
                known.add(outer)
                member = self._members(outer, is_group=is_group)
                labels.append(_Labels(member.astype(np.int64), 1, ("=",)))
        order = np.argsort(block, kind="stable")

        def draw(size: int) -> Array:
            keys = self.rng.random((size, len(block))) + block
            permuted = np.empty(keys.shape, dtype=np.int64)
            permuted[:, order] = np.argsort(keys, axis=1)
            best = np.zeros(size)
            for base in bases.values():
                hits, expected = base.hits[permuted], base.expected[permuted]
                for one in labels:
                    best = np.maximum(best, one.maximum(base, hits, expected))
            return best

        return _Null(draw, len(block))

    def _labels(self, kind: str) -> list[_Labels]:
        """Return the columns of a kind, and, of samples, every n-th sample."""
        found = []
        for index, column in enumerate(self.cells.columns):
            codes = self._codes[index]
            if (
                codes is not None
                and self._kinds[index] == kind
                and not column.selection_penalty
            ):
                if kind == "between":
                    by_group = np.zeros(len(self._groups), dtype=np.int64)
                    by_group[self._group] = codes
                    codes = by_group
                found.append(_Labels(codes, len(column.values), column.relations))
        if kind == "within":
            num = len(self._group)
            longest = min(LONGEST_PERIOD, num // MIN_PERIODS)
            found += [
                _Labels(np.arange(num) % period + 1, period, ("=", "not"))
                for period in range(2, longest + 1)
            ]
        return found

    # Conditions inside samples: rotation.

    @cached_property
    def _rotations(self) -> dict[int, _Rotation]:
        return {
            id(counts): _Rotation.of(self, counts)
            for counts in {id(counts): counts for _, counts in self.slices}.values()
        }

    def _rotated(self, counts: Counts) -> _Rotation:
        return self._rotations[id(counts)]

    @cached_property
    def _along(self) -> _Null:
        """The null of conditions inside samples: hits are rotated along each sample."""
        tables = [
            _Labels(self.cells.codes[index], len(column.values), column.relations)
            for index, column in enumerate(self.cells.columns)
            if self._kinds[index] == "along" and not column.selection_penalty
        ]
        parts = {
            one.parts
            for one, _ in self.slices
            if len(one.parts) > 1
            and all(self._kinds[index] == "along" for index, _, _ in one.parts)
        }
        for part in sorted(parts):
            inside = select_cells(self.cells, part).astype(np.int64)
            tables.append(_Labels(inside, 1, ("=",)))

        def draw(size: int) -> Array:
            turn = self.rng.random((size, self.view.batch.num_samples))
            best = np.zeros(size)
            for one in self._rotations.values():
                best = np.maximum(best, one.maximum(turn, tables))
            return best

        return _Null(draw, self.view.batch.num_samples)

    def _is_along(self, one: Slice, counts: Counts) -> bool | None:
        """Whether a slice inside samples is more than chance."""
        if not self._along.is_below(self._rotated(counts).value(one, self)):
            return False
        columns = self.cells.columns
        content = tuple(p for p in one.parts if columns[p[0]].name in CONTENT)
        if len(content) in (0, len(one.parts)):
            return True
        cells = select_cells(self.cells, content)
        tokens = np.repeat(cells, np.diff(np.r_[self.cells.first, len(self.view)]))
        rest = replace(one, parts=tuple(p for p in one.parts if p not in content))
        of_content = Counts(
            counts.hits * cells, counts.expected * cells, counts.over & tokens
        )
        there, slices = self.there & tokens, [(rest, of_content)]
        alone = Chance(self.view, self.cells, there, slices)
        return alone.is_significant(rest, of_content)

    def _turns(self, counts: Counts) -> bool:
        """Whether samples turn at tokens of their own more than if hits are rotated."""
        rotation = self._rotated(counts)

        def draw(size: int) -> Array:
            turn = self.rng.random((size, self.view.batch.num_samples))
            return np.array([rotation.turn_gain(one) for one in turn])

        value = rotation.turn_gain(np.zeros_like(self._group))
        return _Null(draw, self.view.batch.num_samples).is_below(value)

    # Sets of samples that the data chose.

    @cached_property
    def _sizes(self) -> tuple[Array, Array]:
        """|diff| of each cell, and that of equally likely tokens."""
        size = np.minimum(self.view.abs_diff, _LARGEST)
        usual = self.view.of_equally_likely(size)
        return tuple(  # type: ignore[return-value]
            self.cells.sums(np.where(self.there, one + _LEAST, 0.0))
            for one in (size, usual)
        )

    def _split(self, one: Slice, chosen: tuple[Part, ...]) -> bool | None:
        """Whether a set of samples is another kind than the rest.

        Its gain is that of two normal distributions over one, and is compared with the
        best split of normal samples whose groups differ as much.
        """
        others = tuple(part for part in one.parts if part not in chosen)
        inside = select_cells(self.cells, others)
        member, group = self._members(chosen), self._group
        unit, num = self.cells.sample[inside], len(member)
        part = np.bincount(group, weights=member)[group] / np.bincount(group)[group]
        if len(self._groups) > 1 and np.isin(part[self._there], (0, 1)).all():
            # Whole groups are compared with groups.
            unit, num = group[unit], len(self._groups)
            member, group = (
                self._members(chosen, is_group=True),
                np.zeros_like(self._groups),
            )
        size, usual = (np.bincount(unit, one[inside], num) for one in self._sizes)
        known = usual > 0
        member, group = member[known], np.unique(group[known], return_inverse=True)[1]
        if not 0 < member.sum() < len(member):
            return False
        ratio = size[known] / usual[known]
        ratio = np.log(np.maximum(ratio, _TENTH * np.median(ratio)))
        if ratio[member].mean() <= ratio[~member].mean():
            return False
        if len(ratio) < _LEAST_UNITS:
            return None
        between, within = _variances(ratio, group)
        rng = np.random.default_rng(0)  # the same draws for all sets of a search

        def draw(draws: int) -> Array:
            effects = rng.normal(0, np.sqrt(between), (draws, int(group.max()) + 1))
            noise = rng.normal(0, np.sqrt(within), (draws, len(ratio)))
            return _best_split(effects[:, group] + noise)

        # All batches of as many units have the same draws: few would set one level of
        # their own for all of them.
        gain = _split_gain(ratio, member)
        if _Null(draw, len(ratio)).is_below(gain, is_fine=True):
            return True
        return None if num < _FEWEST else False


@dataclass(frozen=True, eq=False)
class _Rotation:
    """Tokens of one level that exceed the usual, as they are rotated along samples."""

    cell: Array  # of each token that is searched
    begins: Array  # of each sample among these tokens
    lengths: Array
    hits: Array  # indices among these tokens
    sample: Array  # of each hit
    num_hits: Array  # of each sample
    num_tokens: Array  # searched tokens of each cell
    sample_of_cell: Array
    expected: Array  # hits of each cell, if each sample's own hits are spread evenly
    spread: float
    there: Array  # samples

    @classmethod
    def of(cls, chance: Chance, counts: Counts) -> _Rotation:
        """Take the tokens of a level, or a random part of them."""
        view, cells = chance.view, chance.cells
        rows = np.flatnonzero(chance.there)
        sample = view.sample[rows]
        num = view.batch.num_samples
        hits = np.flatnonzero(counts.over[rows])
        if len(hits) > _MAX_ROTATED:
            hits = np.sort(chance.rng.permutation(hits)[:_MAX_ROTATED])
        num_hits = np.bincount(sample[hits], minlength=num)
        by_sample = np.bincount(cells.sample, weights=counts.expected, minlength=num)
        rate = num_hits / np.maximum(by_sample, 1e-300)
        sizes = np.diff(np.r_[cells.first, len(view)])
        return cls(
            cell=np.repeat(np.arange(len(cells.first)), sizes)[rows],
            begins=np.searchsorted(sample, np.arange(num)),
            lengths=np.bincount(sample, minlength=num),
            hits=hits,
            sample=sample[hits],
            num_hits=num_hits,
            num_tokens=cells.sums(chance.there),
            sample_of_cell=cells.sample,
            expected=counts.expected * rate[cells.sample],
            spread=counts.spread(cells.cluster, int(cells.cluster.max()) + 1),
            there=np.flatnonzero(np.bincount(sample, minlength=num) > 0),
        )

    def value(self, one: Slice, chance: Chance) -> float:
        """Return the statistic of a slice, against the rate of its own samples."""
        inside = select_cells(chance.cells, one.parts)
        hits = inside[self.cell[self.hits]].sum()
        whole = float(len(self.hits))
        return (
            float(scan(hits, self.expected[inside].sum(), whole, whole)) / self.spread
        )

    @cached_property
    def _evenly(self) -> Array:
        """Hits of each cell, if those of each sample are anywhere in it."""
        rate = self.num_hits / np.maximum(self.lengths, 1)
        result: Array = self.num_tokens * rate[self.sample_of_cell]
        return result

    def maximum(self, turn: Array, tables: Sequence[_Labels]) -> Array:
        """Return the largest statistic over conditions, for each row of rotations."""
        length = self.lengths[self.sample]
        begin = self.begins[self.sample]
        steps = (turn[:, self.sample] * length).astype(np.int64)
        cell = self.cell[begin + (self.hits - begin + steps) % length]
        best = np.zeros(len(turn))
        rows = np.arange(len(turn))[:, None]
        for one in tables:
            width = one.size + 1
            at = (one.codes[cell] + width * rows).ravel()
            h = np.bincount(at, minlength=len(turn) * width)
            h = h.reshape(len(turn), width)[:, 1:]
            e = np.bincount(one.codes, weights=self._evenly, minlength=width)[1:]
            found = []
            if "=" in one.relations:
                found.append((h, e))
            if ">=" in one.relations:
                found.append((h[:, ::-1].cumsum(axis=1), e[::-1].cumsum()))
            if "<=" in one.relations:
                found.append((h.cumsum(axis=1), e.cumsum()))
            whole = float(len(self.hits))
            for hits, expected in found:
                gain = scan(hits, expected[None, :], whole, whole)
                gain[:, expected > MOST * whole] = 0.0
                best = np.maximum(best, gain.max(axis=1, initial=0.0))
        return best / self.spread

    def turn_gain(self, turn: Array) -> float:
        """Return the gain of samples that turn at tokens of their own, rotated."""
        length, begin = self.lengths[self.sample], self.begins[self.sample]
        steps = (turn[self.sample] * length).astype(np.int64)
        at = np.sort(begin + (self.hits - begin + steps) % length) - begin
        hits = self.num_hits.astype(float)
        expected = self.lengths * (hits.sum() / self.lengths.sum())
        before = at / np.maximum(length, 1) * expected[self.sample]
        counts = SampleCounts(self.there, hits, expected)
        found = find_turns(self.sample, before, counts)
        return 0.0 if found is None else found.log_likelihood_ratio


def _num_arrangements(member: Array, block: Array) -> float:
    """Return how many sets of as many units there are in each block."""
    size = np.bincount(block)
    inside = np.bincount(block, weights=member)
    log = special.gammaln(size + 1) - special.gammaln(inside + 1)
    log -= special.gammaln(size - inside + 1)
    return float(np.exp(min(log.sum(), 100.0)).round())


def _variances(values: Array, group: Array) -> tuple[float, float]:
    """Return the variances between groups and within them, by moments."""
    num = np.bincount(group)
    mean = np.bincount(group, weights=values) / num
    free = len(values) - len(num)
    if len(num) < 2 or free < 1:  # noqa: PLR2004 no groups
        return 0.0, float(values.var())
    within = float(((values - mean[group]) ** 2).sum()) / free
    between = float((num * (mean - values.mean()) ** 2).sum()) / (len(num) - 1)
    typical = (len(values) - (num**2).sum() / len(values)) / (len(num) - 1)
    return max((between - within) / typical, 0.0), within


def _split_gain(values: Array, member: Array) -> float:
    """Return the log-likelihood of two normal distributions of values over one."""
    total = float(((values - values.mean()) ** 2).sum())
    parts = (values[member], values[~member])
    rest = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    return len(values) / 2 * float(np.log((total + _LEAST) / (rest + _LEAST)))


def _best_split(values: Array) -> Array:
    """Return the largest gain of any split of each row of values."""
    values = np.sort(values - values.mean(axis=1, keepdims=True), axis=1)
    num = values.shape[1]
    low = values.cumsum(axis=1)[:, :-1]
    size = np.arange(1, num)
    total = (values**2).sum(axis=1)
    explained = (low**2 * (1 / size + 1 / (num - size))).max(axis=1)
    rest = np.maximum(total - explained, 0.0)
    result: Array = num / 2 * np.log((total + _LEAST) / (rest + _LEAST))
    return result
