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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from scipy import special

from rounddiag._typing import Array
from rounddiag.checks.contracts import LEVEL
from rounddiag.columns.predicates import meets
from rounddiag.findings.rotation import Rotation
from rounddiag.findings.sample_sets import (
    BLOCK,
    GROUPS,
    LONGEST_PERIOD,
    MIN_PERIODS,
    OWN_START,
    SAMPLE_SET,
    best_union,
    has_unions,
)
from rounddiag.findings.slices import (
    MOST,
    Cells,
    Labels,
    Part,
    Trial,
    overdispersion,
    scan,
    select_cells,
    sums_of_relation,
)
from rounddiag.findings.view import LARGEST_DIFF, ROUNDING, View

NUM_DRAWS = round(1 / LEVEL) - 1  # of a null: the fewest for a p-value of `LEVEL`
_CHUNKS = (9, 40, 150)  # draws at a time: most slices of chance end in the first chunk
_MORE = (1800, 8000)  # further draws, for coarse permutations and normal models
NUM_NULLS = 5  # of a batch: they share the level
_BLOCK = 1 << 20  # values that are drawn at a time: 8 MB an array
# With fewer units there are fewer than 200 ways to choose half of them, so that sets of
# units are described and not tested.
_MIN_UNITS = 10
_MIN_SPLIT_UNITS = 5  # four normal values often fall into two pairs that are far apart
# A permutation with fewer arrangements than this, per draw and label, is coarse.
_COARSE = 10
# Samples that agree better than a tenth of the median count as a tenth: they are no
# kind of their own.
_TENTH = 0.1
# Columns of what was written, and of where in a round it stands. Equally likely tokens
# differ by these in sound batches as well.
CONTENT = frozenset({"role", "token_id", "application", "first_tokens", "last_tokens"})
# Between what the values of a column vary; `chosen` are sets that the data choose.
_Kind: TypeAlias = Literal["chosen", "within", "between", "along"]
_CHOSEN = frozenset({SAMPLE_SET, BLOCK, GROUPS})


@dataclass(frozen=True, eq=False)
class Nulls:
    """The slices that a search found, and what its nulls share.

    Attributes
    ----------
    searched: bool array. Tokens that are searched.
    trials: The slices that it found, best first.
    """

    view: View
    cells: Cells
    searched: Array
    trials: Sequence[Trial]
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    permuted: dict[_Kind, Null] = field(default_factory=dict)

    @cached_property
    def units(self) -> Units:
        """The samples and groups of the search, and what its columns vary between."""
        return Units.of(self.view, self.cells)

    @cached_property
    def rotations(self) -> dict[int, Rotation]:
        """The rotation of each level, by the identity of its counts."""
        levels = {id(trial.counts): trial.counts for trial in self.trials}
        view, cells, searched, rng = self.view, self.cells, self.searched, self.rng
        return {
            key: Rotation.of(view, cells, searched, counts, rng)
            for key, counts in levels.items()
        }

    @cached_property
    def rotated(self) -> Null:
        """Maxima over the columns that vary inside samples."""
        rotations = [*self.rotations.values()]
        return rotate_hits(self.cells, self.units, self.trials, rotations, self.rng)

    @cached_property
    def sizes(self) -> tuple[Array, Array]:
        """|diff| of each cell, and that of equally likely tokens."""
        size = np.minimum(self.view.abs_diff, LARGEST_DIFF)
        usual = self.view.of_equally_likely(size)
        of_cell, usual_of_cell = (
            self.cells.sums(np.where(self.searched, values + ROUNDING, 0.0))
            for values in (size, usual)
        )
        return of_cell, usual_of_cell


def chance_of(search: Nulls, trial: Trial) -> float | None:
    """Return the p-value of a slice, at most `LEVEL` if chance does not explain it.

    None if it has too few arrangements.
    """
    units = search.units
    names = {search.cells.columns[index].name for index, _, _ in trial.parts}
    if OWN_START in names:
        rotation = search.rotations[id(trial.counts)]
        value = rotation.turn_gain(np.zeros_like(units.group))
        return rotate_turns(rotation, len(units.group), search.rng).p_value(value)
    if chosen := units.parts(trial, "chosen"):
        return chance_of_split(search, trial, chosen)
    kinds: tuple[_Kind, ...] = ("within", "between")
    for kind in kinds:
        if units.parts(trial, kind):
            return chance_between_units(search, trial, kind)
    return chance_along(search, trial)


