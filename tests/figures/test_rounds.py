"""The figure per round shows the summary, marks the onset, and doubts the thin."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag import plot_rounds, round_summary, token_frame
from rounddiag.core.scores import select_scores
from rounddiag.errors import FrameError
from rounddiag.findings.onset import Onset
from tests.batches import hand_batch, padded
from tests.figures.plots import captions, shapes, words

NAN = math.nan


def summary(**columns: list[Any]) -> pd.DataFrame:
    size = len(next(iter(columns.values())))
    known: dict[str, list[Any]] = {
        "round": list(range(size)),
        "num_samples": [64] * size,
        "num_tokens": [1000] * size,
        "num_nonfinite": [0] * size,
        "share_zero": [0.0] * size,
        "mean": [0.01] * size,
        "ci_low": [0.005] * size,
        "ci_high": [0.02] * size,
        **{name: [0.5] * size for name in ("p50", "p90", "p99", "max")},
    }
    return pd.DataFrame(known | columns)


def test_the_points_the_intervals_and_the_bars_are_the_summary() -> None:
    frame = summary(
        mean=[0.01, 0.02],
        ci_low=[0.008, 0.01],
        ci_high=[0.015, 0.05],
        num_samples=[64, 32],
        num_tokens=[1000, 400],
    )
    means, _, samples, tokens = plot_rounds(frame).data
    assert list(means.x) == [0, 1]
    assert list(means.y) == [0.01, 0.02]
    assert means.error_y.array == pytest.approx([0.005, 0.03])
    assert means.error_y.arrayminus == pytest.approx([0.002, 0.01])
    assert list(samples.y) == [64, 32]
    assert list(tokens.y) == [1000, 400]


def test_a_batch_its_tokens_and_its_summary_give_the_same_figure() -> None:
    batch = hand_batch()
    figure = plot_rounds(batch)
    means = figure.data[1]
    assert list(means.y) == list(round_summary(batch)["mean_abs_diff"])
    assert list(means.y) == pytest.approx([2.5 / 6, 1.5])
    assert plot_rounds(token_frame(batch)) == figure
    without = plot_rounds(batch, layers={"survivors": False})
    assert plot_rounds(round_summary(batch)) == without


def test_a_summary_in_any_order_is_drawn_from_the_first_round_on() -> None:
    frame = summary(mean=[0.01, 0.02, 0.03]).iloc[[2, 0, 1]]
    means = plot_rounds(frame).data[0]
    assert (list(means.x), list(means.y)) == ([0, 1, 2], [0.01, 0.02, 0.03])


def test_a_round_of_few_samples_is_hollow_and_never_marked() -> None:
    frame = summary(num_samples=[10, 10, 4], mean=[0.01, 0.2, 0.5])
    onset = Onset(round=1, low=1, high=2, before=0.01, after=0.35)
    paper = plot_rounds(frame).layout.template.layout.paper_bgcolor
    for first, marked in ((1, [False, True, False]), (2, [False, False, False])):
        figure = plot_rounds(frame, onset=replace(onset, round=first))
        colors = figure.data[0].marker.line.color
        colors = [colors] * 3 if isinstance(colors, str) else colors
        assert [color != colors[0] for color in colors] == marked
        fills = figure.data[0].marker.color
        assert [color == paper for color in fills] == [False, False, True]
        assert [line.x0 for line in shapes(figure)] == [1] * any(marked)
        lines = without_tags(words(figure)).split(" | ")
        sign = "● " if any(marked) else ""
        assert f"{sign}onset: round {first} (95 %: 1 to 2)" in lines
        assert "○ fewer than 5 samples" in lines


def without_tags(text: str) -> str:
    return re.sub("<[^>]*>", "", text.replace("<br>", " | "))


def test_another_pair_is_named_on_the_axis() -> None:
    batch = hand_batch(scores={"current": torch.full((3, 6), -1.5)})
    figure = plot_rounds(batch, a="current")
    # Rollouts -1, -1 | -1, -1, -1 | -2 in round 0; -2 and -3 in round 1.
    means = next(trace for trace in figure.data if trace.mode == "lines+markers")
    assert means.y.tolist() == [0.5, 1.0]
    title = "mean |current − rollout|<br>log-prob [nat]"
    assert figure.layout.yaxis.title.text == title
    assert plot_rounds(token_frame(batch, a="current")) == figure
    assert plot_rounds(select_scores(batch, "current", "rollout")) == figure
    of_summary = plot_rounds(round_summary(batch, a="current"), layers={"counts": True})
    assert of_summary.layout.yaxis.title.text == title
    assert plot_rounds(batch, a="old", b="rollout") == plot_rounds(batch)


ONSET = Onset(round=1, low=1, high=1, before=0.25, after=0.75)


@pytest.mark.parametrize(
    ("data", "options", "is_marked"),
    [
        (hand_batch(), {"metric": "k3"}, True),
        (hand_batch(), {"weight": "sample"}, True),
        (token_frame(hand_batch()), {}, True),
        (hand_batch(), {"last_aligned": True}, False),
    ],
)
def test_an_onset_that_is_given_is_marked(
    data: Any, options: dict[str, Any], is_marked: bool
) -> None:
    assert "onset" not in words(plot_rounds(data, **options))
    notes = without_tags(words(plot_rounds(data, onset=ONSET, **options)))
    assert ("onset: round 1 (95 %: this round alone)" in notes) == is_marked
    assert ("mean |diff| 0.25, then 0.75 nat" in notes) == is_marked


@pytest.mark.parametrize("make", [str, rd.load], ids=["path", "batch"])
def test_a_batch_is_marked_where_its_verdict_says(make: Any) -> None:
    data = make("sample_data/image_window.parquet")
    onset = rd.diagnose(data).onset
    figure = plot_rounds(data, onset=onset)
    assert onset is not None
    assert f"onset: round {onset.round} " in without_tags(words(figure))
    assert [line.x0 for line in shapes(figure)] == [onset.round]
    unmarked = [
        plot_rounds(data),
        plot_rounds(data, onset=False),
    ]
    assert [shapes(figure) for figure in unmarked] == [[]] * len(unmarked)


def test_a_sound_batch_has_no_mark() -> None:
    path = "sample_data/healthy.parquet"
    figure = plot_rounds(path, onset=rd.diagnose(path).onset)
    assert shapes(figure) == []
    assert isinstance(figure.data[1].marker.line.color, str)


def test_the_survivors_are_measured_at_round_0() -> None:
    # At round 0: 0.5 and 0.25 | 0, 0.25 and 0.5 | 1. Samples 0 and 1 reach round 1.
    line = plot_rounds(hand_batch()).data[0]
    assert list(line.y) == pytest.approx([2.5 / 6, 1.5 / 5])
    assert list(line.customdata) == [3, 2]
    assert line.line.dash == "dash"


def test_bars_reach_from_quantile_to_quantile_and_a_stroke_marks_the_median() -> None:
    layers = {"quantiles": True, "survivors": False, "counts": False}
    figure = plot_rounds(hand_batch(), layers=layers)
    by_round = round_summary(hand_batch())
    *bars, median, _, _ = figure.data
    assert list(median.y) == list(by_round["p50"])
    for bar, (low, high) in zip(
        bars, [("p50", "p90"), ("p90", "p99"), ("p99", "max")], strict=True
    ):
        assert list(bar.base) == list(by_round[low])
        tops = np.add(list(bar.base), list(bar.y))
        assert tops == pytest.approx(by_round[high].to_numpy())
    assert figure.layout.yaxis.type == "log"
    assert not {"yaxis2", "yaxis3"} & {*figure.layout.to_plotly_json()}
    assert not figure.layout.annotations


def test_quantiles_below_a_millionth_are_at_the_edge_and_zeros_are_said() -> None:
    batch = padded([[1, 1, 1, 1]], [[-1.0, -1.0, -1.0, -2.0]], [[-1.0] * 4])
    figure = plot_rounds(batch, layers={"quantiles": True})
    low, high = figure.layout.yaxis.range
    assert low < np.log10(figure.data[3].y[0]) < low + 0.1 * (high - low)
    assert "exactly 0: 75 % of tokens" in captions(figure)
    assert "at the lower edge: below 10-6" in captions(figure)


def test_the_axis_holds_who_is_left_and_whole_intervals() -> None:
    # One long sample is far worse at round 0 than all together, and well at round 1.
    batch = padded([[1, 0, 1], [1, 1, 1]], [[-9.0, 0, -1], [-1] * 3], [[-1.0] * 3] * 2)
    figure = plot_rounds(batch)
    assert figure.data[0].y.tolist() == [2.0, 8.0]
    assert figure.layout.yaxis.range[1] > 8
    frame = summary(mean=[0.01, 0.02], ci_low=[0.005] * 2, ci_high=[0.02, 1.0])
    far = plot_rounds(frame)
    assert far.layout.yaxis.range == pytest.approx((-0.06, 1.06))


def test_from_the_end_the_last_round_is_minus_1() -> None:
    figure = plot_rounds(hand_batch(), last_aligned=True)
    assert list(figure.data[0].x) == [-2, -1]
    assert figure.layout.xaxis.title.text == (
        "round, counted from the last of each sample: −1"
    )
    weighted = plot_rounds(hand_batch(), metric="prob_diff", weight="sample")
    assert weighted.layout.yaxis.title.text == (
        "mean |old − rollout|<br>probability,<br>sample-weighted"
    )


def test_by_draws_a_line_for_each_value_that_differs_in_grey_too() -> None:
    batch = hand_batch(sample_columns={"rank": np.array(["b", "<i>", "b"])})
    figure = plot_rounds(batch, by="rank", layers={"counts": False})
    first, _, second, _ = figure.data
    assert list(first.y) == pytest.approx([0.25, 2.0])
    assert list(second.y) == pytest.approx([1.75 / 3, 1.0])
    assert first.marker.symbol != second.marker.symbol
    assert first.line.dash != second.line.dash
    assert "&lt;i&gt;" in words(figure)
    assert "<i>" not in words(figure)


SURVIVORS = (
    "`survivors`: expected a batch or its tokens, |diff| weighted by token from the"
    " first round on, and no `by`; found {}. Leave the layer out, or the options."
)
QUANTILES = (
    "`quantiles`: expected a metric that is never negative, and no `by`; found other"
    " options. Leave the layer out, or the options."
)
MADE = (
    "expected a round summary of metric='abs_diff', by=None, weight='token',"
    " last_aligned=False; found {}. Pass the options that `rounddiag.round_summary`"
    " was given."
)
REWARDED = hand_batch(rewards=[0.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("data", "options", "layer", "message"),
    [
        (REWARDED, {"metric": "k3"}, "survivors", SURVIVORS.format("other options")),
        (round_summary(REWARDED), {}, "survivors", SURVIVORS.format("a round summary")),
        (REWARDED, {"metric": "diff"}, "quantiles", QUANTILES),
        (REWARDED, {"by": "reward"}, "quantiles", QUANTILES),
        (round_summary(REWARDED, metric="k3"), {}, "", MADE.format("another `mean`")),
        (
            *(round_summary(REWARDED, by="reward"), {}, ""),
            MADE.format("several rows of one round"),
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    data: Any, options: dict[str, Any], layer: str, message: str
) -> None:
    layers = {layer: True} if layer else None
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_rounds(data, layers=layers, **options)
