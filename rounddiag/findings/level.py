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
        cluster = view.cluster
        mean, error = clustered_mean(view.abs_diff, cluster)
        reach = nan
        if view.num_samples >= MIN_SAMPLES:
            num = int((np.bincount(cluster) > 0).sum())
            reach = float(stdtrit(num - 1, 0.975)) * error
        p, q = (
            np.exp(np.minimum(view.log_prob_a, 0)),
            np.exp(np.minimum(view.log_prob_b, 0)),
        )
        varied = len(view) > 1 and p.std() > 0 and q.std() > 0
        return cls(
            mean_abs_diff=mean,
            low=max(mean - reach, 0.0) if np.isfinite(reach) else nan,
            high=mean + reach,
            median_abs_diff=float(np.median(view.abs_diff)),
            kl=float(get_measure("k3").values(view.diff).mean()),
            mult_prob_error=float(
                get_measure("token_mult_prob_error").values(view.diff).mean()
            ),
            prob_diff=float(np.abs(p - q).mean()),
            pearson=float(np.corrcoef(p, q)[0, 1]) if varied else nan,
            num_tokens=len(view),
            num_samples=view.num_samples,
            least_sample_mean=float(np.nanmin(view.per_sample(view.abs_diff))),
        )


def clustered_mean(values: Array, cluster: Array) -> tuple[float, float]:
    """Return the mean of values and its standard error, clustered."""
    mean = float(values.mean())
    sums = np.bincount(cluster, weights=values - mean)[np.bincount(cluster) > 0]
    num = len(sums)
    if num == 1:
        return mean, float("nan")
    error = np.sqrt((sums**2).sum() * num / (num - 1)) / len(values)
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
