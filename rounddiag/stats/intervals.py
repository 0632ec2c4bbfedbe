"""Confidence intervals by a bootstrap of whole clusters: samples, or groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from rounddiag._typing import Array
from rounddiag.core.aggregation import means_of_sums
from rounddiag.core.divergence import TokenMetric
from rounddiag.errors import FrameError

# With fewer clusters than this, their variance is not estimated. From 5 on, intervals
# of 95 % cover 90 % (`python -m tests.benchmarks.coverage`); fewer were not simulated.
MIN_CLUSTERS = FEW_SAMPLES = 5
# The share of draws that an interval holds, and the quantile at its upper end.
CONFIDENCE = 0.95
UPPER_LEVEL = (1 + CONFIDENCE) / 2
# Within this many standard errors of 0 the scale of signed values is about linear.
_LINEAR_ERRORS = 4
# Values too large for a float have no interval, and raise no warning.
quiet = np.errstate(divide="ignore", invalid="ignore", over="ignore")


@quiet
def ratio_interval(
    totals: Array, counts: Array, *, is_signed: bool = False
) -> tuple[float, float]:
    r"""Return the interval of a mean over tokens, with samples as clusters.

    The mean is the ratio of two sums over clusters, :math:`m = \sum t_c / \sum n_c`.
    Its variance is that of the residuals :math:`t_c - m n_c` (linearisation), carried
    to a scale where heavy tails are nearer to symmetric (`IntervalScale`), with `t`
    quantiles of one degree of freedom less than there are clusters.

    References
    ----------
    W. G. Cochran, "Sampling Techniques", 3rd edition, 1977, section 6.3 (ratio
    estimates) and 9A (clusters of unequal size).
    """
    if len(totals) < MIN_CLUSTERS or not has_mean(totals, is_signed=is_signed):
        return float("nan"), float("nan")
    mean, error = totals.sum() / counts.sum(), standard_error(totals, counts)
    quantile = stdtrit(len(totals) - 1, UPPER_LEVEL)
    return IntervalScale.of(error, is_signed=is_signed).around(mean, quantile * error)


def has_mean(totals: Array, *, is_signed: bool) -> bool:
    """Return whether the sum is finite, and positive unless it is signed."""
    total = totals.sum()
    return bool(np.isfinite(total) and (is_signed or total > 0))


@dataclass(frozen=True)
class IntervalScale:
    r"""The scale on which intervals are symmetric.

    A mean of heavy-tailed values has a standard error in proportion to itself, so its
    logarithm is more symmetric. For values that can be negative the scale is
    :math:`\mathrm{arsinh}(m / h)`: linear near 0, logarithmic far from it.

    Attributes
    ----------
    linear: h; 0 for the logarithm.
    """

    linear: float

    @classmethod
    def of(cls, error: float, *, is_signed: bool) -> IntervalScale:
        """Choose the scale of a mean with this standard error.

        Examples
        --------
        >>> IntervalScale.of(0.5, is_signed=True)
        IntervalScale(linear=2.0)
        """
        return cls(_LINEAR_ERRORS * error if is_signed else 0.0)

    def distances(self, means: Array, errors: Array, mean: float) -> Array:
        """Return the distance of each mean from `mean`, in its own standard errors."""
        apart = np.abs(self._of(means) - self._of(mean))
        return apart * np.hypot(self.linear, means) / errors

    def around(self, mean: float, reach: float) -> tuple[float, float]:
        """Return the ends of an interval that reaches this far, in units at the mean.

        Examples
        --------
        >>> low, high = IntervalScale(0.0).around(2.0, 1.0)
        >>> round(low, 3), round(high, 3)
        (1.213, 3.297)
        """
        if reach == 0:
            return float(mean), float(mean)
        middle, part = self._of(mean), reach / np.hypot(self.linear, mean)
        ends = middle - part, middle + part
        low, high = self.linear * np.sinh(ends) if self.linear else np.exp(ends)
        return float(low), float(high)

    def _of(self, values: Any) -> Any:  # noqa: ANN401 an array or a number
        return np.arcsinh(values / self.linear) if self.linear else np.log(values)


def standard_error(totals: Array, counts: Array) -> float:
    """Return the standard error of a ratio of sums over clusters.

    Clusters without tokens do not count.
    """
    num_clusters = np.count_nonzero(counts)
    mean = totals.sum() / counts.sum()
    squares = np.square(totals - mean * counts).sum()
    scale = num_clusters / (num_clusters - 1)
    return float(np.sqrt(scale * squares) / counts.sum())


_NUM_DRAWS = 999  # their 2.5 % and 97.5 % quantiles are draws, not between two
# Where one cluster dominates the mean, draws without it would reach to infinity.
_MOST_REACH = 2
# Means whose draws are computed together: bounds memory.
_AT_ONCE = 64


class Resampling:
    r"""Draws of whole clusters, the same ones for every round of a batch.

    A draw covers every round, so rounds can be compared within a draw. The interval is
    the symmetric studentised bootstrap on a scale where heavy tails are nearer to
    symmetric (`IntervalScale`; the logarithm where values cannot be negative): how
    far a draw's mean is from the mean, in units of the draw's own standard error, gives
    the number of standard errors that the interval reaches. Draws show no tails beyond
    those of the clusters, so it is widened by the ratio of the t quantile, with one
    degree of freedom less than there are clusters, to the normal one: 9 % with 16, 2 %
    with 64. It reaches at most twice as far as the t interval.

    Measured by `tests/benchmarks/coverage.py` on heavy-tailed tokens with a lognormal
    effect of the sample, 2000 batches a case: where intervals should cover 95 %, means
    over tokens are covered in 93.2 to 95.3 % of rounds that 64 samples or more reach
    (of all samples, or of the worse ones), means of sample means in 93.6 to 95.8 %,
    means of signed values in 93.6 to 95.2 %. With 16 to 32 samples it is 92.5 to
    93.3 %, 93.2 to 94.2 % and 92.3 to 93.3 %; with 10, 92.8, 94.5 and 92.7 %; with 5
    to 9, 90.7 to 95.4 %, 94.0 to 97.9 % and 91.7 to 94.0 % (700 batches a case).

    Parameters
    ----------
    num_clusters : int
    seed : int
        The same seed gives the same draws.

    Attributes
    ----------
    weights: How often each cluster occurs in each draw.

    References
    ----------
    P. Hall, "The Bootstrap and Edgeworth Expansion", 1992, section 3.5 (symmetric
    studentised intervals). A. C. Cameron, J. B. Gelbach and D. L. Miller,
    "Bootstrap-based improvements for inference with clustered errors", 2008.
    T. C. Hesterberg, "What Teachers Should Know about the Bootstrap", 2015 (intervals
    widened for few units).

    Examples
    --------
    >>> draws = Resampling(10, seed=0)
    >>> low, high = draws.ratio_interval(np.arange(1.0, 11.0), np.ones(10))
    >>> bool(low < 5.5 < high)
    True
    """

    def __init__(self, num_clusters: int, seed: int = 0) -> None:
        self.num_clusters = num_clusters
        self.weights = _draw_clusters(num_clusters, seed)

    def ratio_interval(
        self, totals: Array, counts: Array, *, is_signed: bool = False
    ) -> tuple[float, float]:
        """Return the interval of one mean; see `ratio_intervals`."""
        many = totals[None], counts[None]
        return self.ratio_intervals(*many, is_signed=is_signed)[0]

    @quiet
    def ratio_intervals(
        self, totals: Array, counts: Array, *, is_signed: bool = False
    ) -> list[tuple[float, float]]:
        """Return intervals of means over tokens: sum of totals over sum of counts."""
        rows = zip(totals, counts, *self._draws(totals, counts), strict=True)
        return [_interval(*row, is_signed=is_signed) for row in rows]

    def _draws(self, totals: Array, counts: Array) -> tuple[Array, Array]:
        """Return the mean and standard error of each draw, one row per mean."""
        columns = (totals, counts, totals**2, totals * counts, counts**2, counts > 0)
        # One product for many means: small products are mostly overhead.
        product = np.concatenate(columns) @ self.weights.T
        total, count, tt, tc, cc, num = np.split(product, len(columns))
        means = total / count
        residuals = np.maximum(tt - 2 * means * tc + means**2 * cc, 0)
        return means, np.sqrt(residuals * num / (num - 1)) / count


# The steps of a run mostly have as many clusters each: the last draws are kept.
@lru_cache(maxsize=1)
def _draw_clusters(num_clusters: int, seed: int) -> Array:
    """Return how often each cluster occurs in each draw; not to be written to."""
    generator = np.random.default_rng(seed)
    shares = np.full(max(num_clusters, 1), 1 / max(num_clusters, 1))
    drawn = generator.multinomial(num_clusters, shares, _NUM_DRAWS).astype(np.float64)
    drawn.flags.writeable = False
    return drawn


def _interval(
    totals: Array, counts: Array, means: Array, errors: Array, *, is_signed: bool
) -> tuple[float, float]:
    used = counts > 0
    if is_few(counts) or not has_mean(totals, is_signed=is_signed):
        return ratio_interval(totals[used], counts[used], is_signed=is_signed)
    mean, error = totals.sum() / counts.sum(), standard_error(totals, counts)
    scale = IntervalScale.of(error, is_signed=is_signed)
    distances = scale.distances(means, errors, mean)
    # Draws without a standard error, such as of one cluster only, are left out.
    known = distances[np.isfinite(distances)]
    if len(known) == 0:
        return float(mean), float(mean)
    ratio = min(np.quantile(known, CONFIDENCE) / ndtri(UPPER_LEVEL), _MOST_REACH)
    quantile = ratio * stdtrit(np.count_nonzero(used) - 1, UPPER_LEVEL)
    return scale.around(mean, quantile * error)


def is_few(counts: Array) -> bool:
    """Return whether so few clusters have tokens that single ones dominate the mean.

    The interval is then not a bootstrap, and covers less often than it should.
    """
    return int(np.count_nonzero(counts)) < FEW_SAMPLES


@dataclass(frozen=True, kw_only=True)
class MeanEstimator:
    """How means and their intervals are estimated: of which metric, by which weight.

    Attributes
    ----------
    weight: What has equal weight in a mean; a weight of the measure takes precedence.
    """

    measure: TokenMetric
    weight: str

    def __post_init__(self) -> None:
        if self.weight not in ("token", "sample"):
            raise FrameError.build(
                key="weight",
                expected='"token" or "sample"',
                found=repr(self.weight),
                advice="Name what has equal weight in a mean.",
            )

    def means(
        self, part: Array, runs: Mapping[str, Array], totals: Array, draws: Resampling
    ) -> dict[str, Array]:
        """Return each part's mean, the ends of its interval, and `is_few`."""
        counts, cluster = runs["num_finite"], runs["cluster"]
        num_parts = int(part.max(initial=-1)) + 1
        if (self.measure.weight or self.weight) == "sample":
            part, totals, counts, cluster = _sample_means(part, runs, totals)
        # Pairs of a part and a cluster: most clusters may be in few parts.
        place = part.astype(np.int64) * max(draws.num_clusters, 1) + cluster
        pairs, pair = np.unique(place, return_inverse=True)
        of, cluster = np.divmod(pairs, max(draws.num_clusters, 1))
        totals, counts = np.bincount(pair, totals), np.bincount(pair, counts)
        total, count = (
            np.bincount(of, values, num_parts) for values in (totals, counts)
        )
        num_used = np.bincount(of, counts > 0, num_parts)
        ends = np.full((num_parts, 2), np.nan)
        # Parts with too few clusters have no interval.
        enough = num_used[of] >= MIN_CLUSTERS
        wanted, row = np.unique(of[enough], return_inverse=True)
        pieces = (row, cluster[enough], totals[enough], counts[enough])
        for start in range(0, len(wanted), _AT_ONCE):
            stop = min(start + _AT_ONCE, len(wanted))
            low, high = np.searchsorted(row, [start, stop])
            rows, columns, *values = (piece[low:high] for piece in pieces)
            tables = np.zeros((2, stop - start, draws.num_clusters))
            tables[:, rows - start, columns] = values
            ends[wanted[start:stop]] = draws.ratio_intervals(
                *tables, is_signed=self.measure.is_signed
            )
        return {
            "mean": means_of_sums(total, count),
            "ci_low": ends[:, 0],
            "ci_high": np.minimum(ends[:, 1], self.measure.upper_bound),
            "is_few": num_used < FEW_SAMPLES,
        }


