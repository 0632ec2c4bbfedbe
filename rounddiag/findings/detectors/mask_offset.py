"""`mask_offset`: the mask is moved against the tokens that the sampler scored."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.core.columns import to_numpy
from rounddiag.core.scores import select_scores
from rounddiag.findings.finding import Evidence
from rounddiag.findings.measure import Measure
from rounddiag.findings.noise import Noise, fitting_half
from rounddiag.findings.registry import register
from rounddiag.wording import with_minus

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# Tokens by which the mask of a sample's first round may be moved: the longest template
# before a turn; and by how many more that of each later round.
OFFSETS, GROWTHS = range(-8, 9), range(-3, 4)


@register("mask_offset", kind="reversal")
def mask_offset(view: View) -> Evidence | None:
    """Move the mask of each round until it covers what the sampler scored.

    The sampler's log-probs are 0 at the tokens that the moved mask leaves, and those
    that it gains have log-probs of both engines. Two numbers are fitted on one half of
    the clusters: the offset of the first round, and its growth with each round.
    """
    if view.is_fitted or not ((view.log_prob_b == 0) & view.uncertain).any():
        return None
    rounds = _Rounds.from_view(view)
    half = fitting_half(view, np.ones(len(view), dtype=bool))
    fit = np.zeros(len(rounds.start), dtype=bool)
    fit[view.segment[half]] = True
    has_tokens = np.zeros(len(fit), dtype=bool)
    has_tokens[view.segment] = True
    if fit[has_tokens].all():
        return None
    tried = [pair for pair in product(OFFSETS, GROWTHS) if any(pair)]
    offset, growth = max(
        tried, key=lambda pair: rounds.num_right(pair[0], pair[1], fit & has_tokens)
    )
    lost, gained = rounds.moved(offset, growth, has_tokens & ~fit)
    if not len(gained) or not rounds.is_right(lost, gained):
        return None
    away = np.abs(rounds.a[gained] - rounds.b[gained])
    tokens = np.isin(view.flat, rounds.moved(offset, growth, has_tokens)[0])
    noise = Noise(view=view, unchanged=~tokens)
    before = np.abs(rounds.a[lost] - rounds.b[lost])
    if not noise.is_reached(away, rounds.b[gained]):
        return None
    unit = "token" if abs(offset) == 1 else "tokens"
    moved = with_minus(f"{offset:+d} {unit}")
    more = with_minus(f", and by {growth:+d} more with each round") if growth else ""
    return Evidence(
        tokens=tokens,
        measures=(
            Measure("offset", offset, "tokens"),
            Measure("growth with each round", growth, "tokens"),
            Measure("mean |diff| of tokens it leaves", float(before.mean())),
            Measure("mean |diff| of tokens it gains", float(away.mean())),
        ),
        shown=(
            f"Undone with the mask moved by {moved}{more},"
            f" {before.mean():.2g} nat become {away.mean():.2g} in rounds on which it"
            f" was not fitted. That is {noise.source}."
        ),
    )


@dataclass(frozen=True, eq=False)
class _Rounds:
    """The rounds of a batch, and the log-probs around them."""

    a: Array
    b: Array
    start: Array
    stop: Array
    round: Array
    begin: Array  # of the sample of each round, in the flat fields
    end: Array
    is_masked: Array

    @classmethod
    def from_view(cls, view: View) -> _Rounds:
        batch = select_scores(view.batch, view.a, view.b)
        rounds, offsets = batch.rounds, to_numpy(batch.offsets)
        sample, start = to_numpy(rounds.sample), to_numpy(rounds.start)
        a, b = (to_numpy(values).astype(float) for values in batch.both_log_probs())
        return cls(
            a=a,
            b=b,
            start=start,
            stop=start + to_numpy(rounds.num_tokens),
            round=to_numpy(rounds.round),
            begin=offsets[:-1][sample],
            end=(offsets[:-1] + to_numpy(batch.lengths))[sample],
            is_masked=to_numpy(batch.response_mask) != 0,
        )

    def moved(self, offset: int, growth: int, chosen: Array) -> tuple[Array, Array]:
        """Return the tokens that the moved mask of some rounds leaves, and gains."""
        by = offset + growth * self.round[chosen]
        start, stop = self.start[chosen], self.stop[chosen]
        first = np.maximum(start + by, self.begin[chosen])
        last = np.minimum(stop + by, self.end[chosen])
        size = np.abs(by)
        step = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        up = np.repeat(by > 0, size)
        lost = np.where(
            up, np.repeat(start, size) + step, np.repeat(stop, size) - 1 - step
        )
        gained = np.where(
            up, np.repeat(stop, size) + step, np.repeat(start, size) - 1 - step
        )
        is_in = (lost >= np.repeat(start, size)) & (lost < np.repeat(stop, size))
        # A mask that was cut at an end of its row leaves nothing there.
        is_cut = np.where(by > 0, start == self.begin[chosen], stop == self.end[chosen])
        is_in &= ~np.repeat(is_cut, size)
        inside = (gained >= np.repeat(first, size)) & (gained < np.repeat(last, size))
        gained = gained[inside]
        return lost[is_in], gained[~self.is_masked[gained]]

    def num_right(self, offset: int, growth: int, chosen: Array) -> float:
        """Return how many more tokens agree with the moved mask than do not."""
        lost, gained = self.moved(offset, growth, chosen)
        right = (self.b[lost] == 0).sum() + (self.b[gained] < 0).sum()
        return float(2 * right - len(lost) - len(gained))

    def is_right(self, lost: Array, gained: Array) -> bool:
        """Return whether none of the tokens that are left was scored, and most gained.

        Log-probs of certain tokens may be 0.
        """
        a, b = self.a[gained], self.b[gained]
        is_scored = np.isfinite(a) & (a != 0) & np.isfinite(b) & (b < 0)
        return bool((self.b[lost] == 0).all() and 2 * is_scored.sum() > len(gained))
