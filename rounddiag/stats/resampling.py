"""Intervals by drawing whole clusters again: samples, or groups of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.stats.clustered import (
    around,
    has_scale,
    quiet,
    ratio_interval,
    standard_error,
)

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

NUM_DRAWS = 999
# Draws of fewer clusters cover as well, but can reach over orders of magnitude.
MIN_DRAWN = 10


class Resampling:
    r"""Draws of whole clusters, the same ones for every round of a batch.

    One draw gives every round, so rounds can be compared within a draw. The interval is
    the symmetric studentised bootstrap on the log scale: how far
    :math:`\log m^* - \log m` is from zero in each draw, in units of that draw's own
    standard error, tells how many standard errors the interval must reach. Of values
    that can be negative the scale is linear.

    Measured by `tests/benchmarks/coverage.py` on heavy-tailed tokens with a lognormal
    effect of the sample, 1000 batches a case: where intervals should cover 95 %, means
    over tokens are covered in 92.2 to 94.1 % of rounds that 64 samples or more reach
    (of all samples, or of the worse ones), means of sample means in 92.6 to 94.6 %,
    means of signed values in 91.5 to 94.4 %. With 32 samples it is 91.8 to 92.3 %, 92.5
    to 93.1 % and 91.1 to 91.9 %; with 16, 91.7 to 92.2 %, 93.1 to 93.6 % and 88.2 to
    90.2 %. Percentile intervals cover 2 to 5 points less.

    Parameters
    ----------
    num_clusters : int
    seed : int
        The same seed gives the same draws.

    Attributes
    ----------
    num_clusters : int
    weights : ndarray of float, shape (NUM_DRAWS, num_clusters)
        How often each draw has each cluster.

    References
    ----------
    P. Hall, "The Bootstrap and Edgeworth Expansion", 1992, section 3.5 (symmetric
    studentised intervals). A. C. Cameron, J. B. Gelbach and D. L. Miller,
    "Bootstrap-based improvements for inference with clustered errors", 2008.

    Examples
    --------
    >>> draws = Resampling(10, seed=0)
    >>> low, high = draws.ratio_interval(np.arange(1.0, 11.0), np.ones(10))
    >>> bool(low < 5.5 < high)
    True
    """

    def __init__(self, num_clusters: int, seed: int = 0) -> None:
        self.num_clusters = num_clusters
        generator = np.random.default_rng(seed)
        shares = np.full(max(num_clusters, 1), 1 / max(num_clusters, 1))
        drawn = generator.multinomial(num_clusters, shares, NUM_DRAWS)
        self.weights = drawn.astype(np.float64)

    @quiet
    def ratio_interval(
        self,
        totals: Array,
        counts: Array,
        confidence: float = 0.95,
        *,
        is_signed: bool = False,
    ) -> tuple[float, float]:
        """Give the interval of a mean over tokens, sum of totals over sum of counts.

        Parameters
        ----------
        totals, counts : ndarray, shape (num_clusters,)
            Sum over each cluster's tokens, and their number; 0 where a cluster has
            none.
        confidence : float
        is_signed : bool
            Values can be negative, so the scale is linear.

        Returns
        -------
        low, high : float
            `clustered.ratio_interval` where fewer than 10 clusters have tokens.
        """
        used = counts > 0
        scaled = has_scale(totals, is_signed=is_signed)
        if np.count_nonzero(used) < MIN_DRAWN or not scaled:
            return ratio_interval(
                totals[used], counts[used], confidence, is_signed=is_signed
            )
        mean = totals.sum() / counts.sum()
        means, errors = self._draws(totals, counts)
        apart = means - mean if is_signed else means * np.log(means / mean)
        distances = np.abs(apart) / errors
        known = distances[np.isfinite(distances)]
        if len(known) == 0:
            return float(mean), float(mean)
        # The draws that tell nothing, of one cluster only say, are left out.
        reach = np.quantile(known, confidence) * standard_error(totals, counts)
        return around(mean, reach, is_signed=is_signed)

    def _draws(self, totals: Array, counts: Array) -> tuple[Array, Array]:
        """Return each draw's mean and its standard error."""
        weights = self.weights
        columns = (totals, counts, totals**2, totals * counts, counts**2, counts > 0)
        total, count, tt, tc, cc, num = (weights @ np.stack(columns, axis=1)).T
        means = total / count
        residuals = np.maximum(tt - 2 * means * tc + means**2 * cc, 0)
        return means, np.sqrt(residuals * num / (num - 1)) / count
