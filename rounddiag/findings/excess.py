"""How much more a token differs than equally likely ones: the scale of all patterns.

The size of rounding noise depends on how likely a token is. `excess` is the logarithm
of |diff| minus the mean over tokens of the same rollout log-prob and the same id, so
that a round of rare tokens does not look like a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from rounddiag.findings.bins import bins, quantile_edges
from rounddiag.findings.level import MIN_SAMPLES

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

_BINS = 24
_RARE = 10
SMALLEST = 1e-5  # nats: what float32 rounds a log-prob to
_LARGEST = 3.0  # nats: one token beyond it weighs no more
_STEPS = 32
# Number of prompts from which a spread can be measured.
_MIN_UNITS = 4
# The variance within cells is at least this part of the total.
_MIN_PART = 0.5
# Tokens at the start of a round that have cells of their own.
START = 4
# The last tokens of a sample have cells of their own, at these distances from the end.
ENDS = (3, 6, 12, 24)


def excess(view: View) -> Array:
    """Return log |diff| of each token minus the mean over equally likely tokens."""
    floor = _floor(view)
    size = np.minimum(view.abs, _LARGEST)
    values = np.log(size + floor)
    values = values - mean_by_bin(view.r, values, view.r)
    if not view.batch.is_redacted:
        values = values - _mean_by_id(view, values)
    return values


def _floor(view: View) -> float:
    unsure = view.abs[view.uncertain]
    # A fitted effect may leave nothing of most tokens.
    least = view.usual.usual / 4 if view.is_fitted else SMALLEST
    return max(0.1 * float(np.median(unsure)) if len(unsure) else 0.0, least)


def _mean_by_id(view: View, values: Array) -> Array:
    """Return the mean of the values of each id, shrunk towards 0 for rare ids."""
    known, code = view.distinct_ids
    total = np.bincount(code, weights=values, minlength=len(known))
    num = np.bincount(code, minlength=len(known))
    mean: Array = (total / (num + _RARE))[code]
    return mean


def mean_by_bin(by: Array, values: Array, at: Array) -> Array:
    """Return for each entry of `at` the mean of the values whose `by` is near it.

    Examples
    --------
    >>> by = np.array([-2.0, -2.0, -1.0, -1.0])
    >>> mean_by_bin(by, np.array([1.0, 3.0, 5.0, 7.0]), np.array([-2.0, -1.0]))
    array([2., 6.])
    """
    edges = quantile_edges(by, _BINS)
    code = bins(edges, by)
    count = np.bincount(code, minlength=len(edges) + 1)
    total = np.bincount(code, weights=values, minlength=len(edges) + 1)
    overall = values.mean() if len(values) else 0.0
    mean = np.where(count > 0, total / np.maximum(count, 1), overall)
    result: Array = mean[code if at is by else bins(edges, at)]
    return result


@dataclass(frozen=True, eq=False)
class ExcessCells:
    """Sums of the excess over small cells: stretches of one round of one sample.

    Attributes
    ----------
    code : int64 array, one a token
        The cell of each token.
    first : int64 array, one a cell
        The cell's first token in the view. Cells are in the order of the tokens.
    num, total : arrays, one a cell
        Number of tokens, and the sum of their excess.
    step : int64 array, one a cell
        Which of 32 stretches of the decoding steps.
    variance : float
        Of the excess inside of cells.
    """

    view: View
    code: Array
    first: Array
    num: Array
    total: Array
    step: Array
    edges: Array
    variance: float

    @classmethod
    def from_view(cls, view: View) -> ExcessCells:
        """Cut a view into cells."""
        values = excess(view)
        written = decoding_step(view)
        edges = np.unique(
            np.quantile(written, np.linspace(0, 1, _STEPS + 1)[1:-1]).astype(int)
        )
        step = np.searchsorted(edges, written, side="right")
        is_start = view.token < START
        lengths = view.batch.lengths.cpu().numpy()
        end = np.searchsorted(ENDS, lengths[view.sample] - view.position)
        change = (
            (np.diff(view.segment) != 0)
            | (np.diff(power_of_two(view)) != 0)
            | (np.diff(step) != 0)
            | (np.diff(is_start) != 0)
            | (np.diff(end) != 0)
        )
        begins = np.r_[True, change]
        code = np.cumsum(begins) - 1
        first = np.flatnonzero(begins)
        num = np.bincount(code).astype(float)
        total = np.bincount(code, weights=values)
        spread = float(((values - (total / num)[code]) ** 2).sum())
        free = len(values) - len(num)
        inner = spread / free if free > len(num) else 0.0
        variance = max(inner, _MIN_PART * float(values.var()), 1e-6)
        return cls(view, code, first, num, total, step[first], edges, variance)

    @cached_property
    def sample(self) -> Array:
        """Sample of each cell."""
        return self.view.sample[self.first]

    @cached_property
    def round(self) -> Array:
        """Round of each cell."""
        return self.view.round[self.first]

    @cached_property
    def segment(self) -> Array:
        """Index of each cell's round in the batch."""
        return self.view.segment[self.first]

    @cached_property
    def num_samples(self) -> int:
        """Number of samples with a token."""
        return int((np.bincount(self.sample) > 0).sum())

    @cached_property
    def mean(self) -> float:
        """Mean excess of all tokens."""
        return float(self.total.sum() / self.num.sum())

    def mean_excess(self, inside: Array) -> float:
        """Return the mean excess of the tokens of some cells."""
        return float(self.total[inside].sum() / self.num[inside].sum())

    def contrast(self, inside: Array) -> Contrast:
        """Compare the cells inside of a set with the others."""
        weight = np.where(inside, self.num, 0.0)
        num_in, num = weight.sum(), self.num.sum()
        num_out = num - num_in
        if num_in == 0 or num_out == 0:
            return Contrast(0.0, 0.0, 0.0)
        mean_in = np.where(inside, self.total, 0.0).sum() / num_in
        mean_out = np.where(inside, 0.0, self.total).sum() / num_out
        gap = float(mean_in - mean_out)
        gain = num_in * num_out / num * gap**2 / (2 * self.variance)
        # Influence of each sample on the gap: samples are independent, tokens are not.
        part = np.where(
            inside,
            (self.total - mean_in * self.num) / num_in,
            -(self.total - mean_out * self.num) / num_out,
        )
        return Contrast(gap, self._z(gap, part), float(gain))

    def _z(self, value: float, influence: Array) -> float:
        """Return a value in standard errors, clustered by sample.

        With n / (n - 1), and as the normal quantile of Student's t: a few samples that
        agree by chance are no evidence. 0 for fewer than five samples.
        """
        num = self.num_samples
        if num < MIN_SAMPLES:
            return 0.0
        by_sample = np.bincount(self.sample, weights=influence)
        error = float(np.sqrt((by_sample**2).sum() * num / (num - 1)))
        t = abs(value) / max(error, 1e-9)
        z = -float(stats.norm.ppf(max(stats.t.sf(t, num - 1), 1e-300)))
        return z if value > 0 else -z

    def worth_by_prompt(self, inside: Array) -> float:
        """Return the spread between prompts that a set of samples explains, in nats.

        Samples of one prompt are similar: a prompt that is hard to route is hard in all
        of them. A set of whole prompts counts if prompts differ less within it and
        within the others. Infinite for a set with a third of its samples in prompts
        that it divides.
        """
        prompt = self.view.facts.prompt
        if int(prompt.max()) + 1 == len(prompt):
            return np.inf  # one sample a prompt
        unit = 2 * prompt[self.sample] + inside
        num = np.bincount(unit, weights=self.num, minlength=2 * int(prompt.max()) + 2)
        is_divided = num[1::2][num[::2] > 0].sum() > num[1::2].sum() / 3
        at = np.flatnonzero(num)
        if len(at) < _MIN_UNITS or is_divided:
            return np.inf
        num, mean = num[at], np.bincount(unit, weights=self.total)[at] / num[at]
        is_in = at % 2 == 1
        whole = _spread(mean, num)
        parts = _spread(mean[is_in], num[is_in]) + _spread(mean[~is_in], num[~is_in])
        chosen = float(is_in.mean())
        bits = -(chosen * np.log(chosen) + (1 - chosen) * np.log1p(-chosen))
        price = len(at) * bits + np.log(len(at))
        return float(len(at) / 2 * np.log(whole / max(parts, 1e-12 * whole)) - price)

    def slope(self, covariate: Array) -> Contrast:
        """Regress the excess on a value per cell; `gap` is over its middle 80 %."""
        num = self.num.sum()
        centred = covariate - (self.num * covariate).sum() / num
        square = float((self.num * centred**2).sum())
        if square <= 0:
            return Contrast(0.0, 0.0, 0.0)
        rest = self.total - self.mean * self.num
        slope = float((centred * rest).sum()) / square
        gain = slope**2 * square / (2 * self.variance)
        part = centred * (rest - slope * centred * self.num) / square
        low, high = np.quantile(covariate, [0.1, 0.9])
        return Contrast(slope * float(high - low), self._z(slope, part), gain)


