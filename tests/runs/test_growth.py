"""What a mismatch that changes over steps goes with: the updates, or the lag."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rounddiag.runs.growth import describe_growth

Array = np.ndarray
NUM_STEPS = 40


def steps_of(mean: Array, lag: Array | int) -> pd.DataFrame:
    step = np.arange(1, len(mean) + 1) * 10
    versions = [str(version) for version in (step - lag).tolist()]
    return pd.DataFrame(
        {"step": step, "weight_version": versions, "mean_abs_diff": mean}
    )


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_growth_at_any_lag_goes_with_the_updates(rng: np.random.Generator) -> None:
    mean = np.linspace(0.01, 0.36, NUM_STEPS) * rng.lognormal(0, 0.05, NUM_STEPS)
    constant = describe_growth(steps_of(mean, 1))
    assert constant.startswith("mean |diff| goes from 0.011 to 0.33 nat ")
    assert "with the updates since the start" in constant
    assert "the recorded lag does not change" in constant
    varying = describe_growth(steps_of(mean, rng.integers(0, 4, NUM_STEPS)))
    assert "with the updates since the start" in varying


def test_staleness_goes_with_the_lag(rng: np.random.Generator) -> None:
    lag = rng.integers(0, 4, NUM_STEPS)
    mean = (0.01 + 0.05 * lag) * rng.lognormal(0, 0.1, NUM_STEPS)
    assert "as staleness does" in describe_growth(steps_of(mean, lag))


@pytest.mark.parametrize("at", [2, 10, 20, 35])
def test_a_jump_is_no_growth(rng: np.random.Generator, at: int) -> None:
    mean = np.where(np.arange(NUM_STEPS) < at, 0.003, 0.08)
    mean = mean * rng.lognormal(0, 0.1, NUM_STEPS)
    lag = rng.integers(0, 4, NUM_STEPS)
    assert describe_growth(steps_of(mean, lag)) == ""


def test_without_a_lag_nothing_is_said() -> None:
    mean = np.linspace(0.01, 0.36, NUM_STEPS)
    steps = steps_of(mean, 0)
    for version in ("", "v2", "1584"):  # unknown, no number, one that never changes
        assert describe_growth(steps.assign(weight_version=version)) == ""
    assert describe_growth(steps[:7]) == ""
    assert describe_growth(steps[:0]) == ""


def test_ranges_of_versions_and_steps_without_tokens_count_as_far_as_they_go() -> None:
    mean = np.linspace(0.01, 0.36, NUM_STEPS)
    mean[5] = np.nan
    steps = steps_of(mean, 1)
    last = steps["step"] - 1
    steps["weight_version"] = [f"{v - 1} to {v}" for v in last]
    assert "the recorded lag does not change" in describe_growth(steps)
