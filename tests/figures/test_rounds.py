"""The figure per round shows the summary, names the worst, and doubts the thin."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import plot_rounds, round_summary, token_frame
from rounddiag.core.scores import select_scores
from rounddiag.errors import BatchError, FrameError
from tests.batches import hand_batch, padded

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
    estimand = "mean |old - rollout| log-prob [nat],<br>token-weighted"
    assert layout.yaxis.title.text == estimand
    assert [note.text for note in layout.annotations] == [
        "samples that reach the round",
        "generated tokens",
    ]


def test_the_worst_round_is_named_with_its_interval_and_counts() -> None:
    figure = plot_rounds(summary(mean=[0.01, 0.0123, 0.002]))
    text = without_tags(figure.layout.title.text)
    assert text == (
        "Mismatch per round | ● worst: round 1, mean 0.0123 nat"
        " | 95 % interval 0.005 to 0.02 | 64 samples and 1,000 tokens in this round"
    )
    usual, marked, _ = figure.data[0].marker.color
    assert usual != marked
    assert figure.layout.shapes[0].x0 == 1


def test_a_round_of_few_samples_is_hollow_and_says_so() -> None:
    figure = plot_rounds(summary(num_samples=[10, 9], ci_low=[0.005, NAN]))
    means = figure.data[0]
    paper = figure.layout.template.layout.paper_bgcolor
    assert [color == paper for color in means.marker.color] == [False, True]
    assert "○ fewer than 10 samples, not compared" in figure.layout.title.text
    assert "fewer than 10 samples" not in "".join(means.customdata[0])
    assert "fewer than 10 samples: do not lean on it" in "".join(means.customdata[1])
    assert "too few independent samples for an interval" in means.customdata[1][1]


def test_a_round_without_a_finite_value_is_a_cross_and_not_a_zero() -> None:
    figure = plot_rounds(summary(mean=[0.01, NAN], num_nonfinite=[0, 7]))
    means, crosses = figure.data[:2]
    assert np.isnan(means.y[1])
    assert list(crosses.x) == [1]
    assert "no finite value in the round" in figure.layout.title.text
    assert "left out: 7 tokens whose diff is not finite" in figure.layout.title.text


def test_without_any_finite_value_no_round_is_the_worst() -> None:
    figure = plot_rounds(padded([[1, 1]], [[NAN, NAN]], [[-1.0, -1.0]]))
    assert "worst" not in figure.layout.title.text
    assert list(figure.data[1].x) == [0]


def test_no_round_is_said_instead_of_drawn() -> None:
    figure = plot_rounds(padded([[0, 0]], [[0.0, 0.0]], [[0.0, 0.0]]))
    assert "no generated tokens, so no rounds" in figure.layout.title.text
    assert figure.data == ()


def test_a_frame_without_the_columns_is_told() -> None:
    message = (
        "expected a frame with one row per round and the columns ['round',"
        " 'num_samples', 'num_tokens', 'num_nonfinite', 'share_zero', 'mean', 'ci_low',"
        " 'ci_high', 'p50', 'p90', 'p99', 'max']; found ['round', 'mean'],"
        " without ['num_samples', 'num_tokens', 'num_nonfinite', 'share_zero',"
        " 'ci_low', 'ci_high', 'p50', 'p90', 'p99', 'max']. Build it with"
        " `rounddiag.round_summary(batch)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_rounds(pd.DataFrame({"round": [0], "mean": [0.1]}))


def test_what_is_no_batch_is_told() -> None:
    message = (
        "expected a Batch or a DataFrame; found str."
        " Open a file with `rounddiag.load(path)` first."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_rounds("batch.parquet")  # type: ignore[arg-type]


def without_tags(text: str) -> str:
    return re.sub("<[^>]*>", "", text.replace("<br>", " | "))


def test_another_pair_is_named_on_the_axis() -> None:
    batch = hand_batch(scores={"current": torch.full((3, 6), -1.5)})
    figure = plot_rounds(batch, a="current")
    # Rollouts -1, -1 | -1, -1, -1 | -2 in round 0; -2 and -3 in round 1.
    means = next(trace for trace in figure.data if trace.mode == "lines+markers")
    assert means.y.tolist() == [0.5, 1.0]
    title = "mean |current - rollout|<br>log-prob [nat], token-weighted"
    assert figure.layout.yaxis.title.text == title
    assert plot_rounds(token_frame(batch, a="current")) == figure
    assert plot_rounds(select_scores(batch, "current", "rollout")) == figure
    given = plot_rounds(round_summary(batch, a="current"), layers={"counts": True})
    assert given.layout.yaxis.title.text == title
    assert plot_rounds(batch, a="old", b="rollout") == plot_rounds(batch)


def test_a_frame_of_another_pair_is_told() -> None:
    message = (
        "expected a Batch, to choose `a` and `b`; found a frame of the pair 'old',"
        " 'rollout'. Choose them in `rounddiag.token_frame(batch, a=..., b=...)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_rounds(token_frame(hand_batch()), a="current")


def test_a_score_that_the_batch_lacks_is_told() -> None:
    message = (
        "expected one of the scores ['old', 'rollout']; found 'current'. Name a score"
        " that the batch has."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        plot_rounds(hand_batch(), a="current")