def _spread(mean: Array, num: Array) -> float:
    return float((num * (mean - np.average(mean, weights=num)) ** 2).sum())


@dataclass(frozen=True)
class Contrast:
    """Difference between a set of tokens and the others.

    Attributes
    ----------
    gap : float
        Difference of the mean excess; exp(gap) is the ratio of |diff|.
    t : float
        The gap in standard errors, clustered by sample, as a normal quantile.
    gain : float
        What the split explains, in nats of log-likelihood of independent tokens.
    """

    gap: float
    t: float
    gain: float


def power_of_two(view: View) -> Array:
    """Return which power of two the context's length has reached, from 256 on.

    A cast of position ids to bfloat16 rounds from 256 on, coarser at each power.
    """
    place = view.position
    if view.facts.prompt_length is not None:
        place = place + view.facts.prompt_length[view.sample]
    power: Array = np.floor(np.log2(np.maximum(place, 128))).astype(int)
    return power


def decoding_step(view: View) -> Array:
    """Return the number of tokens that were generated before each, in its sample."""
    rounds = view.batch.rounds
    num = rounds.num_tokens.cpu().numpy()
    sample = rounds.sample.cpu().numpy()
    before = np.cumsum(num) - num
    begins = np.searchsorted(sample, np.arange(view.batch.num_samples))
    begins = np.minimum(begins, max(len(num) - 1, 0))
    written: Array = (before - before[begins][sample])[view.segment] + view.token
    return written
