"""Places: subgroups of tokens, defined by conditions on columns, that differ more.

A token's |diff| is measured in units of what is usual at its probability. A place is a
set of tokens that exceed 3, 10 or 40 such units more often than all others do, found
by a search over conjunctions of up to three conditions. The statistic is Kulldorff's
scan statistic (Commun. Stat. 26(6), 1997), divided by the spread between samples; the
search over conjunctions is slice finding (SliceLine, SIGMOD 2021), as a beam. Whether
chance explains a place is decided by permutation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns.phrases import Named
from rounddiag.columns.predicates import Condition, sort_for_sentence
from rounddiag.findings.bins import group_by_bin, mean_by_bin
from rounddiag.findings.common_values import CommonValue, find_common_values
from rounddiag.findings.conditions import (
    WORKERS,
    ColumnOfTokens,
    columns_of_tokens,
    token_id_column,
)
from rounddiag.findings.permutation import LEVEL, Chance
from rounddiag.findings.reference import guess_kind, named_range
from rounddiag.findings.sample_sets import (
    GROUPS,
    LISTS,
    OWN_START,
    columns_of_sets,
)
from rounddiag.findings.slices import (
    MOST,
    Cells,
    Counts,
    Slice,
    find_slices,
    scan,
    select_cells,
)
from rounddiag.findings.view import LARGEST_DIFF, ROUNDING, View
from rounddiag.stats.inputs import open_measured
from rounddiag.stats.intervals import MIN_CLUSTERS
from rounddiag.wording import pluralize

# |diff| at which two engines differ by a factor of 2.
FACTOR_2 = float(np.log(2))
# A token exceeds its usual |diff| by one of these factors: many small excesses and few
# large ones are different places.
_LEVELS = (3.0, 10.0, 40.0)
_SOFT = 0.01  # of 1 - p: below, rounding is the larger part of |diff|
_NORMAL = 5.37  # median over 10 % quantile of the size of normal noise
_MAX_IDS, _MIN_OF_ID, _ID_SPREADS = 24, 5, 3.0
_MAD = 0.6745  # median absolute deviation of a standard normal
MIN_HITS = 6
# Limits of size, from the sound batches of the benches: the largest of their places
# that chance does not explain (`python -m tests.faults.permutation --sizes`). Roles,
# ids and rounds differ by nature in text, and single tokens in sound mixtures.
# Gain from which a small place counts too; at most 86 in sound mixtures. With 50, 5 of
# 40 sound batches of vLLM alarm; 200 changes nothing (`tests.faults.bench --set`).
SURE = 100.0
# |diff| of a place, in multiples of that of equally likely tokens elsewhere: at least
# twice; rounds of sound batches reach 2.07 with a gain of 38, samples 1.28.
_MIN_RATIO = {"token": 2.0, "round": 1.7, "sample": 1.4}
# A place along samples counts too from this ratio on, the lower end of its interval. A
# set of samples that the data choose must be as far: rounded values have one at 1.3.
ALONG = {"round", "images_seen", "num_rounds", "last_round", "decoding_step"}
ALONG |= {"context_length"}
_FAR, FAR_GAIN = 2.0, 20.0
MAX_PLACES = 4
# Nats of log-likelihood: slices nearer to the best are in its 95 % support interval.
SUPPORT = 1.92
_TRIED = 12


# Sets of samples that the data chose: what they have in common is looked for.
SAMPLE_SETS = LISTS | {OWN_START}


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """A set of tokens that differ more than equally likely tokens elsewhere.

    Attributes
    ----------
    scopes: What the conditions are about.
    tokens: Its tokens in the view.
    over: Those that exceed what is usual.
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
    candidates: Array = field(repr=False)
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
        names = {one.column for one in self.conditions}
        is_part = names & {"first_tokens", "last_tokens"} and "round" not in names
        return bool(names & {"role", "token_id", "application"} or is_part)

    @property
    def worker(self) -> Condition | None:
        """The worker that has all of it, such as `rank = 3`; None if none is known.

        A condition of the place, or a value that its samples have in common: then not
        all samples of the worker need to be affected.
        """
        common = [value.condition for value in self.common_values]
        named = [one for one in (*self.conditions, *common) if one.relation == "="]
        workers = (one for one in named if WORKERS.search(one.column))
        return next(workers, None)

    @property
    def is_of_rounds(self) -> bool:
        """Whether all conditions are about rounds."""
        return {one.column for one in self.conditions} <= {"round"}

    @property
    def text(self) -> str:
        """The conditions as a clause."""
        return ", ".join(one.text for one in self.conditions)


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
    import pandas as pd

    from rounddiag.findings.view import View

    batch = open_measured(batch).require_batch()
    batch.require(*(one for one in (a, b) if one in ("old", "rollout")))
    usual = named_range(guess_kind(batch)[0])  # what `diagnose` judges by
    found = find_places(View.from_batch(batch, a, b, usual))
    names = ["num_tokens", "num_large", "num_samples", "share", "ratio"]
    names += ["low", "high", "p"]
    rows = [
        {"conditions": one.text, **{name: getattr(one, name) for name in names}}
        for one in found
    ]
    return pd.DataFrame(rows, columns=["conditions", *names])


