"""The figure per round shows the summary, names the worst, and doubts the thin."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag import plot_rounds, round_summary, token_frame
from rounddiag.core.scores import select_scores
from rounddiag.findings.onset import Onset
from tests.batches import hand_batch, padded
from tests.figures.plots import shapes, words

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


def test_the_axes_say_what_is_drawn_and_in_which_unit() -> None:
    layout = plot_rounds(hand_batch()).layout
    assert layout.xaxis.title.text == "round"
    estimand = "mean |old − rollout|<br>log-prob [nat],<br>token-weighted"
    assert layout.yaxis.title.text == estimand
    assert [note.text for note in layout.annotations] == [
        "samples that reach the round",
        "generated tokens",
    ]


def test_the_worst_round_is_named_with_its_interval_and_counts() -> None:
    figure = plot_rounds(summary(mean=[0.01, 0.0123, 0.002]))
    text = without_tags(words(figure))
    assert text == (
        "Mismatch per round | ● worst: round 1, mean 0.0123 nat"
        " | 95 % interval 0.005 to 0.02 | 64 samples and 1,000 tokens in this round"
    )
    usual, marked, _ = figure.data[0].marker.color
    assert usual != marked
    assert shapes(figure)[0].x0 == 1


def test_a_round_of_few_samples_is_not_ranked() -> None:
    figure = plot_rounds(summary(num_samples=[10, 9], mean=[0.01, 0.5]))
    means = figure.data[0]
    paper = figure.layout.template.layout.paper_bgcolor
    assert [color == paper for color in means.marker.color] == [False, True]
    lines = without_tags(words(figure)).split(" | ")
    assert "● worst: round 0, mean 0.01 nat" in lines
    assert "○ hollow: fewer than 10 samples, not ranked" in lines


def test_without_any_finite_value_no_round_is_the_worst() -> None:
    figure = plot_rounds(padded([[1, 1]], [[NAN, NAN]], [[-1.0, -1.0]]))
    assert "worst" not in words(figure)
    assert list(figure.data[1].x) == [0]


def without_tags(text: str) -> str:
    return re.sub("<[^>]*>", "", text.replace("<br>", " | "))


def test_another_pair_is_named_on_the_axis() -> None:
    batch = hand_batch(scores={"current": torch.full((3, 6), -1.5)})
    figure = plot_rounds(batch, a="current")
    # Rollouts -1, -1 | -1, -1, -1 | -2 in round 0; -2 and -3 in round 1.
    means = next(trace for trace in figure.data if trace.mode == "lines+markers")
    assert means.y.tolist() == [0.5, 1.0]
    title = "mean |current − rollout|<br>log-prob [nat],<br>token-weighted"
    assert figure.layout.yaxis.title.text == title
    assert plot_rounds(token_frame(batch, a="current")) == figure
    assert plot_rounds(select_scores(batch, "current", "rollout")) == figure
    of_summary = plot_rounds(round_summary(batch, a="current"), layers={"counts": True})
    assert of_summary.layout.yaxis.title.text == title
    assert plot_rounds(batch, a="old", b="rollout") == plot_rounds(batch)


def test_a_figure_marks_the_onset_that_it_is_given() -> None:
    onset = Onset(round=1, low=1, high=1, before=0.25, after=0.75)
    notes = without_tags(words(plot_rounds(hand_batch(), onset=onset)))
    assert "onset: round 1 (95 % interval: this round alone)" in notes
    others: list[dict[str, Any]] = [
        {"metric": "k3"},
        {"weight": "sample"},
        {"last_aligned": True},
    ]
    for options in others:
        figure = plot_rounds(hand_batch(), onset=onset, **options)
        assert "onset" not in words(figure)


def test_a_figure_searches_for_no_onset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("rounddiag.findings.onset.View")
    batch = rd.load("sample_data/image_window.parquet")
    assert "worst: round 3" in without_tags(words(plot_rounds(batch)))
