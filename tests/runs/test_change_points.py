"""Planted changes are found where they are; noise has none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import pytest

from rounddiag._typing import Array
from rounddiag.runs import find_changes
from rounddiag.runs.serial_correlation import serial_correlation
from rounddiag.schema import CHANGES
from tests.benchmarks import change_points as cases


@pytest.mark.slow
@pytest.mark.parametrize("noise", [cases.independent, cases.heavy, cases.following])
def test_one_in_a_hundred_runs_without_a_change_shows_one(
    noise: Callable[[np.random.Generator, int], Array],
) -> None:
    flat = np.zeros((40, 8))
    result = cases.count(noise, flat, "step", None, num_runs=60)
    assert result["false alarms"] <= 1 / 60


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.5, 0.8])
def test_the_correlation_of_neighbours_is_not_underestimated(rho: float) -> None:
    generator = np.random.default_rng(0)
    noise = cases.following(generator, 200, rho)
    step = 5 * (np.arange(200) >= 120)  # of five standard deviations
    found = [
        serial_correlation([*(noise + change * step[:, None]).T])
        for change in (0.0, 1.0)
    ]
    assert [one for one in found if not rho <= one <= min(rho + 0.18, 0.95)] == []


def test_correlation_of_too_few_or_equal_values_is_0() -> None:
    assert serial_correlation([]) == 0
    assert serial_correlation([np.array([1.0])]) == 0
    assert serial_correlation([np.ones(9)]) == 0


@pytest.mark.parametrize(("at", "least"), [(20, 0.95), (32, 0.9), (37, 0.8)])
def test_a_fifth_of_planted_changes_at_most_is_missed(at: int, least: float) -> None:
    signal = cases.changed(40, at, 5)
    result = cases.count(cases.independent, signal, "step", at, num_runs=4)
    assert result["found"] >= least
    assert result["false alarms"] == 0


def test_changes_are_found_among_means_that_go_together() -> None:
    signal = cases.changed(200, 20, 5)
    noise = partial(cases.following, rho=0.8)
    result = cases.count(noise, signal, "step", 20, num_runs=3)
    assert result["found"] >= 0.6
    assert result["false alarms"] == 0


def test_a_level_of_its_own_in_the_middle_is_found() -> None:
    inside = (np.arange(40) >= 16) & (np.arange(40) < 24)
    signal = np.outer(inside, np.log([1, 1, 5, 5, 5, 5, 5, 5]))
    result = cases.count(cases.independent, signal, "step", 16, num_runs=2)
    assert result["found"] >= 0.9


@pytest.mark.parametrize(
    "noise", [cases.independent, cases.heavy, cases.following, cases.wandering]
)
@pytest.mark.parametrize("num", [6, 12])
def test_a_jump_of_few_steps_is_found_and_noise_has_none(
    num: int, noise: Callable[[np.random.Generator, int], Array]
) -> None:
    flat = cases.count(noise, np.zeros((num, 8)), "step", None, num_runs=100)
    assert flat["false alarms"] <= 1 / 100
    at = num // 2
    result = cases.count(noise, cases.changed(num, at, 100), "step", at, num_runs=5)
    assert result["found"] >= 0.7
    assert result["misplaced"] == 0


@pytest.mark.parametrize(("at", "is_found"), [(2, False), (3, True), (4, False)])
def test_a_jump_has_three_steps_on_either_side(at: int, *, is_found: bool) -> None:
    means = [0.01, 0.0101, 0.0099, 0.01, 0.0102, 0.01]
    jump = series(*means[:at], *(100 * mean for mean in means[at:]))
    assert find_changes(jump)["step"].tolist() == [at + 1] * is_found


def test_growth_is_no_step() -> None:
    signal = cases.growing(40, 10)
    result = cases.count(cases.independent, signal, "growth", None, num_runs=4)
    assert result["found"] >= 0.9


def series(*values: float, first: int = 1) -> pd.DataFrame:
    steps = range(first, first + len(values))
    return pd.DataFrame({"step": steps, "round": 0, "mean": values})


LOW, HIGH = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95], [4.0, 4.4, 3.6, 4.0, 4.2, 3.8]


def test_two_changes_of_a_round_are_two_rows() -> None:
    found = find_changes(series(*LOW * 2, *HIGH * 2, *LOW * 2))
    assert [*found] == [column.name for column in CHANGES.columns]
    assert found["step"].tolist() == [13, 25]
    assert found["before"].tolist() == [1.0, 4.0]
    assert found["after"].tolist() == [4.0, 1.0]
    assert (found["p_value"] < 0.01).all()


@pytest.mark.parametrize(
    "flat",
    [
        series(50.0, *LOW * 2, first=0),  # step 0 is left out
        series(*LOW, *LOW, 60.0, *LOW, *LOW),  # a spike
        series(*[0.0] * 20),
        series(*[np.nan] * 20),
        series(1.0, 2.0),
        series(),
    ],
)
def test_what_is_no_change(flat: pd.DataFrame) -> None:
    assert find_changes(flat).empty


def test_a_factor_of_less_than_a_half_is_no_change() -> None:
    low = [1 + 0.001 * value for value in LOW]
    assert find_changes(series(*low * 3, *[1.4 * one for one in low] * 3)).empty
    assert len(find_changes(series(*low * 3, *[1.6 * one for one in low] * 3))) == 1


def test_a_signed_metric_is_searched_as_it_is() -> None:
    values = [0.01, -0.01, 0.0, 0.01, -0.01, 0.0] * 2
    shifted = [value - 0.1 for value in values]
    found = find_changes(series(*values, *shifted), metric="diff")
    assert found["step"].tolist() == [13]
    assert found["after"].tolist() == pytest.approx([-0.1])


def test_a_long_series_is_averaged_over_neighbours() -> None:
    found = find_changes(series(*LOW * 150, *HIGH * 150))
    assert len(found) == 1
    assert abs(found["step"][0] - 901) <= 4