def find_places(view: View) -> tuple[Place, ...]:
    """Return the places of a view, best first; none with fewer than five clusters."""
    if "found_places" not in view.memo:
        view.memo["found_places"] = tuple(_search(view))
    found: tuple[Place, ...] = view.memo["found_places"]
    return found


def _search(view: View) -> Iterator[Place]:
    if len(view) == 0 or not view.abs_diff.any():
        return
    if (view.num_per_sample > 0).sum() < MIN_CLUSTERS:
        return
    excesses, cells = _prepare(view)
    inside = np.zeros(len(view), dtype=bool)
    for _ in range(MAX_PLACES):
        found = _best(view, excesses, cells, ~inside)
        if found is None:
            return
        inside |= found.tokens
        yield _with_common_values(view, cells.columns, found)


def significant(view: View) -> Iterator[Place]:
    """Yield the places that chance does not explain, of any size, overlapping ones."""
    if (view.num_per_sample > 0).sum() < MIN_CLUSTERS:
        return
    excesses, cells = _prepare(view)
    there = np.ones(len(view), dtype=bool)
    found = _slices(view, excesses, cells, there)
    chance = Chance(view, cells, there, [(one, counts) for _, one, counts in found])
    for gain, one, counts in found:
        if chance.is_significant(one, counts):
            place = _measure(view, cells, there, one, counts, gain, LEVEL)
            if place is not None:
                yield place


def _prepare(view: View) -> tuple[list[Array], Cells]:
    """Return the tokens that exceed each level, and the cells of all columns."""
    excesses = _excesses(view)
    columns = columns_of_tokens(view)
    columns += _columns_of_ids(view, excesses)
    columns += columns_of_sets(view, excesses, view.bin, columns)
    return excesses, Cells.from_columns(columns, view, clusters(view))


def clusters(view: View) -> Array:
    """Return the unit of the spread of counts: the group, or the sample of few."""
    group = view.facts.group
    if group is not None and len(np.unique(group)) >= MIN_CLUSTERS:
        return group[view.sample]
    return view.sample


def _excesses(view: View) -> list[Array]:
    """Return, for each level, the tokens that exceed it.

    The unit is the median of equally likely tokens. Where most tokens are at fault, it
    is too large, and the unit of those that agree best counts as well.
    """
    weight = np.sqrt(np.expm1(np.minimum(view.log_prob_b, 0.0)) ** 2 + _SOFT**2)
    size = np.minimum(view.abs_diff, 2 * LARGEST_DIFF) / weight
    code = view.bin
    groups = group_by_bin(code, int(code.max()) + 1)
    low, middle = np.array(
        [np.quantile(size[tokens], (0.1, 0.5)) for tokens in groups]
    ).T
    found = [size > level * _bound_units(middle)[code] for level in _LEVELS]
    quiet = _NORMAL * low
    if np.median(quiet) < np.median(middle) / _LEVELS[0]:
        unit = _bound_units(quiet)[code]
        found += [size > level * unit for level in _LEVELS[:2]]
    return found


def _bound_units(units: Array) -> Array:
    """Return units of bins, none far below the others."""
    bounded: Array = np.maximum(units, max(0.3 * float(np.median(units)), ROUNDING))
    return bounded


