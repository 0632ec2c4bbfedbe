"""What a mismatch looks like: the measures from which its cause is named.

The size of a token's mismatch is |diff| in units of 1 - p, which is how rounding noise
depends on the probability p. The unit is fixed: a fault of all tokens does not hide
itself. Means are of its logarithm, so that a difference of 1 is a factor of 2.7. Each
measure has a few values in words; `naming` has a table of how often each cause has
them. Limits between the values are round numbers in the gaps between causes: the table
holds for these limits, and is fitted anew if one changes.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.conditions import CACHES, PACKS, POWERS, VERSIONS, WORKERS
from rounddiag.findings.detectors.weights import (
    MIN_CORRELATION,
    id_correlation,
    log_odds_tail,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag._typing import Array
    from rounddiag.findings.finding import Evidence
    from rounddiag.findings.view import View

_SOFT = 0.02  # of 1 - p: below, rounding is the larger part of |diff|
_LEAST, _LARGEST = 1e-3, 5.0  # of a size, and of |diff| in nats
_MANY = 200_000  # tokens that are read: evenly spaced ones of a longer view
_FEW = 8  # tokens of which there is no mean
_START = 3  # tokens at the start of a round
_ENDS = (3, 12)  # tokens at the end of samples
# Rise of the mean at the ends of all samples, where syntax and roles differ by nature,
# and of those at the length limit.
_RISE_AT_ENDS, _RISE_AT_LIMIT = 4.0, 2.0
_RISES = 0.4  # from round 0 to round 1
_APART = 0.8  # samples differ as a whole if their means do by this much
_MOST = 0.6  # a larger part of the samples counts as all
_LONGEST_PERIOD = 16  # samples of a pack
_LAST = 12  # rounds from which on a rise is looked for
# Least part of the variance between samples that is between two sets of them. Of values
# that are normal, or uniform, the best split has 0.64 or 0.75.
_TWO_SETS = 0.8
# Probability of a correlation with ids by chance, of tokens that may be sound.
_BY_CHANCE = 0.05
# A plateau before a step: at least this part of the tokens, whose second half is lower
# than the first by less than this part of the step.
_PLATEAU, _LEVEL = 0.25, 0.3


def describe(view: View, evidence: Evidence) -> dict[str, str]:
    """Return the value of each measure; `unknown` where it cannot be taken.

    Measures
    --------
    samples : all, or which of them, by a column if one says so
    begins : where along a sample; "rises with ids" where it grows, and ids predict the
        diff in round 0 already, as other weights do, and noise and lost content do not
    in rounds : whether the mismatch fades from the start of a round to its end
    first tokens : whether the first tokens of rounds, which are a template, differ
        less than the others. Lost content leaves a template as it is; other positions
        and other weights do not.
    as sampled : whether the mean of exp(diff) is 1. It is for all ids that were drawn
        from what the sampling engine says, whatever the training engine reads (the
        identity of importance sampling), and is not for other ids.
    sign : whether the training engine finds tokens less likely
    size : mean |diff|, in nats
    same ids : whether the same ids move the same way in other samples
    tail : of the difference of the log-odds
    quiet : whether the tenth of the tokens that differs least is quiet
    """
    every = -(-len(view) // _MANY)
    kept = np.arange(len(view)) % every == 0
    rows = _known_samples(view, evidence)
    shape = _Shape(view.keep(kept), evidence.tokens[kept], rows)
    if not shape.tokens.any():
        return {}
    samples = _by_column(view, evidence.where) or shape.samples
    if shape.begins == "until" and any(
        _changes_in_samples(view, name)
        for name in view.facts.round_columns
        if VERSIONS.search(name)
    ):
        samples = "version in samples"
    return {
        "samples": samples,
        "begins": "power of two" if _is_power(evidence.where) else shape.begins,
        "in rounds": shape.in_rounds,
        "first tokens": shape.first_tokens,
        "as sampled": shape.as_sampled,
        "same ids": _cut(id_correlation(view)[0], (0.15, 0.4), ("no", "some", "yes")),
        **shape.values(),
    }


def _by_column(view: View, where: Mapping[str, object]) -> str:
    """Name the kind of column that says which samples differ, if one does."""
    name = str(where.get("column", ""))
    if "all_but" in where or PACKS.search(name):
        return "pack"
    if "period" in where:
        return "period"
    if "set" in where:
        return str(where["set"])
    if VERSIONS.search(name):
        return "version in samples" if _changes_in_samples(view, name) else "version"
    if CACHES.search(name):
        return "cached"
    return "worker" if WORKERS.search(name) else ""


def _changes_in_samples(view: View, name: str) -> bool:
    """Return whether a column changes within at least one sample in ten."""
    values = view.facts.round_columns.get(name)
    if values is None:
        return False
    sample = view.batch.rounds.sample.cpu().numpy()
    changes = (sample[1:] == sample[:-1]) & (values[1:] != values[:-1])
    num_mixed = len(np.unique(sample[1:][changes]))
    return num_mixed >= 0.1 * len(np.unique(sample))


def _is_power(where: Mapping[str, object]) -> bool:
    is_later = bool(where.get("is_after")) and where.get("unit") == "context positions"
    return is_later and where.get("place") in POWERS


def _turns(rows: Array, there: Array) -> str:
    """Return `pack` for all samples but every n-th, `period` for every n-th."""
    index = np.flatnonzero(there)
    for period in range(3, min(_LONGEST_PERIOD, len(index) // 4) + 1):
        share = [rows[index[index % period == k]].mean() for k in range(period)]
        low, high = min(share), max(share)
        others = (sum(share) - low) / (period - 1), (sum(share) - high) / (period - 1)
        if low <= 0.1 and others[0] >= 0.9:  # noqa: PLR2004 nearly none, nearly all
            return "pack"
        if high >= 0.9 and others[1] <= 0.1:  # noqa: PLR2004
            return "period"
    return ""


def _cut(value: float, limits: Sequence[float], names: Sequence[str]) -> str:
    """Return the name of the interval in which a value lies."""
    return names[int(np.searchsorted(limits, value))] if value == value else "unknown"  # noqa: PLR0124 NaN


def _follow_ids(view: View) -> bool:
    """Return whether ids predict the diff, as with other weights: it is not noise."""
    correlation, p = id_correlation(view)
    return correlation > MIN_CORRELATION and p < _BY_CHANCE


def _known_samples(view: View, evidence: Evidence) -> Array:
    """Return the samples that differ, if the evidence says which; else none."""
    size = view.batch.num_samples
    rows = np.zeros(size, dtype=bool)
    place = evidence.where.get("found")
    is_place = place is not None and place.tokens is evidence.tokens
    if place is None or not is_place or "samples" in evidence.where:
        rows[np.asarray(evidence.where.get("samples", ()), dtype=int)] = True
        return rows
    hit = np.bincount(view.sample[place.tokens], minlength=size)
    is_whole = hit == view.num_per_sample
    return (hit > 0) & is_whole if is_whole[hit > 0].all() else rows


class _Shape:
    """The samples that differ, and how the mismatch runs along them."""

    def __init__(self, view: View, place: Array, rows: Array) -> None:
        self.view, self.place = view, place & view.uncertain
        size = np.minimum(view.abs_diff, _LARGEST)
        size = size / (_SOFT - np.expm1(np.minimum(view.log_prob_b, 0.0)))
        self.size = np.log(size + min(_LEAST, max(float(np.median(size)), 1e-7)))
        self.rows, self.is_part = rows, True
        if not self.rows.any() or self.rows.sum() >= _MOST * len(self.rows):
            self.rows, self.is_part = self._find_samples()
        self.tokens = view.uncertain & self.rows[view.sample]

    def _mean(self, tokens: Array) -> float:
        return float(self.size[tokens].mean()) if tokens.sum() >= _FEW else np.nan

    def _find_samples(self) -> tuple[Array, bool]:
        """Return the samples that differ as a whole, and whether others do not."""
        view, use = self.view, self.place
        num_rows = view.batch.num_samples
        num = np.bincount(view.sample, weights=use, minlength=num_rows)
        total = np.bincount(view.sample, weights=self.size * use, minlength=num_rows)
        there = np.flatnonzero(num > 0)
        everywhere = np.zeros(num_rows, dtype=bool)
        everywhere[there] = True
        if len(there) < 4:  # noqa: PLR2004 no two sets to compare
            return everywhere, False
        mean = total[there] / num[there]
        order = np.argsort(-mean, kind="stable")
        weight = np.minimum(num[there][order], 50)
        sums, counts = np.cumsum(mean[order] * weight), np.cumsum(weight)
        upper = sums[:-1] / counts[:-1]
        lower = (sums[-1] - sums[:-1]) / (counts[-1] - counts[:-1])
        gain = (upper - lower) ** 2 * counts[:-1] * (counts[-1] - counts[:-1])
        best = int(gain.argmax())
        elsewhere = self._mean(view.uncertain & ~self.place)
        is_sound = not lower[best] - elsewhere > _APART
        spread = sums[-1] / counts[-1]
        within = float((weight * (mean[order] - spread) ** 2).sum())
        between = float(gain[best]) / counts[-1]
        is_apart = upper[best] - lower[best] >= _APART and between >= _TWO_SETS * within
        if not is_apart or not is_sound:
            return everywhere, False
        rows = np.zeros(num_rows, dtype=bool)
        rows[there[order[: best + 1]]] = True
        if _follow_ids(view.keep((view.round == 0) & ~rows[view.sample])):
            return everywhere, False
        return rows, True

    @property
    def samples(self) -> str:
        """Which samples differ."""
        view, rows = self.view, np.flatnonzero(self.rows)
        there = view.num_per_sample > 0
        if self.is_part and (turns := _turns(self.rows, there)):
            return turns
        if not self.is_part or len(rows) >= _MOST * there.sum():
            return "all"
        extent = int(there[rows.min() : rows.max() + 1].sum())
        if len(rows) > 1 and len(rows) >= 0.8 * extent:
            return "block"
        group = view.facts.group
        if group is None:
            return "some"
        num = np.bincount(group[there])
        hit = np.bincount(group[rows], minlength=len(num))
        whole = (num > 1) & (hit >= 0.75 * num)
        return "groups" if hit[whole].sum() > 0.75 * len(rows) else "some"

    @cached_property
    def begins(self) -> str:
        """Where along a sample the mismatch begins, or ends."""
        view, tokens = self.view, self.tokens
        if self._has_bad_end():
            return "end"
        step, place, is_level = self._step()
        if step < -_APART:
            return "until" if is_level and place > _PLATEAU else "fades"
        first, second = (self._mean(tokens & (view.round == k)) for k in (0, 1))
        rise = np.nan_to_num(second - first)
        rises = max(rise, step) > _RISES
        if (
            rises
            and self.as_sampled == "yes"
            and _follow_ids(view.keep(view.round == 0))
        ):
            return "rises with ids"
        found = "rises" if rise > _RISES or step > 0.7 else "everywhere"  # noqa: PLR2004
        late, late_rise = self._later_rise()
        if rise > _APART:
            found = f"round 1{self._course(1)}"
        elif late_rise > 0.9 and rise < 0.6:  # noqa: PLR2004
            found = f"later round{self._course(late).replace(', growing', '')}"
        elif step > 1 and place > 0.15:  # noqa: PLR2004
            found = "from a step"
        return found

    def _later_rise(self) -> tuple[int, float]:
        """Return the round after 1 at which the mean size rises most, and its rise."""
        last = min(int(self.view.round.max()), _LAST)
        rises = {k: self._rise_at(k) for k in range(2, last + 1)}
        late = max(rises, key=rises.__getitem__, default=0)
        return late, rises.get(late, 0.0)

    @property
    def in_rounds(self) -> str:
        """How the mismatch runs inside of rounds: of the first, or of later ones."""
        view = self.view
        for rounds in (view.round > 0, view.round == 0):
            if self._fade(rounds, at_start=True) < -2:  # noqa: PLR2004
                return "late"
        starts_later = self.begins.startswith(("round", "later", "rises"))
        fade = self._fade(view.round > 0 if starts_later else view.round == 0)
        limits, names = (-0.6, 0.3, 0.8), ("grows", "flat", "fades", "fades fast")
        return _cut(fade, limits, names)

    @property
    def first_tokens(self) -> str:
        """Whether the first tokens of the rounds that differ are off as the others."""
        view = self.view
        later = self.begins.startswith(("round", "later", "rises"))
        mine = self.tokens & ((view.round > 0) if later else (view.round == 0))
        early = view.token < _START
        gap = self._mean(mine & early) - self._mean(mine & ~early)
        return _cut(gap, (-0.6, 0.2), ("less", "alike", "more"))

    @property
    def as_sampled(self) -> str:
        """Whether exp(diff) has mean 1 in the samples that differ."""
        view = self.view
        ratio = np.expm1(np.minimum(view.diff[self.tokens], 2.0))
        total = np.bincount(view.sample[self.tokens], weights=ratio)
        error = max(float(np.sqrt((total**2).sum())), 1e-300)
        return _cut(float(total.sum()) / error, (3.0,), ("yes", "no"))

    def _course(self, first: int) -> str:
        """Return how the mismatch goes on after the round at which it begins."""
        at = self._mean(self.tokens & (self.view.round == first))
        more = self._mean(self.tokens & (self.view.round > first)) - at
        course = _cut(more, (-0.3, 0.6), (", fading", "", ", growing"))
        return "" if course == "unknown" else course

    def _rise_at(self, first: int) -> float:
        """Return the rise of the mean size at a round."""
        late = self.view.round >= first
        rise = self._mean(self.tokens & late) - self._mean(self.tokens & ~late)
        return float(np.nan_to_num(rise))

    def _fade(self, rounds: Array, *, at_start: bool = False) -> float:
        """Return by how much the first half of rounds, or their start, is larger."""
        view = self.view
        half = np.bincount(view.segment)[view.segment] / 2
        first = view.token < _START
        if not at_start:
            first = ~first & (view.token < half)
        last = (view.token >= _START) & (view.token >= half)
        mine = self.tokens & rounds
        return self._mean(mine & first) - self._mean(mine & last)

    def _step(self) -> tuple[float, float, bool]:
        """Return the best step over the decoding steps, and what is before it.

        That is the part of the tokens, and whether they are level: older weights are
        until they are replaced; what is forgotten fades from the start.
        """
        size = self.size[self.tokens]
        order = np.argsort(self.view.num_before[self.tokens], kind="stable")
        rest = size[order] - size.mean()
        num = len(rest)
        edge = num // 20
        at = np.arange(edge + 1, num - edge)
        if not len(at):
            return 0.0, 0.0, False
        before = np.cumsum(rest)[at - 1]
        best = int((before**2 / (at * (num - at))).argmax())
        gap = -before[best] * num / (at[best] * (num - at[best]))
        first = int(at[best])
        drop = rest[: first // 2].mean() - rest[first // 2 : first].mean()
        return float(gap), first / num, bool(drop < _LEVEL * abs(gap))

    def _has_bad_end(self) -> bool:
        """Return whether the last tokens of samples, or of the longest, are off."""
        view = self.view
        lengths = view.batch.lengths.cpu().numpy()
        left = lengths[view.sample] - view.position
        longest = (lengths >= 0.98 * lengths.max())[view.sample]
        for tokens, least in (
            (view.uncertain, _RISE_AT_ENDS),
            (view.uncertain & longest, _RISE_AT_LIMIT),
        ):
            for width in _ENDS:
                before = tokens & (left > width) & (left <= 2 * width)
                if self._mean(tokens & (left <= width)) - self._mean(before) > least:
                    return True
        return False

    def values(self) -> dict[str, str]:
        """Measure sign, size, tail, and the relation to ids."""
        view = self.view
        d = np.clip(view.diff[self.tokens], -_LARGEST, _LARGEST)
        total = max(float(np.abs(d).sum()), 1e-300)
        return {
            "sign": _cut(
                float(d.sum()) / total,
                (-0.65, -0.3, 0.25),
                ("mostly below", "below", "both", "above"),
            ),
            "size": _cut(
                total / len(d),
                (0.025, 0.1, 0.4),
                ("up to 0.025", "up to 0.1", "up to 0.4", "large"),
            ),
            "tail": _cut(
                log_odds_tail(view.keep(self.tokens)),
                (3.7, 6.0, 13.5),
                ("short", "usual", "long", "very long"),
            ),
            "quiet": _cut(
                float(np.quantile(self.size[self.tokens], 0.1)),
                (-5.6, -4.6),
                ("quiet", "some", "none quiet"),
            ),
        }
