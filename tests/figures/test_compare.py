"""Batches beside each other, and how they are told apart."""

from __future__ import annotations

import math
import re

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from rounddiag import plot_compare, round_summary, token_frame
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import DARK
from rounddiag.stats import compare_batches
from tests.batches import hand_batch, padded
from tests.figures.plots import words

NAN = math.nan
IDS = ("a", "b", "c")


def test_the_points_are_the_summaries_and_the_differences() -> None:
    batches = {"one": hand_batch(), "two": hand_batch()[:2]}
    figure = plot_compare(batches)
    one, _, two, _, apart = figure.data[:5]
    assert list(one.y) == list(round_summary(batches["one"])["mean"])
    assert list(two.y) == list(round_summary(batches["two"])["mean"])
    assert list(apart.y) == list(compare_batches(batches)["difference"])
    assert (one.yaxis, apart.yaxis) == (None, "y2")
    assert list(one.x) == [-0.2 / 2, 1 - 0.2 / 2]
    assert list(two.x) == [0.2 / 2, 1 + 0.2 / 2]


def test_the_strip_shows_both_batches_in_one_range() -> None:
    short = padded([[1]], [[-1.0]], [[-1.25]])
    figure = plot_compare([hand_batch(), short])
    strip, *_, missing, bar = figure.data[5:]
    np.testing.assert_allclose(strip.z, [[2.5 / 6, 1.5], [0.25, NAN]])
    assert (strip.zmin, strip.zmax) == (0.2, 2)
    assert missing.fillpattern.shape == "/"
    assert bar.marker.colorbar.ticktext == ("0.2", "1", "2")


def test_the_title_says_who_is_paired() -> None:
    named, nameless = hand_batch(sample_ids=IDS), hand_batch()
    text = words(plot_compare({"<b>first</b>": named, "same ids": named}))
    assert "&lt;b&gt;first&lt;/b&gt;: the baseline" in text
    assert "same ids: paired, 3 samples" in text
    text = words(plot_compare({"first": named, "z" * 40: nameless}))
    assert f"{'z' * 28}…: not paired by ids" in text


def test_intervals_that_leave_the_axis_are_counted() -> None:
    # The interval of six samples whose |diff| is 0 but one reaches down to 0.
    diff = [[-1.0]] + [[-1e-6]] * 5
    batch = padded([[1]] * 6, diff, [[0.0]] * 6)
    mean = round_summary(batch).iloc[0]
    assert mean["ci_low"] < mean["mean"] / 10
    figure = plot_compare([batch, batch])
    assert "2 intervals reach beyond the axis" in words(figure)
    low, high = (10**end for end in figure.layout.yaxis.range)
    assert mean["ci_low"] < low < mean["mean"] < high < mean["ci_high"]
    assert arrows_of(figure) == [
        ("triangle-down", -0.1, round(low, 6)),
        ("triangle-up", -0.1, round(high, 6)),
        ("triangle-down", 0.1, round(low, 6)),
        ("triangle-up", 0.1, round(high, 6)),
    ]
    assert arrows_of(plot_compare([hand_batch()] * 2)) == []  # it has no intervals


def arrows_of(figure: go.Figure) -> list[tuple[str, float, float]]:
    """The sign and the place of each mark of a cut interval."""
    cut = "the interval reaches beyond the axis<extra></extra>"
    return [
        (trace.marker.symbol, x, round(y, 6))
        for trace in figure.data
        if trace.hovertemplate == cut
        for x, y in zip(trace.x, trace.y, strict=True)
    ]


def test_the_second_batch_has_the_colour_of_more_than_in_the_first() -> None:
    means = plot_compare([hand_batch()] * 2, theme="dark").data[:4:2]
    looks = [(trace.marker.symbol, trace.line.color) for trace in means]
    assert looks == [("circle", DARK.text), ("square", DARK.changes[1])]


def test_a_difference_of_few_samples_is_hollow() -> None:
    many = padded(*(torch.full((10, 1), value) for value in (1.0, -1.0, -2.0)))
    solid, _, _, _, apart, *_ = plot_compare([many, many[:4]], theme="light").data
    assert solid.marker.color != ("#ffffff",)
    assert apart.marker.color == ("#ffffff",)
    assert apart.customdata[0][1].endswith(
        "4 samples, 10 before<br>fewer than 5 samples: interpret with caution"
    )


def test_means_of_exactly_zero_are_counted() -> None:
    same = padded([[1]], [[-1.0]], [[-1.0]])
    title = words(plot_compare([same, hand_batch()]))
    assert "1 mean exactly 0, drawn at the lower edge" in title


def test_a_batch_without_tokens_is_compared() -> None:
    empty = padded([[0]], [[0.0]], [[0.0]])
    assert len(plot_compare([empty, hand_batch()]).data) > 0


def test_another_metric_is_summarised_and_compared() -> None:
    batches = {"one": hand_batch(), "two": hand_batch()[:2]}
    figure = plot_compare(batches, metric="diff")
    one, _, _, _, apart = figure.data[:5]
    # Signed: 0.5 - 0.25 + 0 + 0.25 - 0.5 - 1 over 6 tokens; 1 + 2 over 2.
    assert list(one.y) == pytest.approx([-1 / 6, 1.5])
    assert list(apart.y) == pytest.approx([1 / 6, 0])
    assert figure.layout.yaxis.title.text == "mean old − rollout log-prob [nat]"
    assert figure.layout.yaxis.zeroline is True
    assert figure.layout.yaxis2.title.text == "difference of means [nat]"
    strip = figure.data[5]
    assert (strip.zmin, strip.zmax) == (-2, 2)
    assert figure.data[-1].marker.colorbar.title.text == (
        "mean old − rollout log-prob [nat]"
    )
    assert "exactly 0" not in words(figure)


def test_a_metric_without_a_unit_has_none() -> None:
    figure = plot_compare([hand_batch()] * 2, metric="prob_diff")
    assert figure.layout.yaxis2.title.text == "difference of means"
    assert figure.data[0].customdata[0][1].split("<br>")[0].count(" ") == 1


def test_batches_of_two_pairs_are_an_error() -> None:
    batch = hand_batch(scores={"ref": torch.full((3, 6), -1.5)})
    message = (
        "`batches`: expected batches of one pair of scores; found 'old' - 'rollout' and"
        " 'ref' - 'rollout'. Choose `a` and `b` for both of them."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_compare([batch, token_frame(batch, a="ref")])


def test_squares_of_huge_differences_have_a_colour() -> None:
    huge = padded([[1]], [[-1e30]], [[-1.0]])
    strip = plot_compare([huge] * 2, metric="k2").data[5]
    np.testing.assert_allclose(strip.z, [[5e59]] * 2, rtol=1e-6)