def _columns_of_ids(view: View, excesses: list[Array]) -> list[ColumnOfTokens]:
    """Return the column of the ids that exceed the usual most often.

    Ids differ by nature: one counts if it is far outside of their spread.
    """
    if view.batch.response_ids is None:
        return []
    known, code = view.distinct_ids
    num = np.bincount(code)
    size = np.minimum(view.abs_diff, LARGEST_DIFF)
    usual = np.bincount(code, weights=view.of_equally_likely(size))
    ratio = np.log(np.bincount(code, weights=size) + 1e-12) - np.log(usual + 1e-12)
    often = ratio[num >= _MIN_OF_ID]
    if not len(often):
        return []
    middle = float(np.median(often))
    spread = float(np.median(np.abs(often - middle))) / _MAD
    is_odd = (ratio - middle > _ID_SPREADS * spread) & (num >= _MIN_OF_ID)
    chosen: set[int] = set()
    for over in excesses:
        hits = np.bincount(code[over], minlength=len(known)).astype(float)
        gain = scan(hits, num * (hits.sum() / len(view)), hits.sum(), hits.sum())
        gain[~is_odd | (hits < _MIN_OF_ID)] = 0.0
        best = np.argsort(-gain)[: _MAX_IDS // len(excesses)]
        chosen |= {int(known[one]) for one in best if gain[one] > 0}
    if not chosen:
        return []
    return [token_id_column(view, np.array(sorted(chosen)))]


def _best(
    view: View, excesses: list[Array], cells: Cells, there: Array
) -> Place | None:
    """Return the best place among the remaining tokens, or None."""
    found = _slices(view, excesses, cells, there)
    chance = Chance(view, cells, there, [(one, counts) for _, one, counts in found])
    return _first_significant(
        (
            chance.is_significant(one, counts),
            cells.selection_penalty(one.parts) > 0,
            partial(_place, view, cells, there, one, counts, gain),
        )
        for gain, one, counts in found
    )


def _slices(
    view: View, excesses: list[Array], cells: Cells, there: Array
) -> list[tuple[float, Slice, Counts]]:
    """Return the slices to try, with the gain and the counts of each."""
    code = view.bin
    num_clusters = int(cells.cluster.max()) + 1
    found: list[tuple[float, Slice, Counts]] = []
    for exceeding in excesses:
        over = exceeding & there
        if over.sum() < MIN_HITS:
            continue
        rate = np.bincount(code, weights=over) / np.maximum(
            np.bincount(code, weights=there), 1
        )
        counts = Counts(
            cells.sums(over), cells.sums(np.where(there, rate[code], 0.0)), over
        )
        spread = counts.spread(cells.cluster, num_clusters)
        found += [
            (one.gain / spread, one, counts)
            for one in find_slices(cells, counts, spread)
        ]
    return _sort_by_gain(found, cells)


def _sort_by_gain(
    found: list[tuple[float, Slice, Counts]], cells: Cells
) -> list[tuple[float, Slice, Counts]]:
    """Sort slices by gain; break statistical ties in favour of the simpler one."""
    if not found:
        return []
    best = max(gain for gain, _, _ in found)
    found.sort(
        key=lambda one: (
            (0.0, cells.rank(one[1].parts), -one[0])
            if one[0] > best - SUPPORT
            else (1.0, (0, 0), -one[0])
        )
    )
    seen: dict[tuple[tuple[int, str, int], ...], tuple[float, Slice, Counts]] = {}
    for one in found:
        seen.setdefault(one[1].parts, one)
    return list(seen.values())[:_TRIED]


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
    """Return the condition of a set that consists of whole groups; else None."""
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
    return Condition(GROUPS, "=", Named(len(groups), text), text)


def _first_significant(
    found: Iterable[tuple[bool | None, bool, Callable[[float | None], Place | None]]],
) -> Place | None:
    """Return the first place that chance does not explain, else the first untested one.

    A better one of the same tokens says the same more exactly and is returned for it,
    unless the data chose its samples.
    """
    better: list[Callable[[float | None], Place | None]] = []
    untested: Place | None = None
    for is_significant, is_chosen, measure_place in found:
        if is_significant:
            one = measure_place(LEVEL)
            if one is not None:
                others = (measure_other(LEVEL) for measure_other in better)
                same = (other for other in others if other and _is_same(one, other))
                return next(same, one)
        elif is_significant is None and untested is None:
            untested = measure_place(None)
        elif not is_chosen:
            better.append(measure_place)
    return untested


def _is_same(one: Place, other: Place) -> bool:
    both = (one.over & other.over).sum()
    return bool(2 * both > max(one.over.sum(), other.over.sum()))


def _place(
    view: View,
    cells: Cells,
    there: Array,
    one: Slice,
    counts: Counts,
    gain: float,
    p: float | None,
) -> Place | None:
    """Return the place of a slice; None if it is no larger than sound ones."""
    found = _measure(view, cells, there, one, counts, gain, p)
    if found is None or found.ratio < max(_MIN_RATIO[scope] for scope in found.scopes):
        return None
    if p is None and view.abs_diff[found.tokens].mean() < view.usual.usual:
        return None
    names = {condition.column for condition in found.conditions}
    least = found.low if np.isfinite(found.low) else found.ratio
    if least < _FAR and cells.selection_penalty(one.parts) > 0:
        return None
    is_far = names <= ALONG and gain > FAR_GAIN and least > _FAR
    is_small = _is_small(view, found, there) and not is_far and gain <= SURE
    return None if is_small else found


def _measure(
    view: View,
    cells: Cells,
    there: Array,
    one: Slice,
    counts: Counts,
    gain: float,
    p: float | None,
) -> Place | None:
    """Return the place of a slice, of any size; None if hardly a token is outside."""
    inside = select_cells(cells, one.parts)
    tokens = np.repeat(inside, np.diff(np.r_[cells.first, len(view)])) & there
    outside = there & ~tokens
    if one.hits < MIN_HITS or outside.sum() < (1 - MOST) * there.sum():
        return None
    size, usual = usual_size(view, outside)
    ratio, low, high = _ratio(size[tokens], usual[tokens], clusters(view)[tokens])
    excess = float((size[tokens] - usual[tokens]).sum())
    whole = max(float((size - usual)[there].sum()), excess)
    over = counts.over & tokens
    others = [part for part in one.parts if not cells.selection_penalty([part])]
    return Place(
        conditions=sort_for_sentence(
            cells.columns[index].condition(relation, code)
            for index, relation, code in one.parts
        ),
        scopes=frozenset(_nature(cells.columns[index]) for index, _, _ in one.parts),
        tokens=tokens,
        over=over,
        candidates=np.unique(cells.sample[select_cells(cells, others)]),
        num_tokens=int(tokens.sum()),
        num_large=int((view.abs_diff[tokens] > FACTOR_2).sum()),
        num_samples=int((np.bincount(view.sample[over]) > 0).sum()),
        share=excess / whole if whole > 0 else 0.0,
        ratio=ratio,
        low=low,
        high=high,
        p=p,
        log_likelihood_ratio=gain,
    )


def usual_size(view: View, outside: Array) -> tuple[Array, Array]:
    """Return |diff| of each token, and that of equally likely tokens outside."""
    size = np.minimum(view.abs_diff, LARGEST_DIFF)
    usual = mean_by_bin(view.log_prob_b[outside], size[outside], view.log_prob_b)
    return size, np.maximum(usual, ROUNDING)


def _is_small(view: View, place: Place, there: Array) -> bool:
    """Return whether a place is no larger than what sound engines differ by.

    In a sound mixture of experts the first tokens of rounds, or one id, differ five
    times as much as equally likely others; in text, later rounds differ more.
    """
    inside = float(view.abs_diff[place.tokens].mean())
    if "sample" in place.scopes:
        return inside < float(view.abs_diff[there & ~place.tokens].mean())
    return inside < (view.usual.limit if "token" in place.scopes else view.usual.usual)


def _nature(column: ColumnOfTokens) -> str:
    """Return what a column is about; the number of rounds is about rounds."""
    return "round" if column.name == "num_rounds" else column.scope


def _ratio(size: Array, usual: Array, cluster: Array) -> tuple[float, float, float]:
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
