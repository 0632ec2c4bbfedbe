"""The heatmap shows the round frame; missing, zero and undefined look different."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from plotly.colors import unlabel_rgb

from rounddiag import plot_heatmap, round_frame
from rounddiag.errors import FrameError
from rounddiag.figures.scale import LogScale
from tests.batches import hand_batch, padded

NAN = math.nan


def test_a_cell_is_the_metric_of_its_sample_and_round() -> None:
    cells = plot_heatmap(hand_batch()).data[0]
    assert cells.z.dtype == np.float32
    np.testing.assert_array_equal(cells.z, [[0.375, 1], [0.25, 2], [1, NAN]])
    np.testing.assert_array_equal(cells.text, [[2, 1], [3, 1], [1, 0]])
    largest = plot_heatmap(hand_batch(), metric="max_abs_diff").data[0]
    np.testing.assert_array_equal(largest.z, [[0.5, 1], [0.5, 2], [1, NAN]])
    np.testing.assert_array_equal(cells.customdata[..., 0], largest.z)
    np.testing.assert_array_equal(largest.customdata[..., 0], cells.z)


def test_a_batch_and_its_round_frame_give_the_same_figure() -> None:
    batch = hand_batch()
    assert plot_heatmap(round_frame(batch)) == plot_heatmap(batch)


def test_the_axes_and_the_colour_bar_say_what_is_drawn() -> None:
    figure = plot_heatmap(hand_batch(), metric="k3")
    assert figure.layout.xaxis.title.text == "round"
    assert figure.layout.yaxis.title.text == "sample"
    title = figure.data[-1].marker.colorbar.title.text
    assert title == "mean k3 estimate of KL(rollout | old) [nat]"


def test_a_missing_round_is_hatched_and_a_zero_is_not() -> None:
    batch = padded([[1, 0, 1], [1, 0, 0]], [[-1.0] * 3] * 2, [[-1.0, 0, -1.5]] * 2)
    figure = plot_heatmap(batch)
    cells, missing = figure.data[:2]
    np.testing.assert_array_equal(cells.z, [[0, 0.5], [0, NAN]])
    assert missing.fillpattern.shape == "/"
    assert corners(missing.x) == (0.5, 1.5)
    assert corners(missing.y) == (0.5, 1.5)
    assert "▨ the sample has no such round" in figure.layout.title.text
    assert "2 cells exactly 0, shown at the low end" in figure.layout.title.text


def test_a_sample_without_rounds_keeps_its_row() -> None:
    figure = plot_heatmap(padded([[0], [1], [0]], [[-1.0]] * 3, [[-2.0]] * 3))
    np.testing.assert_array_equal(figure.data[0].z, [[NAN], [1], [NAN]])
    assert tuple(figure.layout.yaxis.range) == (2.5, -0.5)


def test_a_round_without_a_finite_value_is_a_cross() -> None:
    figure = plot_heatmap(padded([[1, 0, 1]], [[NAN, 0, -1.0]], [[-2.0, 0, -2.0]]))
    crosses = figure.data[2]
    assert (list(crosses.x), list(crosses.y)) == ([0], [0])
    assert "1 cell without a finite value" in figure.layout.title.text
    assert "exactly 0" not in figure.layout.title.text


def test_the_colour_is_logarithmic_and_its_range_is_printed() -> None:
    values = [0.002, 0.02, 0.2, 2e-9, 0.0]
    frame = pd.DataFrame({"sample": 0, "round": range(5), "num_tokens": 1})
    frame["mean_abs_diff"] = frame["max_abs_diff"] = values
    figure = plot_heatmap(frame)
    cells, bar = figure.data[0], figure.data[-1].marker
    assert (cells.zmin, cells.zmax) == (2e-5, 0.2)
    assert (bar.cmin, bar.cmax) == (pytest.approx(math.log10(2e-5)), math.log10(0.2))
    assert bar.colorbar.ticktext == ("◂ 2e-05", "0.001", "0.01", "0.2")
    places = [place for place, _ in cells.colorscale]
    assert places[32] == pytest.approx((0.002 - 2e-5) / (0.2 - 2e-5))
    middle = unlabel_rgb(cells.colorscale[32][1])
    assert middle == pytest.approx((125, 124, 118), abs=2)


def test_a_scale_of_one_value_or_none_has_two_ends() -> None:
    assert LogScale.around(np.array([0.5])) == LogScale(low=0.05, high=0.5)
    assert LogScale.around(np.array([0.0, NAN])) == LogScale(low=0.001, high=1.0)


def test_512_samples_and_60_rounds_stay_under_500_kilobytes() -> None:
    generator = np.random.default_rng(0)
    num_rounds = generator.integers(1, 61, 512)
    num_rounds[0] = 60
    frame = pd.DataFrame(
        {
            "sample": np.repeat(np.arange(512), num_rounds),
            "round": np.concatenate([np.arange(num) for num in num_rounds]),
        }
    )
    frame["num_tokens"] = generator.integers(1, 1000, len(frame))
    frame["mean_abs_diff"] = frame["max_abs_diff"] = generator.random(len(frame))
    in_a_notebook = json.dumps(json.loads(plot_heatmap(frame).to_json()))
    assert len(in_a_notebook) < 500_000


def test_no_round_is_said_instead_of_drawn() -> None:
    figure = plot_heatmap(padded([[0, 0]], [[0.0, 0.0]], [[0.0, 0.0]]))
    assert "no generated tokens, so no rounds" in figure.layout.title.text
    assert figure.data == ()


def test_an_unknown_metric_is_told() -> None:
    message = (
        "`metric`: expected one of ['mean_abs_diff', 'max_abs_diff', 'k3'];"
        " found 'mean_diff'. Choose a magnitude per sample and round."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_heatmap(hand_batch(), metric="mean_diff")  # type: ignore[arg-type]


def test_a_frame_without_the_columns_is_told() -> None:
    frame = pd.DataFrame({"sample": [0], "round": [0], "num_tokens": [1]})
    message = (
        "expected a frame with one row per sample and round and the columns ['sample',"
        " 'round', 'num_tokens', 'mean_abs_diff', 'max_abs_diff', 'k3']; found"
        " ['sample', 'round', 'num_tokens'], without ['mean_abs_diff', 'max_abs_diff',"
        " 'k3']. Build it with `rounddiag.round_frame(batch)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_heatmap(frame, metric="k3")


def corners(path: tuple[float | None, ...]) -> tuple[float, float]:
    known = [place for place in path if place is not None]
    return min(known), max(known)