def _sample_means(
    part: Array, runs: Mapping[str, Array], totals: Array
) -> tuple[Array, Array, Array, Array]:
    """Return each sample of a part: its mean, 1 if it has one, and its cluster."""
    place = part.astype(np.int64) * (int(runs["sample"].max(initial=0)) + 1)
    place += runs["sample"]
    _, first, sample = np.unique(place, return_index=True, return_inverse=True)
    counts = np.bincount(sample, runs["num_finite"])
    means = np.bincount(sample, totals) / np.maximum(counts, 1)
    return part[first], means, np.sign(counts), runs["cluster"][first]


def few_rows(means: pd.DataFrame) -> Array:
    """Return which rows have few samples, or few groups where groups are drawn.

    Parameters
    ----------
    means : DataFrame
        With `is_few`; without it, rows are judged by `num_samples`.

    Examples
    --------
    >>> import pandas as pd
    >>> few_rows(pd.DataFrame({"num_samples": [64, 4]}))
    array([False,  True])
    >>> few_rows(pd.DataFrame({"num_samples": [64, 4], "is_few": [True, True]}))
    array([ True,  True])
    """
    if "is_few" in means:
        return means["is_few"].to_numpy(dtype=bool)
    return means["num_samples"].to_numpy() < FEW_SAMPLES