def chance_between_units(search: Nulls, trial: Trial, kind: _Kind) -> float | None:
    """Return the p-value of conditions on samples, or groups, that are permuted.

    Of few arrangements the samples are compared as a set that the data chose.
    """
    cells, units = search.cells, search.units
    parts = units.parts(trial, kind)
    sums = sum_by_unit(cells, units, trial, kind)
    member = units.members(parts, kind)
    value = sums.statistic(sums.hits[member].sum(), sums.expected[member].sum())
    arrangements = _num_arrangements(member, units.blocks(kind))
    num_labels = sum(
        labels.num_values for labels in labels_of_units(cells, units, kind)
    )
    is_coarse = arrangements < _COARSE * NUM_DRAWS * num_labels
    p = 1.0
    if arrangements > NUM_DRAWS:
        if kind not in search.permuted:
            null = permute_units(cells, units, search.trials, kind, search.rng)
            search.permuted[kind] = null
        p = search.permuted[kind].p_value(float(value), is_fine=is_coarse)
    is_split = is_coarse and p > LEVEL
    return chance_of_split(search, trial, parts) if is_split else p


def chance_along(search: Nulls, trial: Trial) -> float | None:
    """Return the p-value of conditions inside samples, along which hits are rotated.

    Contents differ by nature: of a content in some rounds its own tokens are.
    """
    cells = search.cells
    value = search.rotations[id(trial.counts)].statistic(cells, trial.parts)
    p = search.rotated.p_value(value)
    content = [part for part in trial.parts if cells.columns[part[0]].name in CONTENT]
    if p > LEVEL or len(content) in (0, len(trial.parts)):
        return p
    inside = select_cells(cells, content)
    tokens = cells.of_tokens(inside)
    others = tuple(part for part in trial.parts if part not in content)
    rest = replace(
        trial,
        conjunction=replace(trial.conjunction, parts=others),
        counts=trial.counts.where(inside, tokens),
    )
    alone = Nulls(search.view, cells, search.searched & tokens, [rest])
    return chance_of(alone, rest)


def chance_of_split(
    search: Nulls, trial: Trial, parts: tuple[Part, ...]
) -> float | None:
    """Return the p-value of a set of samples that is another kind than the rest.

    Its gain is that of two normal distributions over one, and is compared with the best
    split of normal samples whose groups differ as much.
    """
    cells, units = search.cells, search.units
    others = tuple(part for part in trial.parts if part not in parts)
    inside = select_cells(cells, others)
    member, group = units.members(parts, "within"), units.group
    unit, num = cells.sample[inside], len(member)
    share = np.bincount(group, weights=member)[group] / np.bincount(group)[group]
    if units.num_groups > 1 and np.isin(share[units.present], (0, 1)).all():
        # Whole groups are compared with groups.
        unit, num = group[unit], units.num_groups
        member = units.members(parts, "between")
        group = np.zeros(num, dtype=np.int64)
    size, usual = (np.bincount(unit, values[inside], num) for values in search.sizes)
    known = usual > 0
    member, group = member[known], np.unique(group[known], return_inverse=True)[1]
    if not 0 < member.sum() < len(member):
        return 1.0
    ratio = size[known] / usual[known]
    ratio = np.log(np.maximum(ratio, _TENTH * np.median(ratio)))
    if ratio[member].mean() <= ratio[~member].mean():
        return 1.0
    if len(ratio) < _MIN_SPLIT_UNITS:
        return None
    # All batches with this number of units share the draws, and so the level that
    # these set: few draws would make the same error in all batches.
    null = draw_normal_splits(*_variances(ratio, group), group)
    p = null.p_value(_split_gain(ratio, member), is_fine=True)
    return None if p > LEVEL and num < _MIN_UNITS else p


