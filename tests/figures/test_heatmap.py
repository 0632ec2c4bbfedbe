"""The heatmap shows the round frame; missing, zero and undefined look different."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from plotly.colors import unlabel_rgb

from rounddiag import plot_heatmap, round_frame
from rounddiag.errors import FrameError
from rounddiag.figures.scale import LogScale
from tests.batches import hand_batch, padded

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ("metric", "['mean_abs_diff', 'mean_diff', 'max_abs_diff', 'k3']"),
        ("pooling", "['max', 'mean']"),
    ],
)
def test_an_unknown_option_is_told(option: str, known: str) -> None:
    message = (
        f"`{option}`: expected one of {known}; found 'median'."
        " Leave it out for the default."
    )
    options: dict[str, Any] = {option: "median"}
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_heatmap(hand_batch(), **options)


def test_an_unknown_layer_is_told() -> None:
    message = (
        "`layers`: expected names out of ['marginals']; found ['margins']."
        " `{name: False}` leaves a layer out."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_heatmap(hand_batch(), layers={"margins": False})


def test_rows_stand_in_the_order_that_was_asked_for() -> None:
    figure = plot_heatmap(hand_batch(), order="worst")
    np.testing.assert_array_equal(figure.data[0].z, [[1, NAN], [0.25, 2], [0.375, 1]])
    assert figure.layout.yaxis.title.text == "sample, worst first"
    assert list(figure.layout.yaxis.ticktext) == ["2", "1", "0"]
    assert figure.data[0].hovertext[:, 0].tolist() == ["2", "1", "0"]


def test_a_cell_names_its_sample_and_reward_without_markup() -> None:
    ids = ("<b>x</b>", "a" * 40, "c")
    batch = hand_batch(sample_ids=ids, rewards=torch.tensor([0.0, 0.5, NAN]))
    assert plot_heatmap(batch).data[0].hovertext[:, 1].tolist() == [
        "0 · &lt;b&gt;x&lt;/b&gt; · reward 0",
        f"1 · {'a' * 28}… · reward 0.5",
        "2 · c · reward nan",
    ]


def test_groups_are_divided_by_lines() -> None:
    batch = hand_batch(group_ids=("g", "h", "g"))
    figure = plot_heatmap(batch, order="group")
    assert list(figure.layout.yaxis.ticktext) == ["0", "2", "1"]
    lines = figure.data[3]
    np.testing.assert_array_equal(lines.y[:2], [1.5, 1.5])
    np.testing.assert_array_equal(lines.x[:2], [-0.5, 1.5])


def test_a_signed_metric_is_orange_below_zero_and_blue_above() -> None:
    figure = plot_heatmap(hand_batch(), metric="mean_diff")
    cells = figure.data[0]
    np.testing.assert_allclose(cells.z, [[0.125, 1], [-1 / 12, 2], [-1, NAN]])
    assert (cells.zmin, cells.zmax) == (-2, 2)
    colors = [unlabel_rgb(color) for _, color in cells.colorscale]
    red, _, blue = colors[0]
    assert red > blue
    red, _, blue = colors[-1]
    assert red < blue
    brightness = [sum(color) for color in colors]
    assert brightness == sorted(brightness, reverse=True)
    places = [place for place, _ in cells.colorscale]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0, 1)


def test_strips_show_all_samples_per_round_and_rewards() -> None:
    batch = hand_batch(rewards=torch.tensor([0.5, -1.0, NAN]))
    rounds, samples, unknown = plot_heatmap(batch).data[3:6]
    assert (rounds.yaxis, samples.xaxis) == ("y2", "x2")
    assert list(rounds.y) == pytest.approx([2.5 / 6, 1.5])
    np.testing.assert_array_equal(rounds.customdata, [[3, 6], [2, 2]])
    np.testing.assert_array_equal(samples.x, [0.5, -1, NAN])
    assert list(unknown.y) == [2]


def test_without_rewards_the_strip_shows_lengths() -> None:
    figure = plot_heatmap(hand_batch())
    assert list(figure.data[4].x) == [3, 4, 1]
    assert figure.layout.xaxis2.title.text == "tokens"


def test_strips_can_be_left_out() -> None:
    figure = plot_heatmap(hand_batch(), layers={"marginals": False})
    assert {trace.type for trace in figure.data} == {"heatmap", "scatter"}
    assert figure.layout.height == plot_heatmap(hand_batch()).layout.height - 64


def test_above_400_samples_neighbours_share_a_row_and_the_figure_says_so() -> None:
    frame = pd.DataFrame({"sample": range(401), "round": 0, "num_tokens": 2})
    frame["mean_abs_diff"] = frame["max_abs_diff"] = np.arange(401) + 1.0
    figure = plot_heatmap(frame)
    cells = figure.data[0]
    assert cells.z.shape == (201, 1)
    assert (cells.y0, cells.dy) == (0.5, 2)
    assert cells.z[:2, 0].tolist() == [2, 4]
    np.testing.assert_array_equal(
        cells.customdata[[0, 200], 0], [[2, 1.5, 2], [401, 401, 1]]
    )
    assert "401 samples: each row is 2 neighbours," in figure.layout.title.text
    assert "largest value" in figure.layout.title.text
    mean = plot_heatmap(frame, pooling="mean")
    assert mean.data[0].z[:2, 0].tolist() == [1.5, 3.5]
    assert "the mean over their tokens" in mean.layout.title.text


def test_pooled_rows_are_hatched_where_no_sample_has_the_round() -> None:
    frame = pd.DataFrame({"sample": [*range(401), 400], "round": [0] * 401 + [1]})
    frame["num_tokens"] = frame["mean_abs_diff"] = frame["max_abs_diff"] = 1.0
    figure = plot_heatmap(frame)
    assert corners(figure.data[1].x) == (0.5, 1.5)
    assert corners([y for y in figure.data[1].y if not math.isnan(y)]) == (-0.5, 399.5)
    assert tuple(figure.layout.yaxis.range) == (400.5, -0.5)


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


def corners(path: Sequence[float | None]) -> tuple[float, float]:
    known = [place for place in path if place is not None]
    return min(known), max(known)


def test_the_layout_says_which_samples_the_rows_are() -> None:
    worst_first = plot_heatmap(hand_batch(), order="worst")
    assert worst_first.layout.meta == {"samples": [2, 1, 0], "pool": 1}


def test_another_pair_is_named_everywhere() -> None:
    batch = hand_batch(scores={"current": torch.full((3, 6), -1.5)})
    figure = plot_heatmap(batch, a="current")
    np.testing.assert_array_equal(
        figure.data[0].z, [[0.5, 0.5], [0.5, 1.5], [0.5, NAN]]
    )
    bar = figure.data[-1].marker.colorbar.title.text
    assert bar == "mean |current - rollout| log-prob [nat]"
    assert "mean |current - rollout| log-prob %{z:.3g}" in figure.data[0].hovertemplate
    assert "old" not in json.dumps(figure.to_dict()["layout"]["annotations"])
    assert plot_heatmap(round_frame(batch, a="current")) == figure
