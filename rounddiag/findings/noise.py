"""The noise that a reversal must reach: |diff| of equally likely sound tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.bins import mean_by_bin
from rounddiag.findings.level import MIN_SAMPLES
from rounddiag.findings.place import find_places
from rounddiag.findings.view import LARGEST_DIFF, ROUNDING

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# A reversal may leave this many times the noise: both are means over few samples. With
# 1.5, one right claim is lost; 4 changes nothing (`tests.faults.bench --set`).
_MOST = 2.0
_MIN_TOKENS = 200  # for the noise of tokens in 24 bins of probability
# With fewer clusters, the rounds are divided into a fitted and a judged half. 5 changes
# nothing; with 20, one right claim is lost.
_MIN_CLUSTERS = 10


def fitting_half(view: View, tokens: Array) -> Array:
    """Return the tokens on which a reversal of some tokens is fitted; a bool array.

    It is judged on the others. They are of other clusters, from ten clusters on; else
    every second round, and of one round every second sample.
    """
    for name, min_parts in (("cluster", _MIN_CLUSTERS), ("round", 2)):
        parts = getattr(view, name)
        if np.count_nonzero(np.bincount(parts[tokens])) >= min_parts:
            break
    else:
        parts = view.sample
    return every_second(parts, tokens)


def every_second(codes: Array, tokens: Array) -> Array:
    """Return which codes are every second one of those that some tokens have."""
    is_known = np.bincount(codes[tokens], minlength=codes.max(initial=0) + 1) > 0
    return np.equal((np.cumsum(is_known) - is_known) % 2, 0)[codes]


@dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """|diff| that is expected of sound tokens, by their probability.

    Attributes
    ----------
    unchanged: bool array. The tokens that the reversal leaves as they are.
    """

    view: View
    unchanged: Array

    @cached_property
    def sound(self) -> Array:
        """Tokens that are left as they are, without those of places: no noise."""
        if not self.unchanged.any():
            return self.unchanged
        places = (place.tokens for place in find_places(self.view) if place.is_tested)
        return ~np.logical_or.reduce([~self.unchanged, *places])

    @property
    def is_measured(self) -> bool:
        """Whether five samples or more have tokens that are left as they are.

        Not where a formula was fitted, which takes a part of the noise too.
        """
        if self.view.is_fitted:
            return False
        num_samples = self.view.samples_with(self.sound).sum()
        return bool(num_samples >= MIN_SAMPLES and self.sound.sum() >= _MIN_TOKENS)

    @property
    def source(self) -> str:
        """What the noise was measured on, as the end of a sentence."""
        if self.is_measured:
            return "the noise of the tokens that it does not change"
        return f"what is usual for {self.view.usual.meaning}"

    def of(self, log_probs: Array) -> float:
        """Return the mean |diff| that is expected of tokens that are this likely."""
        view, usual = self.view, self.view.usual
        if self.is_measured:
            size = np.minimum(view.abs_diff[self.sound], LARGEST_DIFF)
            near = mean_by_bin(view.log_prob_b[self.sound], size, log_probs)
            return max(float(near.mean()), ROUNDING)
        return max(float(usual.of_tokens(log_probs).mean()), ROUNDING)

    def is_undone(self, tokens: Array, rest: Array, log_probs: Array) -> bool:
        """Return whether |diff| of some tokens falls from above the noise to it.

        Nor may a place keep half of its excess there. `tokens` are indices, `rest` is
        what is left of their |diff|.
        """
        # Both conditions below bound what is left by this, whatever the noise is.
        most = (1 + 1 / _MOST) / 2 * _mean(self.view.abs_diff[tokens])
        if _mean(rest) >= most or not self.is_reached(rest, log_probs):
            return False
        places = [
            place.tokens[tokens] for place in find_places(self.view) if place.is_tested
        ]
        every = np.ones(len(tokens), dtype=bool)
        keeps_excess = [
            self._kept_excess(
                self.view.abs_diff[tokens[part]], rest[part], log_probs[part]
            )
            for part in (every, *filter(np.any, places))
        ]
        return keeps_excess[0] is not None and not any(keeps_excess)

    def _kept_excess(self, before: Array, rest: Array, log_probs: Array) -> bool | None:
        noise = self.of(log_probs)
        here, left = _mean(before), _mean(rest)
        return left - noise > (here - noise) / 2 if here > _MOST * noise else None

    def is_reached(self, rest: Array, log_probs: Array) -> bool:
        """Return whether |diff| that is left is noise at tokens that are so likely."""
        if not len(rest):
            return False
        return _mean(rest) <= _MOST * self.of(log_probs)


def _mean(sizes: Array) -> float:
    return float(np.minimum(sizes, LARGEST_DIFF).mean()) if len(sizes) else 0.0