@dataclass(frozen=True, eq=False)
class Units:
    """The samples and groups of a search, and what its columns vary between.

    Attributes
    ----------
    group: int64 array. The group of each sample; one for all where groups are unknown
        or of one sample each.
    present: int64 array. Samples with tokens.
    codes: For each column the code of each sample; None if it varies inside samples.
    kinds: For each column what its conditions vary between.
    """

    group: Array
    num_groups: int
    present: Array
    codes: list[Array | None]
    kinds: list[_Kind]

    @classmethod
    def of(cls, view: View, cells: Cells) -> Units:
        """Read the units of a search."""
        num = view.batch.num_samples
        group = view.facts.group
        if group is None or not 1 < len(np.unique(group)) < num:
            group = np.zeros(num, dtype=np.int64)
        num_groups = int(group.max()) + 1
        present = np.unique(cells.sample)
        begins = np.searchsorted(cells.sample, present)
        all_codes: list[Array | None] = []
        kinds: list[_Kind] = []
        for column, values in zip(cells.columns, cells.codes, strict=True):
            high = np.maximum.reduceat(values, begins)
            known = np.where(values > 0, values, len(values))
            is_along = (np.minimum.reduceat(known, begins) < high).any()
            codes = None
            if column.name != OWN_START and not is_along:
                codes = np.zeros(num, dtype=np.int64)
                codes[present] = high
            of_group = np.zeros(num_groups, dtype=np.int64)
            of_group[group[present]] = high
            is_between = num_groups > 1 and (high == of_group[group[present]]).all()
            all_codes.append(codes)
            if column.name in _CHOSEN:
                kinds.append("chosen")
            elif codes is None:
                kinds.append("along")
            else:
                kinds.append("between" if is_between else "within")
        return cls(group, num_groups, present, all_codes, kinds)

    def parts(self, trial: Trial, kind: _Kind) -> tuple[Part, ...]:
        """Return the conditions of a slice that are of a kind."""
        return tuple(part for part in trial.parts if self.kinds[part[0]] == kind)

    def members(self, parts: Iterable[Part], kind: _Kind) -> Array:
        """Return which samples meet conditions on samples; or groups, if `between`."""
        inside = np.zeros(len(self.group), dtype=bool)
        inside[self.present] = True
        for index, relation, code in parts:
            codes = self.codes[index]
            if codes is not None:
                inside &= meets(codes, relation, code)
        if kind != "between":
            return inside
        groups = np.zeros(self.num_groups, dtype=bool)
        groups[self.group[inside]] = True
        return groups

    def blocks(self, kind: _Kind) -> Array:
        """Return the block of each unit: samples are permuted in their groups."""
        is_between = kind == "between"
        return np.zeros(self.num_groups, dtype=np.int64) if is_between else self.group


