"""Heatmaps beside each other: one range, one order, and what they differ by."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rounddiag import plot_heatmap, round_frame
from rounddiag.errors import FrameError
from rounddiag.figures._parts.heatmap_cells import _fit_scale
from rounddiag.figures._parts.labels import CROSS
from rounddiag.stats import pair_samples, paired_cells
from tests.batches import hand_batch, padded
from tests.figures.plots import words

NAN = math.nan
IDS = pair_samples("abc", "abc")


def cells_of(metric: str = "mean_abs_diff", **others: Any) -> pd.DataFrame:
    """The hand batch, minus one whose |diff| is 0.25 everywhere."""
    after = hand_batch()
    flat = [[-1.25] * 6] * 3
    before = padded(after.response_mask.reshape(3, 6), [[-1.0] * 6] * 3, flat)
    return paired_cells(round_frame(before), round_frame(after), IDS, metric).assign(
        **others
    )


def test_the_colour_shows_what_is_more_than_in_the_first_batch() -> None:
    figure = plot_heatmap(cells_of(), metric="difference")
    cells = figure.data[0]
    np.testing.assert_array_equal(cells.z, [[0.125, 0.75], [0, 1.75], [0.75, NAN]])
    assert (cells.zmin, cells.zmax) == (-2, 2)
    label = "difference of mean |old − rollout| log-prob"
    assert figure.data[-1].marker.colorbar.title.text == f"{label} [nat]"
    assert cells.hovertemplate.startswith(
        f"<b>%{{y}}<br>round %{{x}}</b><br>tokens %{{text}}<br>{label} %{{z:.3~g}}"
        "<br>in the first batch %{customdata[0]:.3~g}"
        "<br>mean |old − rollout| log-prob %{customdata[1]:.3~g}"
    )
    hover_values = cells.customdata[0, 0]
    assert (hover_values[0], hover_values[1]) == (0.25, 0.375)


def test_words_say_which_colour_is_more_and_what_is_missing() -> None:
    title = words(plot_heatmap(cells_of(), metric="difference"))
    assert "violet: more than in the first batch, green: less" in title
    assert "▨ not in both" in title
    assert "1 cell exactly 0, shown in the middle" in title


def test_of_a_metric_without_unit_the_difference_has_none() -> None:
    cells = cells_of()
    cells.attrs["metric"] = "beyond"
    figure = plot_heatmap(cells, metric="difference")
    title = figure.data[-1].marker.colorbar.title.text
    assert title == "difference of share of tokens beyond a ratio of 2"


@pytest.mark.parametrize("metric", [None, "nothing known"])
def test_a_frame_that_does_not_say_of_what_is_drawn(metric: Any) -> None:
    cells = cells_of()
    cells.attrs["metric"] = metric
    figure = plot_heatmap(cells, metric="difference")
    assert figure.data[-1].marker.colorbar.title.text == "difference of means [nat]"


def test_a_cell_without_a_difference_is_a_cross_and_counts_for_no_mean() -> None:
    cells = cells_of(difference=[NAN, 0.75, 0.0, 1.75, 0.75])
    figure = plot_heatmap(cells, metric="difference")
    assert f"{CROSS} 1 cell without a finite value" in words(figure)
    strip = next(trace for trace in figure.data if trace.type == "bar")
    # Sample 1 has 3 tokens in round 0, sample 2 has one.
    assert strip.y.tolist() == [0.1875, 1.25]


def test_nothing_in_both_batches_is_said() -> None:
    figure = plot_heatmap(cells_of().iloc[:0], metric="difference")
    assert len(figure.data) == 0
    assert "no round of a sample in both batches" in words(figure)


@pytest.mark.parametrize("data", [hand_batch(), round_frame(hand_batch())])
def test_one_batch_alone_has_no_difference(data: Any) -> None:
    message = (
        "expected a frame with one row per sample and round of two batches and the"
        " columns ['sample', 'round', 'num_tokens', 'mean_abs_diff', 'max_abs_diff',"
        " 'baseline_mean', 'difference']; found "
    )
    advice = " Build it with `rounddiag.stats.paired_cells(batch)`."
    with pytest.raises(
        FrameError, match=f"^{re.escape(message)}.*{re.escape(advice)}$"
    ):
        plot_heatmap(data, metric="difference")


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
    ends = [_fit_scale(values, name) for name in ("surprise", "mean_abs_diff")]
    assert [(one.low, one.high) for one in ends] == [(0.1, 0.2), (0.0005, 5.0)]


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


def test_many_pairs_share_rows_that_show_the_largest_difference() -> None:
    one = pd.DataFrame({"sample": range(900), "round": 0, "num_tokens": 1})
    before = one.assign(mean_abs_diff=1.0, max_abs_diff=1.0)
    after = before.assign(mean_abs_diff=1.0 + (one["sample"] == 4) * -0.5)
    ids = [*map(str, range(900))]
    cells = paired_cells(before, after, pair_samples(ids, ids))
    figure = plot_heatmap(cells, metric="difference")
    assert figure.data[0].z[:3, 0].tolist() == [0, -0.5, 0]
    mean = plot_heatmap(cells, metric="difference", pooling="mean").data[0].z
    assert mean[1, 0] == pytest.approx(-0.5 / 3)
