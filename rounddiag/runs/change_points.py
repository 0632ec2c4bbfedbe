r"""Change points: steps at which a round's mismatch changes, and growth over steps.

A series of means is described by one level, by another level from step `i` to step `j`
(one of which may be an end of the series), or by a straight line. The statistic is the
variance that the best `i` and `j`, or the line, explain, over what remains. Its p value
is the share of random orders with a statistic as large: the permutation test of
circular binary segmentation (A. B. Olshen, E. S. Venkatraman, R. Lucito and M. Wigler,
2004). A series with two levels is split at `i` and `j`, and its parts are searched
again.

Means of neighbouring steps may be correlated, and then their order is not random. The
search is therefore over :math:`x_t - \rho x_{t-1}` (Prais and Winsten, 1954), with one
:math:`\rho` for all rounds of the run, that of `serial_correlation`. A change must be
larger to be found in correlated means.

Fewer than 16 steps have too few orders: of 6, 1 in 10 has its largest means at one end.
There the largest difference of neighbours is compared with the others. A level that
wanders has large differences too, so the others are taken as draws of Student's t with
3 degrees of freedom, the fewest whose variance is finite. The mean of all rounds is
tested first, since rounds often change together; where it jumps, each round is tested
at that step alone.

Changes of several rounds at neighbouring steps are a break of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy.special import stdtr

from rounddiag._typing import Array
from rounddiag.core.divergence import get_measure
from rounddiag.runs.serial_correlation import serial_correlation
from rounddiag.schema import CHANGES, METRICS
from rounddiag.wording import with_minus

# How often a run without a change shows one in any of its rounds, at most.
ALPHA = 0.01
# Fewer steps on one side of a change are a spike, not a level.
MIN_STEPS = 3
# Fewer steps have too few orders for a p value below `ALPHA` in one of some rounds.
_FEW_STEPS = 16
# Degrees of freedom of the differences in so few steps; and draws: a p value of 0.001
# then has a standard error of a tenth.
_FREEDOM, _NUM_DRAWS = 3, 2000
# A smaller factor between two levels is no finding, however sure it is.
MIN_FACTOR = 1.5
# |diff| below this is as good as none, in nats.
_FLOOR = 1e-6
# Longer series are searched as means of neighbouring steps, then step by step.
_MAX_LENGTH = 100  # steps
_MIN_ORDERS = 1999  # random orders of a series: p-values down to 1 / 2000
# Orders whose statistics are computed at a time, which bounds the memory.
_AT_ONCE = 250


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change in a series: `step` or `growth`.

    Attributes
    ----------
    index: Of the first value after the change; of growth, of the first value.
    start, stop: The part of the series that was searched.
    """

    kind: str
    index: int
    start: int
    stop: int
    p_value: float


def find_changes(summary: pd.DataFrame, *, metric: str = "abs_diff") -> pd.DataFrame:
    """Find the steps at which the mean of a round changes.

    Step 0 is left out: before the first update, the level is another one. So are rounds
    that fewer than half of the steps have.

    Notes
    -----
    `tests/benchmarks/change_points.py` counts false alarms on runs without a change,
    and planted changes that are found. In fewer than 16 steps, only a jump that is far
    larger than all other differences of neighbours is found.
    """
    later = summary[(summary["step"] > 0) & summary["mean"].notna()]
    is_signed = get_measure(metric).is_signed
    table = later.pivot_table(index="step", columns="round", values="mean")
    table = table.loc[:, table.count() >= len(table) / 2]
    means = [(round_, series.dropna()) for round_, series in table.items()]
    scaled = [
        known.to_numpy() if is_signed else np.log(np.maximum(known.to_numpy(), _FLOOR))
        for _, known in means
    ]
    is_short = table.shape[0] < _FEW_STEPS
    if is_short:
        jumps = _find_jumps(scaled, len(table))
    else:
        rho, alpha = serial_correlation(scaled), ALPHA / max(len(means), 1)
        jumps = [
            segment(searched, alpha, rho)
            if len(searched) >= _FEW_STEPS
            else find_jump(searched, alpha)
            for searched in scaled
        ]
    rows = []
    for (round_, known), changes in zip(means, jumps, strict=True):
        values = known.to_numpy()
        for change in changes:
            before, after = _levels(values, change)
            small = max(before, after) < MIN_FACTOR * max(min(before, after), _FLOOR)
            if small and not is_signed:
                continue
            rows.append(
                {
                    "step": known.index[change.index],
                    "round": round_,
                    "change": change.kind,
                    "before": before,
                    "after": after,
                    "p_value": change.p_value,
                }
            )
    frame = pd.DataFrame(rows, columns=[*CHANGES.dtypes]).astype(CHANGES.dtypes)
    return frame.sort_values(["step", "round"], ignore_index=True)