@dataclass(eq=False)
class Null:
    """Maxima of a statistic under a null, drawn when they are asked for.

    Attributes
    ----------
    draw: Takes how many to draw, of arrays of so many `units`.
    """

    draw: Callable[[int], Array]
    units: int
    drawn: list[Array] = field(default_factory=list)

    def p_value(self, value: float, *, is_fine: bool = False) -> float:
        """Return the p-value of a value; draw no more once it is above `LEVEL`.

        Of 199 draws none may reach it; if `is_fine`, 9 of 9,999, times the five nulls.
        """
        chunks = (*_CHUNKS, *_MORE) if is_fine else _CHUNKS
        times, drawn, reached, p = NUM_NULLS if is_fine else 1, 0, 0, 1.0
        allowed = round(LEVEL / times * (sum(chunks) + 1) - 1)
        for index, size in enumerate(chunks):
            if index == len(self.drawn):
                self.drawn.append(self._draw_in_blocks(size))
            drawn, reached = drawn + size, reached + (self.drawn[index] >= value).sum()
            p = min(times * float(reached + 1) / (drawn + 1), 1.0)
            if reached > allowed:
                break
        return p

    def _draw_in_blocks(self, size: int) -> Array:
        rows = max(_BLOCK // self.units, 1)
        blocks = (min(rows, size - first) for first in range(0, size, rows))
        return np.concatenate([self.draw(block) for block in blocks])


# The nulls.


def permute_units(
    cells: Cells,
    units: Units,
    trials: Sequence[Trial],
    kind: _Kind,
    rng: np.random.Generator,
) -> Null:
    """Permute samples within groups, or groups: the maximum over their columns."""
    every_sums: dict[tuple[object, int], UnitSums] = {}
    every_labels = labels_of_units(cells, units, kind)
    known: set[tuple[Part, ...]] = set()
    for trial in trials:
        parts = units.parts(trial, kind)
        is_inner = kind == "between" and units.parts(trial, "within")
        if not parts or units.parts(trial, "chosen") or is_inner:
            continue
        others = tuple(part for part in trial.parts if part not in parts)
        if (others, id(trial.counts)) not in every_sums:
            sums = sum_by_unit(cells, units, trial, kind)
            every_sums[others, id(trial.counts)] = sums
        if len(parts) > 1 and parts not in known:
            known.add(parts)
            member = units.members(parts, kind).astype(np.int64)
            every_labels.append(Labels(member, 1, ("=",)))
    block = units.blocks(kind)
    order = np.argsort(block, kind="stable")

    def draw(size: int) -> Array:
        keys = rng.random((size, len(block))) + block
        permuted = np.empty(keys.shape, dtype=np.int64)
        permuted[:, order] = np.argsort(keys, axis=1)
        largest = np.zeros(size)
        for sums in every_sums.values():
            hits, expected = sums.hits[permuted], sums.expected[permuted]
            for labels in every_labels:
                largest = np.maximum(largest, sums.largest(labels, hits, expected))
        return largest

    return Null(draw, len(block))


def rotate_hits(
    cells: Cells,
    units: Units,
    trials: Sequence[Trial],
    rotations: Sequence[Rotation],
    rng: np.random.Generator,
) -> Null:
    """Rotate hits along samples: the maximum over the columns that vary inside them."""
    tables = [
        Labels(cells.codes[index], len(column.values), column.relations)
        for index, column in enumerate(cells.columns)
        if units.kinds[index] == "along" and not column.selection_penalty
    ]
    conjunctions = {
        trial.parts
        for trial in trials
        if len(trial.parts) > 1 and trial.parts == units.parts(trial, "along")
    }
    for parts in sorted(conjunctions):
        inside = select_cells(cells, parts).astype(np.int64)
        tables.append(Labels(inside, 1, ("=",)))

    def draw(size: int) -> Array:
        turns = rng.random((size, len(units.group)))
        every = [rotation.largest(turns, tables) for rotation in rotations]
        return np.max(every, axis=0)

    return Null(draw, len(units.group))


def rotate_turns(
    rotation: Rotation, num_samples: int, rng: np.random.Generator
) -> Null:
    """Rotate hits along samples: the gain of those that turn at their own tokens."""

    def draw(size: int) -> Array:
        turns = rng.random((size, num_samples))
        return np.array([rotation.turn_gain(turn) for turn in turns])

    return Null(draw, num_samples)


def draw_normal_splits(between: float, within: float, group: Array) -> Null:
    """Draw normal units with these variances: the gain of their best split in two."""
    rng = np.random.default_rng(0)  # the same draws for all sets of a search

    def draw(size: int) -> Array:
        effects = rng.normal(0, np.sqrt(between), (size, int(group.max()) + 1))
        noise = rng.normal(0, np.sqrt(within), (size, len(group)))
        return _best_split(effects[:, group] + noise)

    return Null(draw, len(group))


# Sums by sample or group, and their conditions.


@dataclass(frozen=True, eq=False)
class UnitSums:
    """Tokens that exceed the usual and are expected to, of each sample or group."""

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
        return np.where(expected > MOST * whole[1], 0.0, gain)

    def largest(self, labels: Labels, hits: Array, expected: Array) -> Array:
        """Return the largest statistic of each row of permuted counts."""
        num_rows, width = len(hits), labels.num_values + 1
        at = (labels.codes + width * np.arange(num_rows)[:, None]).ravel()
        h, e = (
            np.bincount(at, weights=values.ravel(), minlength=num_rows * width).reshape(
                num_rows, width
            )[:, 1:]
            for values in (hits, expected)
        )
        statistics = []
        for relation in labels.relations:
            if relation == "not":
                sets = self.hits.sum() - h, self.expected.sum() - e
            else:
                sets = sums_of_relation(relation, h), sums_of_relation(relation, e)
            statistics.append(self.statistic(*sets))
        if has_unions(labels.relations, labels.num_values):
            statistics.append(self.statistic(*best_union(h, e)[:2]))
        return np.hstack(statistics).max(axis=1)


def sum_by_unit(cells: Cells, units: Units, trial: Trial, kind: _Kind) -> UnitSums:
    """Sum the tokens that meet the other conditions by sample, or group: `between`."""
    parts = units.parts(trial, kind)
    inside = select_cells(cells, (part for part in trial.parts if part not in parts))
    unit, num = cells.sample[inside], len(units.group)
    if kind == "between":
        unit, num = units.group[unit], units.num_groups
    return UnitSums(
        np.bincount(unit, weights=trial.counts.hits[inside], minlength=num),
        np.bincount(unit, weights=trial.counts.expected[inside], minlength=num),
    )


def labels_of_units(cells: Cells, units: Units, kind: _Kind) -> list[Labels]:
    """Return the columns of a kind, and, of samples, every n-th sample."""
    tables = []
    for index, column in enumerate(cells.columns):
        codes = units.codes[index]
        if codes is None or units.kinds[index] != kind or column.selection_penalty:
            continue
        if kind == "between":
            of_group = np.zeros(units.num_groups, dtype=np.int64)
            of_group[units.group] = codes
            codes = of_group
        tables.append(Labels(codes, len(column.values), column.relations))
    if kind == "within":
        num = len(units.group)
        tables += [
            Labels(np.arange(num) % period + 1, period, ("=", "not"))
            for period in range(2, min(LONGEST_PERIOD, num // MIN_PERIODS) + 1)
        ]
    return tables


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
    return len(values) / 2 * float(np.log((total + ROUNDING) / (rest + ROUNDING)))


def _best_split(values: Array) -> Array:
    """Return the largest gain of any split of each row of values."""
    values = np.sort(values - values.mean(axis=1, keepdims=True), axis=1)
    num = values.shape[1]
    low = values.cumsum(axis=1)[:, :-1]
    size = np.arange(1, num)
    total = (values**2).sum(axis=1)
    explained = (low**2 * (1 / size + 1 / (num - size))).max(axis=1)
    rest = np.maximum(total - explained, 0.0)
    return num / 2 * np.log((total + ROUNDING) / (rest + ROUNDING))
