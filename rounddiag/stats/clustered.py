"""Intervals that count samples, not tokens: tokens of one sample go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Fewer clusters than this do not say how far clusters differ.
MIN_CLUSTERS = 5


def ratio_interval(
    totals: Array, counts: Array, confidence: float = 0.95
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

    Returns
    -------
    low, high : float
        NaN where there are fewer than `MIN_CLUSTERS` clusters or the mean is not
        positive.

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
    if len(totals) < MIN_CLUSTERS or not totals.sum() > 0:
        return float("nan"), float("nan")
    mean = totals.sum() / counts.sum()
    quantile = stdtrit(len(totals) - 1, (1 + confidence) / 2)
    reach = quantile * relative_error(totals, counts)
    return float(mean * np.exp(-reach)), float(mean * np.exp(reach))


def relative_error(totals: Array, counts: Array) -> float:
    """Return the standard error of a ratio of sums over clusters, over that ratio.

    Clusters without tokens are none.

    Examples
    --------
    >>> relative_error(np.array([1.0, 3.0, 0.0]), np.array([1.0, 1.0, 0.0]))
    0.5
    """
    num_clusters = np.count_nonzero(counts)
    mean = totals.sum() / counts.sum()
    squares = np.square(totals - mean * counts).sum()
    scale = num_clusters / (num_clusters - 1)
    return float(np.sqrt(scale * squares) / totals.sum())
