"""The level of the mismatch, in the units that trainers log, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from rounddiag._typing import Array
from rounddiag.core.divergence import get_measure
from rounddiag.findings.view import View

# With fewer samples, an interval would say more than they do.
MIN_SAMPLES = 5
_BLOCK = 1 << 15  # tokens that are measured at a time: they stay in the cache


@dataclass(frozen=True, kw_only=True)
class Level:
    """Means over the tokens of a view.

    Attributes
    ----------
    mean_abs_diff: In nats, with its 95 % interval `low` to `high`: Student's t,
        clustered by group, or by sample without two groups; NaN for fewer than five
        samples.
    median_abs_diff: In nats.
    kl: k3 estimate of KL(rollout | old): mean of exp(d) - 1 - d.
    mult_prob_error: mean exp|d| (NeMo-RL's `token_mult_prob_error`).
    prob_diff: mean |exp(o) - exp(r)|.
    pearson: Correlation of the probabilities, NaN for fewer than two tokens.
    least_sample_mean: The lowest mean |diff| of a sample, in nats.
    """

    mean_abs_diff: float
    low: float
    high: float
    median_abs_diff: float
    kl: float
    mult_prob_error: float
    prob_diff: float
    pearson: float
    num_tokens: int
    num_samples: int
    least_sample_mean: float

    @classmethod
    def from_view(cls, view: View) -> Level:
        """Measure the tokens of a view, once."""
        if "level" not in view.memo:
            view.memo["level"] = cls._measure(view)
        return view.memo["level"]

    @classmethod
    def _measure(cls, view: View) -> Level:
        nan = float("nan")
        if len(view) == 0:
            return cls(
                mean_abs_diff=nan, low=nan, high=nan, median_abs_diff=nan, kl=nan,
                mult_prob_error=nan, prob_diff=nan, pearson=nan, num_tokens=0,
                num_samples=0, least_sample_mean=nan,
            )  # fmt: skip
        of_samples = view.per_sample(view.abs_diff)
        sizes, owner = view.num_per_sample, view.cluster_of_sample
        sums = np.nan_to_num(of_samples) * sizes
        if owner is not None:
            sums, sizes = (np.bincount(owner, each) for each in (sums, sizes))
        mean, error = mean_of_sums(sums, sizes)
        reach = nan
        if view.num_samples >= MIN_SAMPLES:
            num = np.count_nonzero(sizes)
            reach = float(stdtrit(num - 1, 0.975)) * error
        kl, mult_prob_error, prob_diff, *moments = _sum_blocks(view) / len(view)
        p, q, pp, pq, qq = moments
        squares = (pp - p * p) * (qq - q * q)
        return cls(
            mean_abs_diff=mean,
            low=max(mean - reach, 0.0) if np.isfinite(reach) else nan,
            high=mean + reach,
            median_abs_diff=float(np.median(view.abs_diff)),
            kl=float(kl),
            mult_prob_error=float(mult_prob_error),
            prob_diff=float(prob_diff),
            pearson=float((pq - p * q) / squares**0.5) if squares > 0 else nan,
            num_tokens=len(view),
            num_samples=view.num_samples,
            least_sample_mean=float(np.nanmin(of_samples)),
        )


def _sum_blocks(view: View) -> Array:
    """Sum k3, exp|d| and |p - q|, and of p and q less the first: p, q, pp, pq, qq."""
    k3, error = (get_measure(name).values for name in ("k3", "token_mult_prob_error"))
    sums, first = np.zeros(8), np.zeros(2)
    for begin in range(0, len(view), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        d = view.diff[part]
        p, q = (
            np.exp(np.minimum(values[part], 0))
            for values in (view.log_prob_a, view.log_prob_b)
        )
        if begin == 0:
            first = np.array([p[0], q[0]])
        size = np.abs(p - q).sum()
        p, q = p - first[0], q - first[1]
        means = (p.sum(), q.sum(), p @ p, p @ q, q @ q)
        sums += [k3(d).sum(), error(d).sum(), size, *means]
    return sums


def mean_of_sums(sums: Array, sizes: Array) -> tuple[float, float]:
    """Return the mean and its standard error from the sum and size of each cluster."""
    mean = float(sums.sum() / sizes.sum())
    rest = (sums - mean * sizes)[sizes > 0]
    num = len(rest)
    if num == 1:
        return mean, float("nan")
    error = np.sqrt((rest**2).sum() * num / (num - 1)) / sizes.sum()
    return mean, float(error)


def log_odds(log_probs: Array) -> Array:
    """Return the log-odds of log-probs.

    Examples
    --------
    >>> log_odds(np.log([0.5, 0.75])).round(6)
    array([0.      , 1.098612])
    """
    bounded = np.minimum(log_probs, -1e-9)
    return bounded - np.log(-np.expm1(bounded))
