"""Means of cells."""

from __future__ import annotations

import numpy as np
import pytest

from rounddiag.core.divergence import get_measure
from rounddiag.stats.cells import cell_means
from rounddiag.stats.intervals import Resampling

SAMPLE = np.array([0, 0, 1, 1, 2])
CELL = np.array([0, 3, 0, 0, 3])


def test_each_cell_has_its_mean_and_counts() -> None:
    cells = cell_means(np.array([1.0, 8.0, 2.0, 6.0, 4.0]), CELL, SAMPLE)

    assert cells["cell"].tolist() == [0, 3]
    assert cells["num_samples"].tolist() == [2, 2]
    assert cells["num_tokens"].tolist() == [3, 2]
    assert cells["num_nonfinite"].tolist() == [0, 0]
    assert cells["mean"].tolist() == [3.0, 6.0]
    assert np.isnan(cells["ci_low"]).all()


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    values = np.array([1.0, np.nan, 2.0, np.inf, np.nan])
    cells = cell_means(values, CELL, SAMPLE)

    assert cells["num_tokens"].tolist() == [3, 2]
    assert cells["num_nonfinite"].tolist() == [1, 2]
    assert cells["mean"].tolist() == pytest.approx([1.5, np.nan], nan_ok=True)


def test_the_interval_is_of_clusters_of_samples() -> None:
    sample = np.repeat(np.arange(24), 3)
    values = np.arange(72.0)
    pairs = np.arange(24) // 2
    cells = cell_means(values, np.zeros(72, dtype=int), sample, pairs)

    totals = values.reshape(12, 6).sum(1)
    expected = Resampling(12).ratio_interval(totals, np.full(12, 6.0))
    assert (cells["ci_low"][0], cells["ci_high"][0]) == pytest.approx(expected)


def test_cells_of_few_clusters_are_marked() -> None:
    sample = np.r_[np.arange(20), np.arange(4)]
    cell = np.repeat([0, 1], [20, 4])
    values = np.arange(24.0)
    assert cell_means(values, cell, sample)["is_few"].tolist() == [False, True]
    fives = np.arange(20) // 5
    cells = cell_means(values, cell, sample, fives)
    assert cells["is_few"].tolist() == [True, True]


def test_a_mean_of_sample_means_counts_samples_alike() -> None:
    values = np.array([1.0, 8.0, 2.0, 6.0, 4.0])
    measure = get_measure("train_rollout_logprob_abs_diff")
    cells = cell_means(values, CELL, SAMPLE, measure=measure)

    assert cells["mean"].tolist() == [2.5, 6.0]
    assert cells["num_tokens"].tolist() == [3, 2]


def test_values_with_a_sign_have_an_interval_around_zero() -> None:
    values, cell = np.tile([-2.0, 1.0, 1.0], 4), np.zeros(12, dtype=int)
    cells = cell_means(values, cell, np.arange(12), measure=get_measure("diff"))

    assert cells["mean"].tolist() == [0.0]
    assert cells["ci_low"][0] == pytest.approx(-cells["ci_high"][0])
