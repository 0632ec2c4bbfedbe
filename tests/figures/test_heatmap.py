"""The heatmap shows the round frame; missing, zero and undefined theme different."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from plotly.colors import unlabel_rgb

from rounddiag import plot_heatmap, plot_rounds, round_frame
from rounddiag.errors import FrameError
from rounddiag.figures._parts.display import caption
from rounddiag.figures._parts.labels import plain_text
from rounddiag.figures._parts.scales import LogScale
from rounddiag.stats import cell_frame
from tests.batches import hand_batch, padded
from tests.figures.plots import words

NAN = math.nan


def test_a_cell_is_the_metric_of_its_sample_and_round() -> None:
    cells = plot_heatmap(hand_batch()).data[0]
    assert cells.z.dtype == np.float32
    np.testing.assert_array_equal(cells.z, [[0.375, 1], [0.25, 2], [1, NAN]])
    np.testing.assert_array_equal(cells.text, [[2, 1], [3, 1], [1, 0]])
    largest = plot_heatmap(hand_batch(), metric="max_abs_diff").data[0]
    np.testing.assert_array_equal(largest.z, [[0.5, 1], [0.5, 2], [1, NAN]])
    # Whatever the colour shows, a cell says its mean, 95 % and largest too.
    p95 = [[0.25 + 0.95 * 0.25, 1], [0.25 + 0.9 * 0.25, 2], [1, 0]]
    for figure, others in ((cells, [p95, largest.z]), (largest, [cells.z, p95])):
        hover_values = np.moveaxis(figure.customdata, -1, 0)
        np.testing.assert_allclose(hover_values, np.nan_to_num(others), rtol=1e-6)
    assert cells.hovertemplate == (
        "<b>%{y}<br>round %{x}</b><br>tokens %{text}"
        "<br>mean |old − rollout| log-prob %{z:.3~g}"
        "<br>95th percentile of |old − rollout| log-prob %{customdata[0]:.3~g}"
        "<br>largest |old − rollout| log-prob %{customdata[1]:.3~g}<extra></extra>"
    )


def test_a_rewritten_context_is_a_mark_in_the_hover() -> None:
    columns = {
        "sample": np.array([0, 0, 1, 1, 2]),
        "round": np.array([0, 1, 0, 1, 0]),
        "is_rewritten": np.array([False, True, False, True, False]),
    }
    batch = replace(hand_batch(), round_columns=columns)
    cells = plot_heatmap(batch).data[0]
    line = "↻ context rewritten<br>"
    assert cells.hovertext.tolist() == [["", line], ["", line], ["", ""]]
    assert "<br>%{hovertext}mean |old" in cells.hovertemplate
    rows = plot_heatmap(batch, order=[1]).data[0]
    assert rows.hovertext.tolist() == [["", line]]


def test_samples_that_share_a_row_count_their_rewritten_contexts() -> None:
    num = 401  # two share a row
    rounds = pd.DataFrame({"sample": np.arange(num), "round": 0, "num_tokens": 1})
    rounds = rounds.assign(mean_abs_diff=1.0, max_abs_diff=1.0)
    rounds["is_rewritten"] = rounds["sample"].isin([0, 1, 2])
    texts = plot_heatmap(rounds).data[0].hovertext[:, 0].tolist()
    mark = "↻ context rewritten in"
    assert texts[:3] == [f"{mark} 2<br>2", f"{mark} 1<br>2", "2"]
    assert texts[-1] == "1"


def test_one_engine_has_no_mismatch() -> None:
    one = replace(hand_batch(), old_log_probs=None)
    draw = plot_heatmap(one, metric="surprise"), plot_rounds(one, metric="surprise")
    titles = [plain_text(caption(figure)[0]) for figure in draw]
    assert titles == ["Surprise per sample and round", "Surprise per round"]


def test_a_batch_and_its_round_frame_give_the_same_figure() -> None:
    batch = hand_batch()
    assert plot_heatmap(cell_frame(batch)) == plot_heatmap(batch)
    without = plot_heatmap(round_frame(batch)).data[0]
    assert without.customdata.shape == (3, 2, 1)


def test_a_missing_round_is_hatched_and_a_zero_is_not() -> None:
    batch = padded([[1, 0, 1], [1, 0, 0]], [[-1.0] * 3] * 2, [[-1.0, 0, -1.5]] * 2)
    figure = plot_heatmap(batch)
    cells, missing = figure.data[:2]
    np.testing.assert_array_equal(cells.z, [[0, 0.5], [0, NAN]])
    assert missing.fillpattern.shape == "/"
    assert corners(missing.x) == (0.5, 1.5)
    assert corners(missing.y) == (0.5, 1.5)
    assert "▨ the sample has no such round" in words(figure)
    assert "2 cells exactly 0, shown at the low end" in words(figure)


def test_a_sample_without_rounds_keeps_its_row() -> None:
    figure = plot_heatmap(padded([[0], [1], [0]], [[-1.0]] * 3, [[-2.0]] * 3))
    np.testing.assert_array_equal(figure.data[0].z, [[NAN], [1], [NAN]])
    assert tuple(figure.layout.yaxis.range) == (2.5, -0.5)


def test_a_round_without_a_finite_value_is_a_cross() -> None:
    figure = plot_heatmap(padded([[1, 0, 1]], [[NAN, 0, -1.0]], [[-2.0, 0, -2.0]]))
    crosses = figure.data[2]
    assert (list(crosses.x), list(crosses.y)) == ([0], [0])
    assert "1 cell without a finite value" in words(figure)
    assert "exactly 0" not in words(figure)


def test_the_colour_is_logarithmic_and_its_range_is_printed() -> None:
    values = [0.002, 0.02, 0.2, 2e-9, 0.0]
    frame = pd.DataFrame({"sample": 0, "round": range(5), "num_tokens": 1})
    frame["mean_abs_diff"] = frame["max_abs_diff"] = values
    figure = plot_heatmap(frame)
    cells, bar = figure.data[0], figure.data[-1].marker
    assert (cells.zmin, cells.zmax) == (2e-5, 0.2)
    assert (bar.cmin, bar.cmax) == (pytest.approx(math.log10(2e-5)), math.log10(0.2))
    assert bar.colorbar.ticktext == ("≤ 2e−5", "0.001", "0.01", "0.2")
    places = [place for place, _ in cells.colorscale]
    assert places[32] == pytest.approx((0.002 - 2e-5) / (0.2 - 2e-5))
    middle = unlabel_rgb(cells.colorscale[32][1])
    assert middle == pytest.approx((125, 124, 118), abs=2)


def test_a_scale_of_one_value_or_none_has_two_ends() -> None:
    assert LogScale.around(np.array([0.5])) == LogScale(low=0.05, high=0.5)
    assert LogScale.around(np.array([0.0, NAN])) == LogScale(low=0.001, high=1.0)


@pytest.mark.parametrize(
    ("num_samples", "num_rounds"),
    [
        (512, 60),
        pytest.param(5000, 100, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("metric", ["mean_abs_diff", "mean_diff"])
def test_figures_of_many_samples_and_rounds_stay_under_500_kilobytes(
    num_samples: int, num_rounds: int, metric: str
) -> None:
    generator = np.random.default_rng(0)
    size = generator.integers(num_rounds // 2, num_rounds + 1, num_samples)
    size[0] = num_rounds
    frame = pd.DataFrame(
        {
            "sample": np.repeat(np.arange(num_samples), size),
            "round": np.concatenate([np.arange(num) for num in size]),
        }
    )
    frame["num_tokens"] = generator.integers(1, 5000, len(frame))
    names = ["mean_abs_diff", "mean_diff", "max_abs_diff", "k3", "prob_diff", "beyond"]
    for name in [*names, "p95_abs_diff"]:
        frame[name] = generator.random(len(frame))
    frame["sample_id"] = "trajectory-" + frame["sample"].astype(str)
    frame["reward"] = frame["sample"] / 7
    figure = plot_heatmap(frame, metric=metric, order="worst")
    assert len(figure.to_json().encode()) < 500_000


def test_samples_of_many_rounds_share_rows_earlier() -> None:
    keys = {"sample": np.repeat(np.arange(145), 100), "round": np.tile(range(100), 145)}
    frame = pd.DataFrame({**keys, "num_tokens": 1, "mean_abs_diff": 0.5})
    figure = plot_heatmap(frame.assign(max_abs_diff=0.5))
    assert figure.data[0].z.shape == (73, 100)
    assert "145 samples: each row is 2 neighbours," in words(figure)


METRICS = (
    "['abs_diff', 'diff', 'prob_diff', 'k1', 'k2', 'k3', 'chi2', 'beyond',"
    " 'share_equal', 'after_first_unequal', 'clip_share', 'surprise', 'entropy',"
    " 'round_length', 'round_seconds', 'round_reward', 'round_change',"
    " 'train_rollout_logprob_abs_diff', 'mismatch_kl', 'token_mult_prob_error',"
    " 'max_abs_diff', 'mean_abs_diff', 'mean_diff']"
)


def test_every_metric_has_a_heatmap() -> None:
    # Sample 0, round 0 has the diffs 0.5 and -0.25; round 1 has 1.
    wanted = {
        "k1": [-0.125, -1],
        "k2": [(0.125 + 0.03125) / 2, 0.5],
        "chi2": [(math.exp(1) + math.exp(-0.5)) / 2 - 1, math.exp(2) - 1],
        "share_equal": [0, 0],
        "after_first_unequal": [1, 1],
        "clip_share": [1, 1],
        "train_rollout_logprob_abs_diff": [0.375, 1],
        "token_mult_prob_error": [(math.exp(0.5) + math.exp(0.25)) / 2, math.e],
    }
    for metric, values in wanted.items():
        cells = cell_frame(hand_batch(), [metric, "p95_abs_diff"])
        assert cells[metric][:2].tolist() == pytest.approx(values), metric
        assert plot_heatmap(cells, metric=metric) == plot_heatmap(
            hand_batch(), metric=metric
        )


@pytest.mark.parametrize(
    ("option", "value", "known", "advice"),
    [
        ("metric", "abs diff", METRICS, "Did you mean 'abs_diff'?"),
        ("metric", "reward", METRICS, "Did you mean 'round_reward'?"),
        ("metric", "?!", METRICS, "Leave it out for the default."),
    ],
)
def test_an_unknown_option_is_refused(
    option: str, value: str, known: str, advice: str
) -> None:
    message = f"`{option}`: expected one of {known}; found {value!r}. {advice}"
    options: dict[str, Any] = {option: value}
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_heatmap(hand_batch(), **options)


def test_rows_stand_in_the_order_that_was_asked_for() -> None:
    figure = plot_heatmap(hand_batch(), order="worst")
    np.testing.assert_array_equal(figure.data[0].z, [[1, NAN], [0.25, 2], [0.375, 1]])
    assert figure.layout.yaxis.title.text == "sample, worst first"
    # Ticks say numbers, cells theme up the name of their row.
    assert figure.layout.yaxis.labelalias == {
        "0": "2",
        "1": "1",
        "2": "0",
        "0.0": "sample 2",
        "1.0": "sample 1",
        "2.0": "sample 0",
    }
    assert (figure.layout.yaxis.tickformat, figure.layout.yaxis.hoverformat) == (
        "d",
        ".1f",
    )
    assert figure.data[0].hovertemplate.startswith("<b>%{y}<br>round %{x}</b><br>")


def test_a_cell_names_its_sample_and_reward_without_markup() -> None:
    ids = ("<b>x</b>", "a" * 40, "c")
    batch = hand_batch(sample_ids=ids, rewards=torch.tensor([0.0, 0.5, NAN]))
    names = plot_heatmap(batch).layout.yaxis.labelalias
    assert [names[f"{row}.0"] for row in range(3)] == [
        "sample 0 · &lt;b&gt;x&lt;/b&gt; · reward 0",
        f"sample 1 · {'a' * 28}… · reward 0.5",
        "sample 2 · c · reward not finite",
    ]


def test_groups_are_divided_by_lines() -> None:
    batch = hand_batch(group_ids=("g", "h", "g"))
    figure = plot_heatmap(batch, order="group")
    names = figure.layout.yaxis.labelalias
    assert [names[str(row)] for row in range(3)] == ["0", "2", "1"]
    lines = figure.data[3]
    np.testing.assert_array_equal(lines.y[:2], [1.5, 1.5])
    np.testing.assert_array_equal(lines.x[:2], [-0.5, 1.5])


def test_a_signed_metric_is_orange_below_zero_and_blue_above() -> None:
    figure = plot_heatmap(hand_batch(), metric="mean_diff")
    cells = figure.data[0]
    np.testing.assert_allclose(cells.z, [[0.125, 1], [-1 / 12, 2], [-1, NAN]])
    assert (cells.zmin, cells.zmax) == (-2, 2)
    colors = [color for _, color in cells.colorscale]
    assert colors[0] == "rgba(179, 77, 0, 1.0)"
    assert colors[-1] == "rgba(31, 102, 173, 1.0)"
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
    # Mean and largest, and how many samples.
    np.testing.assert_array_equal(cells.customdata[[0, 200], 0], [[1.5, 2], [401, 401]])
    assert cells.hovertext[[0, 200], 0].tolist() == [2, 1]
    names = figure.layout.yaxis.labelalias
    assert (names["0.5"], names["400"]) == ("2 samples from 0", "400")
    assert "401 samples: each row is 2 neighbours," in words(figure)
    assert "largest value" in words(figure)
    with pytest.raises(FrameError, match="Rows that samples share show the largest"):
        plot_heatmap(frame, pooling="mean")  # type: ignore[call-arg]


def test_pooled_rows_are_hatched_where_no_sample_has_the_round() -> None:
    frame = pd.DataFrame({"sample": [*range(401), 400], "round": [0] * 401 + [1]})
    frame["num_tokens"] = frame["mean_abs_diff"] = frame["max_abs_diff"] = 1.0
    figure = plot_heatmap(frame)
    assert corners(figure.data[1].x) == (0.5, 1.5)
    assert corners([y for y in figure.data[1].y if not math.isnan(y)]) == (-0.5, 399.5)
    assert tuple(figure.layout.yaxis.range) == (400.5, -0.5)


def corners(path: Sequence[float | None]) -> tuple[float, float]:
    known = [place for place in path if place is not None]
    return min(known), max(known)


def test_the_layout_says_which_samples_the_rows_are() -> None:
    worst_first = plot_heatmap(hand_batch(), order="worst")
    assert worst_first.layout.meta == {"samples": [2, 1, 0], "pool": 1}
