"""Heatmaps beside each other: one range, one order, and no difference."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from rounddiag import plot_heatmap, round_frame
from rounddiag.errors import FrameError
from rounddiag.figures._parts.scales import choose_scale, without_extremes
from tests.batches import hand_batch

NAN = math.nan


def test_a_difference_of_two_batches_is_another_figure() -> None:
    message = (
        "`metric`: expected a metric of one batch; found 'difference', which 0.3.0"
        " removed. Use `rounddiag.plot_compare([before, after])`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_heatmap(hand_batch(), metric="difference")


@pytest.mark.parametrize(
    ("metric", "ends"), [("mean_abs_diff", (0.01, 5)), ("mean_diff", (-5, 5))]
)
def test_a_range_of_colours_is_kept_and_printed(metric: str, ends: Any) -> None:
    figure = plot_heatmap(hand_batch(), metric=metric, color_range=(0.01, 5.0))
    assert (figure.data[0].zmin, figure.data[0].zmax) == ends
    texts = figure.data[-1].marker.colorbar.ticktext
    assert texts[-1] == "5"


def test_outliers_of_one_engine_leave_the_others_their_colours() -> None:
    # The 2nd percentile is 0.1; the 98th 0.1 + 0.02 * 2.9 = 0.158.
    values = np.array([1e-5, *[0.1] * 97, 3.0, 5.0, NAN])
    assert choose_scale(values, is_signed=False).low == 0.0005
    scale = choose_scale(without_extremes(values), is_signed=False)
    assert (scale.low, scale.high) == (0.1, 0.2)


def test_arrows_mark_what_lies_beyond_a_range() -> None:
    figure = plot_heatmap(hand_batch(), color_range=(0.5, 1.0))
    texts = figure.data[-1].marker.colorbar.ticktext
    assert (texts[0], texts[-1]) == ("≤ 0.5", "≥ 1")


@pytest.mark.parametrize(
    "wrong", [(0.0, 1.0), (1.0, 1.0), (0.1, math.inf), (NAN, 1.0), "ab", 3, (1.0,)]
)
def test_an_invalid_range_is_refused(wrong: Any) -> None:
    message = (
        f"`color_range`: expected two sizes above 0, the smaller one first; found"
        f" {wrong!r}. Leave it out for one that fits."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_heatmap(hand_batch(), color_range=wrong)


def test_a_list_of_samples_are_the_rows_and_no_others() -> None:
    figure = plot_heatmap(hand_batch(), order=[2, 0])
    np.testing.assert_array_equal(figure.data[0].z, [[1, NAN], [0.375, 1]])
    assert figure.layout.meta == {"samples": [2, 0], "pool": 1}
    assert figure.layout.yaxis.title.text == "sample"


def test_samples_of_a_list_that_a_frame_has_no_rows_of_are_hatched() -> None:
    rounds = round_frame(hand_batch())
    figure = plot_heatmap(rounds[rounds["sample"] == 1], order=[4, 1])
    np.testing.assert_array_equal(figure.data[0].z, [[NAN, NAN], [0.25, 2]])
    with pytest.raises(FrameError, match="found 4"):
        plot_heatmap(hand_batch(), order=[4, 1])
