"""Intervals that count samples, not tokens: tokens of one sample go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Fewer clusters than this do not say how far clusters differ.
MIN_CLUSTERS = 5
# What is too large for a float has no interval, and no warning.
quiet = np.errstate(divide="ignore", invalid="ignore", over="ignore")


@quiet
def ratio_interval(
    totals: Array, counts: Array, confidence: float = 0.95, *, is_signed: bool = False
) -> tuple[float, float]:
    r"""Give the interval of a mean over tokens whose samples are the clusters.

    The mean is the ratio of two sums over clusters, :math:`m = \sum t_c / \sum n_c`.
    Its variance is that of the residuals :math:`t_c - m n_c` (linearisation), carried
    to the log scale, where heavy tails are nearer to symmetric, with `t` quantiles of
    one degree of freedom less than there are clusters.

    Parameters
    ----------
    totals, counts : ndarray, shape (num_clusters,)
        Sum over each cluster's tokens, and their number.
    confidence : float
    is_signed : bool
        Values can be negative, so the scale is linear.

    Returns
    -------
    low, high : float
        NaN where there are fewer than `MIN_CLUSTERS` clusters, the sum is not finite,
        or it is not positive and should be.

    References
    ----------
    W. G. Cochran, "Sampling Techniques", 3rd edition, 1977, section 6.3 (ratio
    estimates) and 9A (clusters of unequal size).

    Examples
    --------
    >>> low, high = ratio_interval(np.arange(1.0, 11.0), np.ones(10))
    >>> round(low, 2), round(high, 2)
    (3.71, 8.15)
    """
    if len(totals) < MIN_CLUSTERS or not has_scale(totals, is_signed=is_signed):
        return float("nan"), float("nan")
    mean = totals.sum() / counts.sum()
    quantile = stdtrit(len(totals) - 1, (1 + confidence) / 2)
    return around(mean, quantile * standard_error(totals, counts), is_signed=is_signed)


def has_scale(totals: Array, *, is_signed: bool) -> bool:
    """Tell whether the sum is finite, and positive unless it is signed."""
    total = totals.sum()
    return bool(np.isfinite(total) and (is_signed or total > 0))


def around(mean: float, reach: float, *, is_signed: bool) -> tuple[float, float]:
    """Give the ends of an interval: as far as `reach` says, linear or on the log scale.

    Examples
    --------
    >>> around(2.0, 1.0, is_signed=True)
    (1.0, 3.0)
    """
    if is_signed:
        return float(mean - reach), float(mean + reach)
    factor = np.exp(reach / mean)
    return float(mean / factor), float(mean * factor)


def standard_error(totals: Array, counts: Array) -> float:
    """Return the standard error of a ratio of sums over clusters.

    Clusters without tokens are none.

    Examples
    --------
    >>> standard_error(np.array([1.0, 3.0, 0.0]), np.array([1.0, 1.0, 0.0]))
    1.0
    """
    num_clusters = np.count_nonzero(counts)
    mean = totals.sum() / counts.sum()
    squares = np.square(totals - mean * counts).sum()
    scale = num_clusters / (num_clusters - 1)
    return float(np.sqrt(scale * squares) / counts.sum())
