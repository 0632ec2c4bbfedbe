"""Intervals of the difference of two means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from rounddiag.stats.difference_interval import difference_interval
from rounddiag.stats.intervals import Resampling

TOTALS = np.array(
    [
        [0.5, 2.0, 0.25, 3.5, 1.0, 0.75, 4.0, 1.5, 0.1, 2.5],
        [0.9, 2.5, 1.25, 3.0, 1.5, 0.50, 6.0, 2.5, 0.3, 2.0],
    ]
)
COUNTS = np.array(
    [
        [5.0, 9.0, 4.0, 7.0, 5.0, 5.0, 8.0, 6.0, 3.0, 9.0],
        [5.0, 8.0, 4.0, 9.0, 5.0, 3.0, 8.0, 6.0, 4.0, 9.0],
    ]
)


def by_loops(totals: Any, counts: Any, weights: Any) -> tuple[float, float, float]:
    """The same, draw by draw and cluster by cluster."""

    def difference_and_error(times: Any) -> tuple[float, float]:
        clusters = [c for c, num in enumerate(times) for _ in range(int(num))]
        means, sizes = [], []
        for total, count in zip(totals, counts, strict=True):
            sizes.append(sum(count[c] for c in clusters))
            means.append(sum(total[c] for c in clusters) / sizes[-1])
        residuals = [
            [(totals[i][c] - means[i] * counts[i][c]) / sizes[i] for c in clusters]
            for i in (0, 1)
        ]
        squares = [(b - a) ** 2 for a, b in zip(*residuals, strict=True)]
        return means[1] - means[0], math.sqrt(sum(squares))

    difference, error = difference_and_error(np.ones(len(totals[0])))
    distances = []
    for times in weights:
        drawn, its_error = difference_and_error(times)
        distances.append((drawn - difference) / its_error)
    num = len(totals[0]) if (counts > 0).all() else len(totals[0]) // 2
    reach = stdtrit(num - 1, 0.975) * math.sqrt(num / (num - 1))
    below, above = np.quantile(distances, [0.025, 0.975]) * stdtrit(num - 1, 0.975)
    normal = ndtri(0.975)
    below, above = min(below / normal, -reach), max(above / normal, reach)
    return (
        difference,
        difference - float(above) * error,
        difference - float(below) * error,
    )


def test_the_interval_is_that_of_plain_loops() -> None:
    weights = Resampling(10, seed=3).weights
    difference = difference_interval(TOTALS, COUNTS, weights)
    assert difference == pytest.approx(by_loops(TOTALS, COUNTS, weights), rel=1e-9)


def test_clusters_of_one_batch_each_are_compared_too() -> None:
    totals, counts = np.zeros((2, 20)), np.zeros((2, 20))
    totals[0, :10], totals[1, 10:] = TOTALS
    counts[0, :10], counts[1, 10:] = COUNTS
    draws = [Resampling(10, seed).weights for seed in (0, 1)]
    weights = np.concatenate(draws, axis=1)

    difference = difference_interval(totals, counts, weights)

    assert difference == pytest.approx(by_loops(totals, counts, weights), rel=1e-9)


def test_a_symmetric_interval_reaches_as_far_to_either_side() -> None:
    weights = Resampling(10, seed=1).weights
    difference, low, high = difference_interval(
        TOTALS, COUNTS, weights, is_symmetric=True
    )
    assert high - difference == pytest.approx(difference - low)
    _, lower, higher = difference_interval(TOTALS, COUNTS, weights)
    assert min(difference - lower, higher - difference) < high - difference
    assert high - difference < max(difference - lower, higher - difference)


def test_to_neither_side_does_an_interval_reach_less_far_than_that_of_t() -> None:
    weights = Resampling(10).weights[:20]
    difference, low, high = difference_interval(TOTALS, COUNTS, weights)
    differences = TOTALS[1] / COUNTS[1].sum() - TOTALS[0] / COUNTS[0].sum()
    assert differences.sum() == pytest.approx(difference)
    residuals = differences - (
        TOTALS[1].sum() / COUNTS[1].sum() ** 2 * COUNTS[1]
        - TOTALS[0].sum() / COUNTS[0].sum() ** 2 * COUNTS[0]
    )
    shortest = stdtrit(9, 0.975) * math.sqrt(10 / 9 * (residuals**2).sum())
    assert high - difference == pytest.approx(shortest)
    assert difference - low > 1.05 * shortest


def test_a_small_difference_of_large_means_is_exact() -> None:
    totals = np.stack([1e6 * COUNTS[0], 1e6 * COUNTS[0] + 2**-14])
    counts = np.stack([COUNTS[0], COUNTS[0]])
    difference, low, high = difference_interval(totals, counts, Resampling(10).weights)
    assert difference == pytest.approx(10 * 2**-14 / 61, rel=1e-9)
    assert low < difference < high < 2e-5


def test_5_to_9_clusters_have_an_interval_of_the_t_distribution() -> None:
    totals, counts = np.zeros((2, 5)), np.ones((2, 5))
    totals[1] = [1, 2, 3, 4, 5]
    difference, low, high = difference_interval(totals, counts, Resampling(5).weights)
    reach = stdtrit(4, 0.975) * math.sqrt(2.5 / 5)
    assert (difference, low, high) == pytest.approx((3, 3 - reach, 3 + reach))


def test_the_batch_with_fewer_clusters_says_whether_there_is_an_interval() -> None:
    totals, counts = TOTALS.copy(), COUNTS.copy()
    totals[1, 4:], counts[1, 4:] = 0, 0
    difference, low, high = difference_interval(totals, counts, Resampling(10).weights)
    assert difference == pytest.approx(7.65 / 26 - 16.1 / 61)
    assert math.isnan(low)
    assert math.isnan(high)
