"""Intervals that count samples, not tokens: tokens of one sample go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Fewer clusters than this do not say how far clusters differ.
MIN_CLUSTERS = 5
# Within so many standard errors of 0 the scale of signed values is about linear.
_LINEAR_ERRORS = 4
# What is too large for a float has no interval, and no warning.
quiet = np.errstate(divide="ignore", invalid="ignore", over="ignore")


@quiet
def ratio_interval(
    totals: Array, counts: Array, confidence: float = 0.95, *, is_signed: bool = False
) -> tuple[float, float]:
    r"""Give the interval of a mean over tokens whose samples are the clusters.

    The mean is the ratio of two sums over clusters, :math:`m = \sum t_c / \sum n_c`.
    Its variance is that of the residuals :math:`t_c - m n_c` (linearisation), carried
    to a scale where heavy tails are nearer to symmetric (`Scale`), with `t` quantiles
    of one degree of freedom less than there are clusters.

    Parameters
    ----------
    totals, counts : ndarray, shape (num_clusters,)
        Sum over each cluster's tokens, and their number.
    confidence : float
    is_signed : bool
        Values can be negative.

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
    if len(totals) < MIN_CLUSTERS or not has_mean(totals, is_signed=is_signed):
        return float("nan"), float("nan")
    mean, error = totals.sum() / counts.sum(), standard_error(totals, counts)
    quantile = stdtrit(len(totals) - 1, (1 + confidence) / 2)
    return Scale.of(error, is_signed=is_signed).around(mean, quantile * error)


def has_mean(totals: Array, *, is_signed: bool) -> bool:
    """Tell whether the sum is finite, and positive unless it is signed."""
    total = totals.sum()
    return bool(np.isfinite(total) and (is_signed or total > 0))


@dataclass(frozen=True)
class Scale:
    r"""The scale on which intervals reach as far to either side.

    A mean of heavy-tailed values has a standard error in proportion to itself, so its
    logarithm is nearer to symmetric. Values that can be negative have
    :math:`\mathrm{arsinh}(m / h)` in its place: linear near 0, logarithmic far from it.

    Attributes
    ----------
    linear : float
        h; 0 for the logarithm.
    """

    linear: float

    @classmethod
    def of(cls, error: float, *, is_signed: bool) -> Scale:
        """Choose the scale of a mean with this standard error.

        Examples
        --------
        >>> Scale.of(0.5, is_signed=True)
        Scale(linear=2.0)
        """
        return cls(_LINEAR_ERRORS * error if is_signed else 0.0)

    def distances(self, means: Array, errors: Array, mean: float) -> Array:
        """Return how many of its standard errors each mean is away from another."""
        apart = np.abs(self._of(means) - self._of(mean))
        found: Array = apart * np.hypot(self.linear, means) / errors
        return found

    def around(self, mean: float, reach: float) -> tuple[float, float]:
        """Give the ends of an interval that reaches this far, in units at the mean.

        Examples
        --------
        >>> low, high = Scale(0.0).around(2.0, 1.0)
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
