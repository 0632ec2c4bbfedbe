"""Agreement of two engines: means and Pearson's r, panel by panel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.stats.agreement import agreement, farthest

NAN, INF = np.nan, np.inf


def test_each_panel_has_its_own_means_and_r() -> None:
    rollout = np.array([0.0, 1.0, 2.0, 0.0, 1.0], dtype=np.float32)
    old = np.array([0.5, 1.0, 1.0, 1.0, 0.0], dtype=np.float32)
    panels = agreement(rollout, old, np.array([0, 0, 0, 1, 1]), num_panels=2)

    assert panels["num"].tolist() == [3, 2]
    assert panels["mean_abs_diff"].tolist() == pytest.approx([0.5, 1.0])
    # Deviations -1, 0, 1 and -1/3, 1/6, 1/6.
    assert panels["pearson"].tolist() == pytest.approx([0.5 / np.sqrt(2 / 6), -1.0])


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    rollout = np.array([1.0, NAN, 2.0, 3.0])
    old = np.array([1.0, 1.0, -INF, 5.0])
    panels = agreement(rollout, old, np.zeros(4, dtype=int), num_panels=2)

    assert panels["num"].tolist() == [2, 0]
    assert panels["num_nonfinite"].tolist() == [2, 0]
    assert panels["mean_abs_diff"][0] == 1.0
    assert np.isnan(panels["mean_abs_diff"][1])


def test_values_that_do_not_vary_have_no_r() -> None:
    same = np.full(3, 0.1, dtype=np.float32)
    panels = agreement(same, np.arange(3.0), np.zeros(3, dtype=int), num_panels=1)

    assert np.isnan(panels["pearson"]).all()


def test_the_farthest_of_each_panel_come_in_order() -> None:
    distance = np.array([1.0, 5.0, 3.0, 2.0, 4.0])
    panel = np.array([0, 0, 0, 3, 3])

    assert farthest(distance, panel, 2).tolist() == [1, 2, 4, 3]
    assert farthest(distance, panel, 1).tolist() == [1, 4]


def test_nothing_and_what_is_not_finite_is_never_far() -> None:
    distance = np.array([0.0, NAN, INF, 0.5])

    assert farthest(distance, np.zeros(4, dtype=int), 9).tolist() == [3]


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3))
def test_r_is_that_of_numpy(pairs: list[tuple[int, int]]) -> None:
    rollout, old = np.array(pairs, dtype=np.float64).T
    pearson = agreement(rollout, old, np.zeros(len(pairs)), num_panels=1)["pearson"][0]

    if np.ptp(rollout) == 0 or np.ptp(old) == 0:
        assert np.isnan(pearson)
    else:
        assert pearson == pytest.approx(np.corrcoef(rollout, old)[0, 1], abs=1e-12)


def test_no_panels_have_no_rows() -> None:
    nothing = np.empty(0)
    panels = agreement(nothing, nothing, nothing, num_panels=0)

    assert not panels["num"].any()
    assert panels["num_nonfinite"].sum() == 0