def _levels(values: Array, change: Change) -> tuple[float, float]:
    part = values[change.start : change.stop]
    if change.kind == "step":
        split = change.index - change.start
        before, after = part[:split], part[split:]
    else:
        quarter = max(len(part) // 4, 1)
        before, after = part[:quarter], part[-quarter:]
    return float(np.median(before)), float(np.median(after))


def _find_jumps(series: Sequence[Array], num_steps: int) -> list[list[Change]]:
    """Find a jump of each series, alone or with the mean of those that have all steps.

    Both ways together raise a false alarm in `ALPHA` of all runs.
    """
    whole = [values for values in series if len(values) == num_steps]
    if len(whole) <= 1:  # the mean is the series itself
        return [find_jump(values, ALPHA / len(series)) for values in series]
    shared = find_jump(np.mean(whole, axis=0), ALPHA / 2)
    jumps = []
    for values in series:
        jump = find_jump(values, ALPHA / 2 / len(series))
        if shared and not jump and len(values) == num_steps:
            jump = find_jump(values, ALPHA, at=shared[0].index)
        jumps.append(jump)
    return jumps


def find_jump(values: Array, alpha: float, at: int | None = None) -> list[Change]:
    """Find a difference of neighbours that is larger than all others, if there is one.

    With `at`, only the one before that value can be it.

    Examples
    --------
    >>> find_jump(np.array([0.0, 0.02, 0.01, 3.0, 3.01, 2.99]), 0.01)[0].index
    3
    """
    places = np.arange(MIN_STEPS, len(values) - MIN_STEPS + 1)
    if at is not None:
        places = places[places == at]
    if len(places) == 0:
        return []
    rises = np.square(np.diff(values))
    index = int(places[rises[places - 1].argmax()])
    largest, num_others = rises[index - 1], len(rises) - 1
    others = max((rises.sum() - largest) / num_others, _FLOOR**2)
    sizes = np.sqrt(largest / others) * _simulate_sizes(num_others)
    tail = float(stdtr(_FREEDOM, -sizes).mean())
    p_value = min(2 * tail * len(places), 1.0)
    change = Change(
        kind="step", index=index, start=0, stop=len(values), p_value=p_value
    )
    return [change] if p_value <= alpha else []


@lru_cache(maxsize=_FEW_STEPS)
def _simulate_sizes(num: int) -> Array:
    draws = np.random.default_rng(0).standard_t(_FREEDOM, size=(_NUM_DRAWS, num))
    return np.sqrt(np.square(draws).mean(axis=1))


def segment(values: Array, alpha: float, rho: float = 0.0) -> list[Change]:
    """Find the changes of a series, in order; each is narrowed by its neighbours.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> values = rng.normal(size=60) + 5 * (np.arange(60) >= 40)
    >>> [(change.kind, change.index) for change in segment(values, 0.01)]
    [('step', 40)]
    """
    values = np.append((1 - rho) * values[:1], values[1:] - rho * values[:-1])
    size = max(1, -(-len(values) // _MAX_LENGTH))
    starts = np.arange(0, len(values), size)
    means = np.array([values[start : start + size].mean() for start in starts])
    changes = sorted(_split(means, 0, alpha), key=lambda change: change.index)
    steps = [change for change in changes if change.kind == "step"]
    cuts = [0, *(size * change.index for change in steps), len(values)]
    for place in range(1, len(cuts) - 1) if size > 1 else ():
        low = max(cuts[place - 1], cuts[place] - 2 * size)
        high = min(cuts[place + 1], cuts[place] + 2 * size)
        cuts[place] = low + _best_cut(values[low:high])
    narrowed = [
        replace(change, start=start, index=index, stop=stop)
        for change, start, index, stop in zip(
            steps, cuts, cuts[1:], cuts[2:], strict=False
        )
    ]
    for growth in (change for change in changes if change.kind == "growth"):
        start, stop = size * growth.start, min(size * growth.stop, len(values))
        narrowed.append(replace(growth, start=start, index=start, stop=stop))
    return sorted(narrowed, key=lambda change: change.index)


def _best_cut(values: Array) -> int:
    centred = values - values.mean()
    left = np.arange(1, len(values))
    between = np.square(centred.cumsum()[:-1]) / (left * (len(values) - left))
    return int(between.argmax()) + 1


def _split(values: Array, offset: int, alpha: float) -> Iterator[Change]:
    """Search a series, then its parts.

    One cut or a line is tried before two cuts: a random order seldom has another level
    at one of its ends, so that a change is found after fewer steps.
    """
    num = len(values)
    if num < 2 * MIN_STEPS or not np.ptp(values):
        return
    for candidates in (_Parts.at_an_end(num), _Parts.inside(num)):
        if len(candidates.low) == 0:
            continue
        cuts, p_value = candidates.test(values, alpha / 2)
        if p_value <= alpha / 2:
            break
    else:
        return
    kind = "step" if cuts else "growth"
    for cut in cuts or [0]:
        yield Change(
            kind=kind,
            index=offset + cut,
            start=offset,
            stop=offset + num,
            p_value=p_value,
        )
    if not cuts:
        return
    for low, high in pairwise([0, *cuts, num]):
        yield from _split(values[low:high], offset + low, alpha)


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Parts of a series that may have a level of their own: from `low` to `high`."""

    num: int
    low: Array
    high: Array
    has_line: bool

    @classmethod
    def at_an_end(cls, num: int) -> _Parts:
        """List the parts that end the series: one cut."""
        low = np.arange(MIN_STEPS, num - MIN_STEPS + 1)
        return cls(num=num, low=low, high=np.full(len(low), num), has_line=True)

    @classmethod
    def inside(cls, num: int) -> _Parts:
        """List the parts with two cuts; no level is shorter than `MIN_STEPS`."""
        low, high = np.triu_indices(num + 1, MIN_STEPS)
        is_inside = (low >= MIN_STEPS) & (high <= num - MIN_STEPS)
        return cls(num=num, low=low[is_inside], high=high[is_inside], has_line=False)

    def test(self, values: Array, alpha: float) -> tuple[list[int], float]:
        """Return the cuts of the best part, none for a line, and the p value.

        A p value that is larger than `alpha` for certain is returned as 1.
        """
        shares, line, place = self._statistics(values[None])
        is_line = self.has_line and line[0] > shares[0]
        ends = (int(self.low[place[0]]), int(self.high[place[0]]))
        cuts = [] if is_line else [cut for cut in ends if cut < self.num]
        value = (line if is_line else shares)[0]
        generator = np.random.default_rng(0)
        num_orders = max(_MIN_ORDERS, int(np.ceil(4 / alpha)))
        num_as_large = 0
        for start in range(0, num_orders, _AT_ONCE):
            size = min(_AT_ONCE, num_orders - start)
            orders = generator.permuted(np.tile(values, (size, 1)), axis=1)
            random, of_line, _ = self._statistics(orders)
            if self.has_line:
                random = np.maximum(random, of_line)
            num_as_large += int((random >= value).sum())
            if num_as_large + 1 > alpha * (num_orders + 1):
                return cuts, 1.0
        return cuts, (1 + num_as_large) / (1 + num_orders)

    def _statistics(self, series: Array) -> tuple[Array, Array, Array]:
        """Return explained over remaining variance, of each series.

        Of the best part, and of a straight line; and which part is best.
        """
        centred = series - series.mean(axis=1, keepdims=True)
        total = np.square(centred).sum(axis=1)
        sums = np.pad(centred.cumsum(axis=1), ((0, 0), (1, 0)))
        length = self.high - self.low
        weight = self.num / (length * (self.num - length))
        between = np.square(sums[:, self.high] - sums[:, self.low]) * weight
        place = between.argmax(axis=1)
        best = between[np.arange(len(series)), place]
        time = np.arange(self.num) - (self.num - 1) / 2
        line = np.square(centred @ time) / np.square(time).sum()
        share, of_line = (
            part / np.maximum(total - part, 1e-12 * total) for part in (best, line)
        )
        return share, of_line, place


# Changes of neighbouring steps are one break.
_NEAR = 2


@dataclass(frozen=True, kw_only=True)
class Break:
    """A step at which the level of some rounds changes.

    Attributes
    ----------
    step: The first step of the new level.
    previous: The step before it.
    largest: The round that changes most.
    before, after: Its levels.
    """

    step: int
    previous: int
    rounds: tuple[int, ...]
    largest: int
    before: float
    after: float
    metric: str

    def __str__(self) -> str:
        unit = METRICS[self.metric].unit
        largest = f" round {self.largest} most:" if len(self.rounds) > 1 else ""
        levels = with_minus(f"{self.before:.3g} to {self.after:.3g}")
        return (
            f"from step {self.step:,}: {name_rounds(self.rounds)},{largest} {levels}"
            + (f" {unit}" if unit else "")
        )


def find_breaks(
    changes: pd.DataFrame, steps: Sequence[int], *, metric: str = "abs_diff"
) -> list[Break]:
    """Join the changes of several rounds at neighbouring steps."""
    place = {step: index for index, step in enumerate(steps)}
    at_step = changes[changes["change"] == "step"]
    parts = (at_step["step"].map(place).diff() > _NEAR).cumsum().to_numpy()
    breaks = []
    for _, part in at_step.groupby(parts, sort=True):
        step = int(part["step"].mode().iloc[0])
        largest = part.iloc[int((part["after"] - part["before"]).abs().argmax())]
        breaks.append(
            Break(
                step=step,
                previous=steps[place[step] - 1],
                rounds=tuple(sorted({*map(int, part["round"])})),
                largest=int(largest["round"]),
                before=float(largest["before"]),
                after=float(largest["after"]),
                metric=metric,
            )
        )
    return breaks


def name_rounds(rounds: Sequence[int]) -> str:
    """Name some rounds; neighbours become a range.

    Examples
    --------
    >>> name_rounds([2, 3, 4, 7]), name_rounds([0])
    ('rounds 2 to 4, 7', 'round 0')
    """
    known = np.unique(np.asarray(rounds, dtype=np.int64))
    parts = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    names = [
        str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts
    ]
    return f"round{'s' if len(known) > 1 else ''} {', '.join(names)}"
