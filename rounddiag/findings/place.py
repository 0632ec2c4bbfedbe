"""Places: subgroups of tokens, defined by conditions on columns, that differ more.

A token's |diff| is measured in units of what is usual at its probability. A place is a
set of tokens that exceed 3, 10 or 40 such units more often than all others do, found
by a search over conjunctions of up to three conditions. The statistic is Kulldorff's
scan statistic (Commun. Stat. 26(6), 1997), divided by the spread between samples; the
search over conjunctions is slice finding (SliceLine, SIGMOD 2021), as a beam. Whether
chance explains a place is decided by permutation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.step_order import STEP_COLUMNS
from rounddiag.checks.contracts import LEVEL
from rounddiag.columns.phrases import phrase
from rounddiag.columns.predicates import Condition, sort_for_sentence
from rounddiag.core.divergence import FACTOR_2
from rounddiag.findings.common_values import CommonValue, find_common_values
from rounddiag.findings.conditions import ColumnOfTokens, columns_of_tokens
from rounddiag.findings.excess import find_excesses, odd_id_columns, usual_size
from rounddiag.findings.permutation import Nulls, chance_of
from rounddiag.findings.reference import guess_kind, named_range
from rounddiag.findings.sample_sets import (
    EVERY_NTH,
    GROUPS,
    LISTS,
    OWN_START,
    columns_of_sets,
)
from rounddiag.findings.slices import (
    MOST,
    Cells,
    Counts,
    Part,
    Trial,
    find_slices,
    select_cells,
)
from rounddiag.findings.starts import (
    START_COLUMNS,
    SUPPORT,
    Start,
    columns_of_starts,
    find_start,
    first_rounds,
)
from rounddiag.findings.view import View
from rounddiag.stats.inputs import open_measured
from rounddiag.stats.intervals import MIN_CLUSTERS
from rounddiag.wording import pluralize

MIN_HITS = 6  # tokens of a place that exceed the usual
# In sound batches too, some roles, ids and rounds differ more than equally likely
# tokens elsewhere, and chance does not explain it. The next limits lie above the
# largest such places (`python -m tests.faults.permutation --sizes`). A small place
# counts from this gain on. Sound mixtures of experts reach 86. With 50, 5 of 40 sound
# batches of vLLM raise an alarm; with 200 nothing changes (`tests.faults.bench --set`).
SURE = 100.0
# The least |diff| of a place, as a multiple of that of equally likely tokens elsewhere.
# Sound batches reach 2.07 for rounds, with a gain of 38, and 1.28 for samples.
_MIN_RATIO = {"token": 2.0, "round": 1.7, "sample": 1.4}
# A place along samples counts as well if the lower end of the interval of its ratio is
# above `_FAR` and its gain above `FAR_GAIN`. A set of samples that the data choose must
# be above `_FAR`, too: rounded log-probs have sets with a ratio of 1.3. With a `_FAR`
# of 1.5, one sound batch is called a fault; 3, or a gain of 10, change nothing.
ALONG = {"round", "images_seen", "num_rounds", "last_round", "decoding_step"}
ALONG |= {"context_length"}
_FAR, FAR_GAIN = 2.0, 20.0
MAX_PLACES = 4  # of a batch
# How many rounds a sample has says how long its context becomes.
_LENGTHS = START_COLUMNS | {"num_rounds"}
_TRIED = 12  # slices of a search that are compared with chance
# Sets of samples that the data choose. The values that they share are looked for.
SAMPLE_SETS = LISTS | {OWN_START, EVERY_NTH}


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """A set of tokens that differ more than equally likely tokens elsewhere.

    Attributes
    ----------
    scopes: What the conditions are about.
    tokens: Its tokens in the view.
    over: Those that exceed what is usual.
    exceeding: All tokens of the view that do.
    base: Those that meet its other conditions, if it begins at a round or a position.
    latest: The last round at which it may begin, if it begins at one.
    context_start: A position in the context that splits them as well as its round.
    candidates: Samples with tokens that meet all conditions but those of chosen sets.
    common_values: Values of columns that the samples of a chosen set have in common.
    num_tokens, num_large: All of its tokens; those that differ by more than a factor of
        2.
    num_samples: Samples with tokens that exceed what is usual.
    share: Of the excess of the sum of |diff| over that of equally likely tokens; the
        tokens of better places do not count.
    ratio, low, high: Mean |diff| over that of equally likely tokens elsewhere; 95 %
        interval.
    p: p-value by permutation, corrected for all places that were searched: see
        `rounddiag.findings.permutation`. None for a place that is described only,
        because there are too few arrangements of its condition.
    log_likelihood_ratio: The scan statistic, in nats.
    """

    conditions: tuple[Condition, ...]
    scopes: frozenset[str] = frozenset()
    tokens: Array = field(repr=False)
    over: Array = field(repr=False)
    exceeding: Array = field(repr=False)
    base: Array = field(repr=False)
    candidates: Array = field(repr=False)
    latest: int | None = None
    context_start: int | None = None
    common_values: tuple[CommonValue, ...] = ()
    num_tokens: int
    num_large: int
    num_samples: int
    share: float
    ratio: float
    low: float
    high: float
    p: float | None
    log_likelihood_ratio: float

    @property
    def is_tested(self) -> bool:
        """Whether chance was tested, and does not explain it."""
        return self.p is not None

    @property
    def is_of_content(self) -> bool:
        """Whether a condition is about what was written, or where in a round."""
        names = {condition.column for condition in self.conditions}
        is_part = names & {"first_tokens", "last_tokens"} and "round" not in names
        return bool(names & {"role", "token_id", "application"} or is_part)

    @property
    def is_of_rounds(self) -> bool:
        """Whether all conditions are about rounds."""
        return {condition.column for condition in self.conditions} <= {"round"}

    def shares(self, other: Place) -> bool:
        """Return whether most of what exceeds the usual is in another place as well."""
        both = (self.over & other.over).sum()
        return bool(2 * both > max(self.over.sum(), other.over.sum()))

    @property
    def times(self) -> str:
        """The ratio with two digits or more, as every sentence writes it."""
        short = f"{self.ratio:.1f}"
        return short if float(short) < 10 else f"{self.ratio:,.0f}"  # noqa: PLR2004

    @property
    def text(self) -> str:
        """The conditions as a clause."""
        return ", ".join(condition.text for condition in self.conditions)


def places(
    batch: Batch | str | PathLike[str], *, a: str = "old", b: str = "rollout"
) -> pd.DataFrame:
    """Return where tokens differ more than equally likely tokens elsewhere, best first.

    Parameters
    ----------
    batch : Batch or path-like
    a, b : str
        The scores to compare: `old`, `rollout`, or a name in `batch.scores`.

    Returns
    -------
    DataFrame
        A row per place: `conditions` as text; `num_tokens`, `num_large` (beyond a
        factor of 2) and `num_samples`; `share` of the excess of sum |diff| without the
        tokens of the rows above; `ratio` of |diff| to that of equally likely tokens
        elsewhere, with its 95 % interval `low` to `high`; `p`, by permutation, at most
        1 / 200, and NaN for a place that is described only: its condition has too few
        arrangements to be tested. Empty with fewer than five samples.

    Notes
    -----
    A condition that varies between the samples of a group is permuted between them, one
    that is constant in groups between groups, and one that varies inside samples is
    rotated along them. A place of a role, a token id or a round is listed only if it
    also differs more than such places do in sound batches.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rd.places(rd.load("sample_data/image_window.parquet"))["conditions"].tolist()
    ['from round 2 on']
    """
    batch = open_measured(batch).require_batch()
    batch.require(*(score for score in (a, b) if score in ("old", "rollout")))
    usual = named_range(guess_kind(batch)[0])  # what `diagnose` judges by
    names = ["num_tokens", "num_large", "num_samples", "share", "ratio"]
    names += ["low", "high", "p"]
    rows = [
        {"conditions": place.text, **{name: getattr(place, name) for name in names}}
        for place in find_places(View.from_batch(batch, a, b, usual))
    ]
    return pd.DataFrame(rows, columns=["conditions", *names])


def find_places(view: View) -> tuple[Place, ...]:
    """Return the places of a view, best first; none with fewer than five clusters."""
    if "found_places" not in view.memo:
        view.memo["found_places"] = tuple(_search(view))
    return view.memo["found_places"]


def _search(view: View) -> Iterator[Place]:
    if not view.abs_diff.any() or _has_few(view):
        return
    search = _Search.of(view)
    for _ in range(MAX_PLACES):
        place = search.best_place()
        if place is None:
            return
        place = search.at_start(place)
        search = replace(search, searched=search.searched & ~place.tokens)
        yield _with_common_values(view, search.cells.columns, place)


def significant(view: View) -> Iterator[Place]:
    """Yield the places that chance does not explain, of any size, overlapping ones."""
    if _has_few(view):
        return
    search = _Search.of(view)
    trials = search.trials()
    nulls = Nulls(view, search.cells, search.searched, trials)
    for trial in trials:
        p = chance_of(nulls, trial)
        place = None if p is None or p > LEVEL else search.place(trial, LEVEL)
        if place is not None:
            yield place


def _has_few(view: View) -> bool:
    return view.num_samples < MIN_CLUSTERS


def clusters(view: View) -> Array:
    """Return the unit of the spread of counts: the group, or the sample of few."""
    group = view.facts.group
    if group is not None and len(np.unique(group)) >= MIN_CLUSTERS:
        return group[view.sample]
    return view.sample


@dataclass(frozen=True, eq=False)
class _Search:
    """A search among the tokens that are in no better place.

    Attributes
    ----------
    excesses: For each level, the tokens that exceed it: bool arrays.
    searched: bool array. The tokens that are searched.
    """

    view: View
    cells: Cells
    excesses: list[Array]
    searched: Array

    @classmethod
    def of(cls, view: View) -> _Search:
        """Take all columns of a view, and sets that its data choose."""
        excesses = find_excesses(view)
        columns = [*columns_of_tokens(view), *odd_id_columns(view, excesses)]
        columns += columns_of_sets(view, excesses, view.bin, columns)
        cells = Cells.from_columns(columns, view, clusters(view))
        return cls(view, cells, excesses, np.ones(len(view), dtype=bool))

    def best_place(self) -> Place | None:
        """Return the first place that chance does not explain, else an untested one.

        A better one of the same tokens says the same more exactly and is returned for
        it, unless the data chose its samples.
        """
        trials = self.trials()
        nulls = Nulls(self.view, self.cells, self.searched, trials)
        better: list[Trial] = []
        untested: Place | None = None
        for trial in trials:
            p = chance_of(nulls, trial)
            if p is not None and p <= LEVEL:
                place = self.large_place(trial, LEVEL)
                if place is not None:
                    others = (self.large_place(other, LEVEL) for other in better)
                    same = (other for other in others if other and place.shares(other))
                    return next(same, place)
            elif p is None and untested is None:
                untested = self.large_place(trial, None)
            elif not self.cells.selection_penalty(trial.parts):
                better.append(trial)
        return untested

    def trials(self) -> list[Trial]:
        """Return the slices to try, best first; of statistical ties the simpler one."""
        code = self.view.bin
        num_searched = np.maximum(np.bincount(code, weights=self.searched), 1)
        num_clusters = int(self.cells.cluster.max()) + 1
        trials: list[Trial] = []
        for exceeding in self.excesses:
            over = exceeding & self.searched
            if over.sum() < MIN_HITS:
                continue
            rate = np.bincount(code[over], minlength=len(num_searched)) / num_searched
            expected = np.where(self.searched, rate[code], 0.0)
            counts = Counts(self.cells.sums(over), self.cells.sums(expected), over)
            spread = counts.spread(self.cells.cluster, num_clusters)
            trials += [
                Trial(conjunction, counts, conjunction.gain / spread)
                for conjunction in find_slices(self.cells, counts, spread)
            ]
        highest = max((trial.gain for trial in trials), default=0.0)

        def order(trial: Trial) -> tuple[bool, tuple[int, int], float]:
            is_tied = trial.gain > highest - SUPPORT
            rank = self.cells.rank(trial.parts) if is_tied else (0, 0)
            return not is_tied, rank, -trial.gain

        first: dict[tuple[Part, ...], Trial] = {}
        for trial in sorted(trials, key=order):
            first.setdefault(trial.parts, trial)
        return list(first.values())[:_TRIED]

    def large_place(self, trial: Trial, p: float | None) -> Place | None:
        """Return the place of a trial; None if it is no larger than sound ones."""
        place = self.place(trial, p)
        if place is None:
            return None
        if place.ratio < max(_MIN_RATIO[scope] for scope in place.scopes):
            return None
        view = self.view
        if p is None and view.abs_diff[place.tokens].mean() < view.usual.usual:
            return None
        columns = {condition.column for condition in place.conditions}
        low = place.low if np.isfinite(place.low) else place.ratio
        if low < _FAR and self.cells.selection_penalty(trial.parts) > 0:
            return None
        # The number of a step, in rows that were not joined, is that of a round.
        steps = {*STEP_COLUMNS} if place.scopes == {"round"} else set()
        is_along = columns <= ALONG | steps
        is_far = is_along and trial.gain > FAR_GAIN and low > _FAR
        if is_far or trial.gain > SURE or not self._is_small(place):
            return place
        return None

    def _is_small(self, place: Place) -> bool:
        """Return whether a place is no larger than what sound engines differ by.

        In a sound mixture of experts the first tokens of rounds, or one id, differ five
        times as much as equally likely others; in text, later rounds differ more.
        """
        view = self.view
        inside = float(view.abs_diff[place.tokens].mean())
        if "sample" in place.scopes:
            return inside < float(view.abs_diff[self.searched & ~place.tokens].mean())
        is_of_tokens = "token" in place.scopes
        return inside < (view.usual.limit if is_of_tokens else view.usual.usual)

    def place(self, trial: Trial, p: float | None) -> Place | None:
        """Return the place of a trial, of any size; None if hardly any are outside."""
        cells = self.cells
        tokens = cells.of_tokens(select_cells(cells, trial.parts)) & self.searched
        outside = self.searched & ~tokens
        is_nearly_all = outside.sum() < (1 - MOST) * self.searched.sum()
        if trial.conjunction.hits < MIN_HITS or is_nearly_all:
            return None
        plain = [part for part in trial.parts if not cells.selection_penalty([part])]
        columns = [cells.columns[index] for index, _, _ in trial.parts]
        others = [
            part for part in trial.parts if cells.columns[part[0]].name not in _LENGTHS
        ]
        return Place(
            conditions=sort_for_sentence(
                cells.columns[index].condition(relation, code)
                for index, relation, code in trial.parts
            ),
            # The number of rounds is about rounds.
            scopes=frozenset(
                "round" if column.name == "num_rounds" else column.scope
                for column in columns
            ),
            base=cells.of_tokens(select_cells(cells, others)) & self.searched,
            candidates=np.unique(cells.sample[select_cells(cells, plain)]),
            p=p,
            log_likelihood_ratio=trial.gain,
            exceeding=trial.counts.over,
            **self._numbers(tokens, trial.counts.over),
        )

    def _numbers(self, tokens: Array, over: Array) -> dict[str, Any]:
        view = self.view
        size, usual = usual_size(view, self.searched & ~tokens)
        cluster = clusters(view)[tokens]
        ratio, low, high = measure_ratio(size[tokens], usual[tokens], cluster)
        excess = float((size[tokens] - usual[tokens]).sum())
        whole = max(float((size - usual)[self.searched].sum()), excess)
        over = over & tokens
        return {
            "tokens": tokens,
            "over": over,
            "num_tokens": int(tokens.sum()),
            "num_large": int((view.abs_diff[tokens] > FACTOR_2).sum()),
            "num_samples": int((np.bincount(view.sample[over]) > 0).sum()),
            "share": excess / whole if whole > 0 else 0.0,
            "ratio": ratio,
            "low": low,
            "high": high,
        }

    def at_start(self, place: Place) -> Place:
        """Return a place that begins at a round or position from where it begins."""
        view = self.view
        begins = _start_condition(place)
        if begins is None or begins.relation == "<=":
            return place
        latest, start = start_of(view, place), find_start(view, place.base)
        is_one_round = latest is None and begins.column == "round"
        if is_one_round or (latest is None and start is None):
            return place
        if start is None or start.column == "round":
            if any(c.column == "num_rounds" for c in place.conditions):
                return place
            if start is not None:
                place = replace(place, context_start=start.tied)
            latest = latest or (0 if start is None else start.value)
            size, usual = usual_size(view, self.searched & ~place.tokens)
            total, expected = (
                np.bincount(view.round, values * place.base) for values in (size, usual)
            )
            first = int(first_rounds(total, expected, latest)[0])
            start = Start("round", first)
            place = replace(place, latest=latest)
        tokens = place.base & (columns_of_starts(view)[start.column] >= start.value)
        text = phrase(start.column, ">=", start.value)
        others = (c for c in place.conditions if c.column not in _LENGTHS)
        conditions = (*others, Condition(start.column, ">=", start.value, text))
        numbers = self._numbers(tokens, place.exceeding)
        return replace(place, conditions=sort_for_sentence(conditions), **numbers)


def _start_condition(place: Place) -> Condition | None:
    starts = [c for c in place.conditions if c.column in START_COLUMNS]
    return starts[0] if len(starts) == 1 else None


def start_of(view: View, place: Place) -> int | None:
    """Return the round from which on a place is, if it is about one; else None."""
    only = _start_condition(place)
    if only is None or only.column != "round":
        return None
    value, last = int(str(only.value)), int(view.round.max())
    if only.relation == "<=" or (only.relation == "=" and value < last):
        return None
    return value or None


def _with_common_values(
    view: View, columns: list[ColumnOfTokens], place: Place
) -> Place:
    """Name a set of samples by the values that they have in common.

    A value that all samples with tokens there have, and no others, or whole groups,
    replace a list of samples; other values are said beside the set.
    """
    at = [
        index
        for index, condition in enumerate(place.conditions)
        if condition.column in SAMPLE_SETS
    ]
    if not at:
        return place
    common = find_common_values(
        view,
        [column for column in columns if not column.selection_penalty],
        tokens=place.tokens,
        over=place.over,
        candidates=place.candidates,
    )
    conditions = [*place.conditions]
    name = conditions[at[0]]
    exact = [value.condition for value in common if value.is_whole]
    if name.column in LISTS and exact:
        name = exact[0]
    else:
        if name.column in LISTS:
            name = _as_whole_groups(view, place) or name
        text = ", ".join([name.text, *(value.text for value in common)])
        name = replace(name, text=text)
    conditions[at[0]] = name
    return replace(
        place, common_values=common, conditions=sort_for_sentence(conditions)
    )


def _as_whole_groups(view: View, place: Place) -> Condition | None:
    group = view.facts.group
    if group is None:
        return None
    samples, chosen = np.unique(view.sample), np.unique(view.sample[place.tokens])
    groups = np.unique(group[chosen])
    if len(groups) == len(chosen) or np.isin(group[samples], groups).sum() > len(
        chosen
    ):
        return None
    text = f"in {pluralize(len(groups), 'whole group')}"
    return Condition(GROUPS, "=", len(groups), text, text)


def measure_ratio(
    size: Array, usual: Array, cluster: Array
) -> tuple[float, float, float]:
    """Return the ratio of |diff| to the usual, with its interval over clusters."""
    ratio = float(size.sum() / usual.sum())
    rest = np.bincount(cluster, weights=size - ratio * usual)
    rest = rest[np.bincount(cluster) > 0]
    num = len(rest)
    if num < MIN_CLUSTERS:
        return ratio, float("nan"), float("nan")
    error = np.sqrt((rest**2).sum() * num / (num - 1)) / usual.sum()
    reach = float(stdtrit(num - 1, 0.975)) * error
    return ratio, max(ratio - reach, 0.0), ratio + reach
