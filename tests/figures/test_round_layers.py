"""The layers of the figure per round can be chosen, and refuse what they cannot say."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rounddiag import plot_rounds, round_summary
from rounddiag.errors import FrameError
from tests.batches import hand_batch, padded
from tests.figures.plots import shapes, words

OPTIONS = "metric={}, weight='token', by={}, last_aligned=False"


def only(*names: str) -> dict[str, bool]:
    every = ("mean", "ci", "quantiles", "survivors", "counts")
    return {name: name in names for name in every}


def test_the_survivors_are_measured_at_round_0() -> None:
    # At round 0: 0.5 and 0.25 | 0, 0.25 and 0.5 | 1. Samples 0 and 1 reach round 1.
    (line, *_) = plot_rounds(hand_batch(), layers=only("survivors")).data
    assert list(line.y) == pytest.approx([2.5 / 6, 1.5 / 5])
    assert list(line.customdata) == [3, 2]
    assert line.line.dash == "dash"


def test_bars_reach_from_quantile_to_quantile_and_a_stroke_marks_the_median() -> None:
    figure = plot_rounds(hand_batch(), layers=only("quantiles"))
    summary = round_summary(hand_batch())
    *bars, median, _, _ = figure.data
    assert list(median.y) == list(summary["p50"])
    for bar, (low, high) in zip(
        bars, [("p50", "p90"), ("p90", "p99"), ("p99", "max")], strict=True
    ):
        assert list(bar.base) == list(summary[low])
        tops = np.add(list(bar.base), list(bar.y))
        assert tops == pytest.approx(summary[high].to_numpy())
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis.title.text == "|old − rollout|<br>log-prob [nat], tokens"


def test_zeros_stand_in_a_band_that_is_named_and_their_share_is_said() -> None:
    batch = padded([[1, 1, 1, 1]], [[-1.0, -1.0, -1.0, -2.0]], [[-1.0] * 4])
    figure = plot_rounds(batch, layers={"quantiles": True})
    (band,) = [shape for shape in shapes(figure) if shape.type == "rect"]
    median = figure.data[3].y[0]
    assert band.y0 < median < band.y1 == 1e-6
    assert "≤ 10<sup>-6</sup>" in figure.layout.yaxis.ticktext
    assert "exactly 0: 75 % of tokens" in words(figure)


def test_without_counts_there_is_one_panel() -> None:
    figure = plot_rounds(hand_batch(), layers={"counts": False})
    assert not {"yaxis2", "yaxis3"} & {*figure.layout.to_plotly_json()}
    assert not figure.layout.annotations


def test_from_the_end_the_last_round_is_minus_1() -> None:
    figure = plot_rounds(hand_batch(), last_aligned=True)
    assert list(figure.data[0].x) == [-2, -1]
    assert figure.layout.xaxis.title.text == (
        "round, counted from the last of each sample: −1"
    )


def test_the_axis_names_the_metric_and_what_counts_alike() -> None:
    options: list[tuple[dict[str, Any], str]] = [
        ({"metric": "diff"}, "mean old − rollout<br>log-prob [nat]"),
        (
            {"metric": "prob_diff", "weight": "sample"},
            "mean |old − rollout|<br>probability,<br>sample-weighted",
        ),
    ]
    for arguments, title in options:
        assert plot_rounds(hand_batch(), **arguments).layout.yaxis.title.text == title


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


def fails(message: str, data: Any, **options: Any) -> None:
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_rounds(data, **options)


@pytest.mark.parametrize(
    ("metric", "column"), [("abs_diff", "mean_abs_diff"), ("diff", "mean_diff")]
)
def test_a_metric_goes_by_the_column_of_its_mean_too(metric: str, column: str) -> None:
    figure = plot_rounds(hand_batch(), metric=column)
    assert figure == plot_rounds(hand_batch(), metric=metric)


def test_survivors_of_another_metric_or_of_a_summary_are_refused() -> None:
    expected = (
        "`survivors`: expected a Batch or a token frame, and the default of `metric`,"
        " `weight`, `by` and `last_aligned`; found {}. Leave the layer out, or the"
        " options."
    )
    layers = {"survivors": True}
    options = OPTIONS.format("'k3'", None)
    fails(expected.format(options), hand_batch(), metric="k3", layers=layers)
    summary = round_summary(hand_batch())
    fails(expected.format("a round summary"), summary, layers=layers)


@pytest.mark.parametrize("option", [("metric", "diff"), ("by", "reward")])
def test_quantiles_that_cannot_be_drawn_are_refused(option: tuple[str, str]) -> None:
    options = dict([option])
    given = OPTIONS.format(
        repr(options.get("metric", "abs_diff")), repr(options.get("by"))
    )
    fails(
        "`quantiles`: expected a metric that is never negative, and no `by`; found"
        f" {given}. Leave the layer out, or plot one value's samples at a time.",
        hand_batch(rewards=[0.0, 1.0, 0.0]),
        layers={"quantiles": True},
        **options,
    )


def test_a_summary_of_something_else_is_refused() -> None:
    fails(
        "expected a round summary that was made with "
        + OPTIONS.format("'abs_diff'", None)
        + "; found another `mean`. Pass the options that `rounddiag.round_summary` was"
        " given.",
        round_summary(hand_batch(), metric="k3"),
    )
