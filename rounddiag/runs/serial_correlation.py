r"""The serial correlation of a run: of the means of neighbouring steps.

It is the correlation :math:`\rho` of an AR(1) process, one for all rounds of a run. An
estimate that is too low raises false alarms of changes, so there are two estimates,
each with a margin for its error, and the lower one counts.

- From differences of neighbours, whose own correlation is :math:`-(1 - \rho) / 2`.
  Large differences, such as changes of the level, are left out. The margin is the
  standard error :math:`\sqrt{2 (1 + \rho) / n}`. An error of :math:`\rho` changes the
  variance of a level in proportion to :math:`1 / (1 - \rho)`; above 0.6 the margin
  grows in that ratio.
- From residuals, after the one change that explains most of a series is removed. At 0.8
  its error is a third as large, but it fails for two changes. Removing a change from
  noise without one removes noise, which lowers the correlation of the residuals;
  simulated noise of known :math:`\rho`, treated alike, shows by how much. The result
  is the largest :math:`\rho` whose noise gives such an estimate within 1.5 standard
  errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from rounddiag._typing import Array

MAX_RHO = 0.95  # a larger correlation is that of a trend
# Differences beyond so many robust standard deviations are no noise; and the
# correlation above which the margin is more than a standard error.
_CUT, _HIGH_RHO = 3.0, 0.6
# Standard errors of residuals, the shortest level in them, the shortest series.
_ERRORS, _MIN_STEPS, _MIN_LENGTH = 1.5, 3, 12
# Correlations of simulated noise; series of each, and their length at most, as the bias
# of longer ones is small; and steps before them, which are dropped.
_RHOS = np.append(np.arange(18) / 20, [0.875, 0.9, 0.925, MAX_RHO])
_NUM_DRAWS, _MAX_LENGTH, _BEFORE = 400, 1000, 100


def serial_correlation(series: Sequence[Array]) -> float:
    """Return the correlation of neighbouring values, with a margin for its error."""
    return min(_by_differences(series), _by_residuals(series))


def _by_differences(series: Sequence[Array]) -> float:
    products = squares = 0.0
    num = 0
    for values in series:
        rises = np.diff(values)
        if len(rises) == 0:
            continue
        end = _CUT * 1.4826 * float(np.median(np.abs(rises)))
        rises[np.abs(rises) > end] = 0.0
        products += float(rises[1:] @ rises[:-1])
        squares += float(rises @ rises)
        num += len(rises)
    if not squares:
        return 0.0
    rho = float(np.clip(1 + 2 * products / squares, 0.0, MAX_RHO))
    error = np.sqrt(2 * (1 + rho) / num) * max(1.0, (1 - _HIGH_RHO) / (1 - rho))
    return min(rho + float(error), MAX_RHO)


def _by_residuals(series: Sequence[Array]) -> float:
    known = [
        values for values in series if len(values) >= _MIN_LENGTH and np.ptp(values)
    ]
    if not known:
        return MAX_RHO
    correlation = np.mean([_residual_correlations(values[None])[0] for values in known])
    length = min(int(np.median([len(values) for values in known])), _MAX_LENGTH)
    means, errors = _simulate_noise(length)
    lowest = means - _ERRORS * errors / np.sqrt(len(known))
    return float(np.interp(correlation, np.maximum.accumulate(lowest), _RHOS))


@lru_cache(maxsize=8)
def _simulate_noise(length: int) -> tuple[Array, Array]:
    """Return mean and deviation of `_residual_correlations` for noise of each rho."""
    shocks = np.random.default_rng(0).normal(size=(_NUM_DRAWS, _BEFORE + length))
    correlations = [
        _residual_correlations(_correlate(shocks, rho)[:, _BEFORE:]) for rho in _RHOS
    ]
    return np.mean(correlations, axis=1), np.std(correlations, axis=1)


def _correlate(shocks: Array, rho: float) -> Array:
    # As scipy.signal.lfilter does, which takes a second to import.
    noise = shocks.T.copy()
    for step in range(1, len(noise)):
        noise[step] += rho * noise[step - 1]
    return noise.T


def _residual_correlations(series: Array) -> Array:
    num, rows = series.shape[1], np.arange(len(series))
    values = series - series.mean(axis=1, keepdims=True)
    left = np.arange(_MIN_STEPS, num - _MIN_STEPS + 1)
    sums = values.cumsum(axis=1)[:, left - 1]
    between = np.square(sums) * num / (left * (num - left))
    best = between.argmax(axis=1)
    cut, total = left[best][:, None], sums[rows, best][:, None]
    levels = np.where(np.arange(num) < cut, total / cut, -total / (num - cut))
    rest = values - levels
    products = rest[:, 1:] * rest[:, :-1]
    products[rows, cut[:, 0] - 1] = 0.0  # the residuals at a cut are of two levels
    squares = np.square(rest).sum(axis=1)
    return products.sum(axis=1) / np.where(squares > 0, squares, 1.0)
