"""Intervals from draws of whole clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rounddiag.stats.intervals import (
    _NUM_DRAWS,
    FEW_SAMPLES,
    IntervalScale,
    Resampling,
    ratio_interval,
    standard_error,
)
from tests.benchmarks.coverage import Round, covered


def by_loops(
    totals: list[float], counts: list[float], seed: int, *, is_signed: bool
) -> tuple[float, float]:
    """The same interval, draw by draw and cluster by cluster."""
    size = len(totals)

    def mean_and_error(drawn: list[int]) -> tuple[float, float]:
        number = sum(counts[i] for i in drawn)
        mean = sum(totals[i] for i in drawn) / number
        squares = sum((totals[i] - mean * counts[i]) ** 2 for i in drawn)
        used = sum(counts[i] > 0 for i in drawn)
        return mean, math.sqrt(used / (used - 1) * squares) / number

    mean, error = mean_and_error(list(range(size)))
    linear = 4 * error

    def scaled(value: float) -> float:
        return math.asinh(value / linear) if is_signed else math.log(value)

    def slope(value: float) -> float:
        return 1 / math.hypot(value, linear) if is_signed else 1 / value

    generator = np.random.default_rng(seed)
    distances = []
    for weights in generator.multinomial(size, np.full(size, 1 / size), _NUM_DRAWS):
        drawn = [i for i, times in enumerate(weights) for _ in range(times)]
        other, its_error = mean_and_error(drawn)
        apart = scaled(other) - scaled(mean)
        distances.append(abs(apart) / (its_error * slope(other)))
    # t with 9 degrees over the normal distribution, at 97.5 %; at most twice as far.
    reach = min(float(np.quantile(distances, 0.95)) / 1.9599640, 2) * 2.2621572
    ends = [scaled(mean) + sign * reach * error * slope(mean) for sign in (-1, 1)]
    low, high = (
        linear * math.sinh(end) if is_signed else math.exp(end) for end in ends
    )
    return low, high


def test_the_interval_is_that_of_plain_loops() -> None:
    totals = [0.5, 2.0, 0.25, 3.5, 1.0, 0.75, 4.0, 1.5, 0.1, 2.5]
    counts = [5.0, 9.0, 4.0, 7.0, 5.0, 5.0, 8.0, 6.0, 3.0, 9.0]

    interval = Resampling(10, seed=3).ratio_interval(np.array(totals), np.array(counts))

    wanted = by_loops(totals, counts, 3, is_signed=False)
    assert interval == pytest.approx(wanted, rel=1e-7)


def test_the_interval_of_signed_values_is_that_of_plain_loops() -> None:
    totals = [0.5, -2.0, 0.25, 3.5, -1.0, 0.75, -4.0, 1.5, 0.1, -2.5]
    counts = [5.0, 9.0, 4.0, 7.0, 5.0, 5.0, 8.0, 6.0, 3.0, 9.0]
    arrays = np.array(totals), np.array(counts)

    low, high = Resampling(10, seed=3).ratio_interval(*arrays, is_signed=True)

    wanted = by_loops(totals, counts, 3, is_signed=True)
    assert (low, high) == pytest.approx(wanted, rel=1e-7)
    assert low < 0 < high
    negative = Resampling(10, seed=3).ratio_interval(
        -arrays[0], arrays[1], is_signed=True
    )
    assert negative == pytest.approx((-high, -low))


def test_the_interval_of_few_signed_values_is_about_linear_near_zero() -> None:
    totals = np.array([-2.0, 1.0, 0.0, 3.0, -1.0])
    # mean 0.2, standard error sqrt(14.8 / 4 / 5), t with 4 degrees 2.7764451
    error = math.sqrt(14.8 / 20)
    scale = 4 * error
    reach = 2.7764451 * error / math.hypot(0.2, scale)
    middle = math.asinh(0.2 / scale)
    wanted = [scale * math.sinh(middle + sign * reach) for sign in (-1, 1)]
    interval = ratio_interval(totals, np.ones(5), is_signed=True)
    assert interval == pytest.approx(tuple(wanted))
    linear = 0.2 - 2.7764451 * error, 0.2 + 2.7764451 * error
    assert interval == pytest.approx(linear, rel=0.1)


def test_the_interval_of_signed_values_far_from_zero_is_that_of_the_log_scale() -> None:
    draws, totals = Resampling(40), 100 + np.arange(40.0)
    interval = draws.ratio_interval(totals, np.ones(40), is_signed=True)
    assert interval == pytest.approx(
        draws.ratio_interval(totals, np.ones(40)), rel=1e-3
    )


@pytest.mark.parametrize("is_signed", [True, False])
def test_one_cluster_that_is_most_of_the_mean_leaves_the_interval_finite(
    is_signed: bool,
) -> None:
    totals, counts = np.r_[np.linspace(0.9, 1.1, 11), 1e6], np.ones(12)
    interval = Resampling(12).ratio_interval(totals, counts, is_signed=is_signed)
    error = standard_error(totals, counts)
    # t with 11 degrees at 97.5 %.
    reach = 2 * 2.2009852 * error
    scale = IntervalScale.of(error, is_signed=is_signed)
    assert interval == pytest.approx(scale.around(totals.mean(), reach))
    assert 0 < interval[1] < 100 * totals.mean()


@pytest.mark.parametrize("num", [6, 12])
def test_equal_signed_values_leave_no_doubt(num: int) -> None:
    totals, counts = np.full(num, -2.0), np.full(num, 4.0)
    interval = Resampling(num).ratio_interval(totals, counts, is_signed=True)
    assert interval == (-0.5, -0.5)


@pytest.mark.parametrize("num", [6, 12])
def test_sums_whose_squares_are_too_large_give_no_warning(num: int) -> None:
    totals = np.array([1e200] * (num - 1) + [1.0])
    low, high = Resampling(num).ratio_interval(totals, np.ones(num))
    mean = totals.sum() / num
    assert np.isnan(low) or low <= mean <= high


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_sum_that_is_not_finite_has_no_interval(is_signed: bool) -> None:
    totals = np.array([np.inf, *range(1, 12)])
    interval = Resampling(12).ratio_interval(totals, np.ones(12), is_signed=is_signed)
    assert np.isnan(interval).all()


def test_equal_clusters_leave_no_doubt() -> None:
    interval = Resampling(16).ratio_interval(np.full(16, 2.0), np.full(16, 4.0))
    assert interval == (0.5, 0.5)


@pytest.mark.parametrize("num", [0, 1, 4])
def test_fewer_than_five_clusters_with_tokens_have_no_interval(num: int) -> None:
    totals = np.r_[np.arange(1.0, num + 1), np.zeros(10)]
    interval = Resampling(num + 10).ratio_interval(totals, np.sign(totals))

    assert np.isnan(interval).all()


@pytest.mark.parametrize("num", [FEW_SAMPLES, 8])
def test_intervals_of_few_clusters_cover_what_they_claim(num: int) -> None:
    # 90 % of the 95 % that they claim; with 700 batches 95.4 and 90.7 % are covered.
    generator = np.random.default_rng(0)
    found = [covered(generator, Round(num_samples=num))[2] for _ in range(300)]
    assert np.mean(found) >= 0.9 * 0.95


def test_no_difference_at_all_has_no_interval() -> None:
    assert np.isnan(Resampling(9).ratio_interval(np.zeros(9), np.ones(9))).all()
