"""The onset: the round from which on a batch differs, as a change point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.view import View

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.findings.excess import ExcessCells
    from rounddiag.findings.pattern_candidates import Pattern

# The onset is the first round whose excess is above that of round 0 by this part of the
# whole gap: a cumulative effect reaches its full size some rounds later.
PART = 0.4
_NUM_DRAWS = 400
_SEED = 5


@dataclass(frozen=True, kw_only=True)
class Onset:
    """The round from which on |diff| is larger, with its interval.

    Attributes
    ----------
    round : int
    low, high : int
        95 % interval, by resampling samples, or groups if there are groups.
    before, after : float
        Mean |diff| of the rounds before it and from it on, in nats.
    """

    round: int
    low: int
    high: int
    before: float
    after: float

    def __str__(self) -> str:
        return f"round {self.round} on ({self.interval})"

    @property
    def interval(self) -> str:
        """The interval in words."""
        if self.low == self.high:
            return "95 % interval: this round alone"
        return f"95 % interval {self.low} to {self.high}"


def round_onset(batch: Batch, a: str = "old", b: str = "rollout") -> Onset | None:
    """Return the round from which on a batch differs, or None if there is none.

    Parameters
    ----------
    batch : Batch
    a, b : str
        The scores to compare.

    Returns
    -------
    Onset or None
        None if the |diff| of equally likely tokens does not rise at a round: in a
        healthy batch, and if the mismatch begins with the first round.

    Examples
    --------
    >>> import rounddiag as rd
    >>> found = round_onset(rd.load("sample_data/image_window.parquet"))
    >>> found.round
    2
    >>> round_onset(rd.load("sample_data/healthy.parquet")) is None
    True
    """
    view = View.from_batch(batch, a, b)
    steps = steps_at_rounds(view)
    if not steps:
        return None
    return onset(max(steps, key=lambda one: one.worth))


def steps_at_rounds(view: View) -> list[Pattern]:
    """Return the patterns of a view that begin at a round, in all samples."""
    found = [
        one
        for one in strong_patterns(view, "round", "image")
        if one.where.get("images_from") != 1
    ]
    if not view.is_fitted:  # a fitted effect leaves slopes of its own
        found += [
            one
            for one in strong_patterns(view, "slope")
            if one.where["rises"] and one.where["is_flat"]
        ]
    return found


def onset(pattern: Pattern) -> Onset:
    """Return the change point of a pattern of rounds."""
    cells, view = pattern.cells, pattern.cells.view
    # For a step, the search has found that the onset is no later; a slope has no edge.
    latest = int(view.round.max())
    if pattern.family != "slope":
        latest = max(int(view.round[pattern.tokens].min()), 1)
    totals, counts = _by_owner(cells)
    draws = np.random.default_rng(_SEED).multinomial(
        len(totals), np.full(len(totals), 1 / len(totals)), size=_NUM_DRAWS
    )
    first = int(_first_rounds(totals.sum(0), counts.sum(0), pattern.gap, latest)[0])
    drawn = _first_rounds(draws @ totals, draws @ counts, pattern.gap, latest)
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    late = view.round >= first
    return Onset(
        round=first,
        low=min(int(low), first),
        high=max(int(high), first),
        before=float(view.abs[~late].mean()),
        after=float(view.abs[late].mean()),
    )


def _by_owner(cells: ExcessCells) -> tuple[Array, Array]:
    """Return sums of the excess and counts, [groups or samples, rounds]."""
    group = cells.view.facts.group
    owner = cells.sample if group is None else group[cells.sample]
    owner = np.unique(owner, return_inverse=True)[1]
    shape = (int(owner.max()) + 1, int(cells.round.max()) + 1)
    at = owner * shape[1] + cells.round
    size = shape[0] * shape[1]
    total = np.bincount(at, weights=cells.total, minlength=size).reshape(shape)
    num = np.bincount(at, weights=cells.num, minlength=size).reshape(shape)
    return total, num


def _first_rounds(total: Array, num: Array, gap: float, latest: int) -> Array:
    """Return the first round above round 0 by a part of a gap, at most `latest`."""
    total, num = np.atleast_2d(total), np.atleast_2d(num)
    mean = total / np.maximum(num, 1)
    later = (mean - mean[:, :1] > PART * gap) & (num > 0)
    first = np.where(later.any(axis=1), later.argmax(axis=1), 1)
    result: Array = np.clip(first, 1, latest)
    return result
