"""Mismatch by where tokens stand: a point a bin."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rounddiag import plot_positions
from rounddiag.errors import FrameError
from rounddiag.schema import PLACES
from rounddiag.stats import position_means
from rounddiag.stats.token_positions import Along
from tests.batches import hand_batch
from tests.figures.means import means_of

NAN = math.nan


def means(**columns: list[Any]) -> pd.DataFrame:
    return means_of({"low": [0, 1, 2, 4], "high": [0, 1, 3, 7]}, columns)


@pytest.mark.parametrize("along", ["round", "response", "end"])
def test_a_batch_and_its_means_give_the_same_figure(along: Along) -> None:
    batch = hand_batch()
    assert plot_positions(
        position_means(batch, along=along), along=along
    ) == plot_positions(batch, along=along)


@pytest.mark.parametrize("along", PLACES)
def test_the_axes_say_what_is_drawn_and_in_which_unit(along: Along) -> None:
    layout = plot_positions(means(low=[0, 1]), along=along).layout
    assert layout.xaxis.title.text == PLACES[along].label + (
        "" if along == "images" else ", bins from"
    )
    assert layout.yaxis.title.text == "mean |old − rollout| log-prob [nat]"
    heads = ["samples with such tokens", "generated tokens"]
    assert [note.text for note in layout.annotations] == heads


def test_a_point_is_named_by_its_bin() -> None:
    frame = means(low=[0, 1024], high=[0, 2047])
    points = plot_positions(frame, along="context").data[0]
    assert [name for name, _ in points.customdata] == [
        "tokens before it, prompt and response: 0",
        "tokens before it, prompt and response: 1,024 to 2,047",
    ]


def test_points_and_bars_are_the_means_and_counts() -> None:
    frame = means(mean=[0.01, 0.02], num_samples=[64, 32], num_tokens=[1000, 400])
    points, _, samples, tokens = plot_positions(frame).data
    assert list(points.y) == [0.01, 0.02]
    assert list(samples.y) == [64, 32]
    assert list(tokens.y) == [1000, 400]


def test_labels_leave_room_for_each_other() -> None:
    frame = means(
        low=[1 << i for i in range(17)], high=[(2 << i) - 1 for i in range(17)]
    )
    axis = plot_positions(frame, along="context").layout.xaxis
    assert axis.ticktext == ("1", "8", "64", "512", "4,096", "32,768")
    assert axis.tickvals == (0, 3, 6, 9, 12, 15)


def test_tokens_before_the_first_screenshot_are_named() -> None:
    figure = plot_positions(means(low=[0, NAN], high=[0, NAN]), along="image")
    assert figure.layout.xaxis.ticktext == ("0", "none")
    assert figure.data[0].customdata[1][0].endswith(": no screenshot yet")


def test_a_frame_of_any_index_is_drawn_from_the_left() -> None:
    frame = means(low=[0, 1, 2]).set_index(pd.Index([7, 8, 9]))
    assert list(plot_positions(frame).data[0].x) == [0, 1, 2]


def test_a_batch_without_what_is_asked_for_is_refused() -> None:
    message = (
        "`along`: expected a batch with screenshots for along='images';"
        " found a batch without them. Choose another one."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_positions(hand_batch(), along="images")


def test_an_unknown_place_is_refused_for_a_frame_too() -> None:
    with pytest.raises(FrameError, match=r"^`along`: expected one of .* found 'token'"):
        plot_positions(means(low=[0]), along="token")  # type: ignore[arg-type]


def test_without_counts_there_is_one_panel() -> None:
    figure = plot_positions(hand_batch(), layers={"counts": False})
    assert not {"yaxis2", "yaxis3"} & {*figure.layout.to_plotly_json()}
    assert len(figure.data) == 2
    assert not figure.layout.annotations


def test_any_metric_is_averaged_in_its_unit() -> None:
    figure = plot_positions(hand_batch(), along="end", metric="beyond")
    # Beyond a ratio of 2, log 2 nats: the last tokens 1 | 2 | -1, not -0.25 | -0.5.
    points = figure.data[0]
    assert points.y.tolist() == [0.6, 0, 0]
    label = "share of tokens whose importance ratio<br>is beyond limits"
    assert figure.layout.yaxis.title.text == label
    assert points.customdata[0][1].startswith("mean 0.6<br>")
    signed = plot_positions(hand_batch(), along="end", metric="diff")
    assert signed.data[0].y.tolist() == [0.25, 0.375, 0]
    chance = plot_positions(hand_batch(), along="end", metric="prob_diff").data[0]
    assert chance.y[1] == pytest.approx(
        (math.exp(-0.5) - math.exp(-1) + math.exp(-0.75) - math.exp(-1)) / 2
    )


def test_a_column_divides_the_tokens_of_each_bin_into_lines() -> None:
    batch = hand_batch(sample_columns={"rank": np.array([3, 7, 7])})
    figure = plot_positions(batch, along="end", by="rank")
    lines = [trace for trace in figure.data if trace.type == "scatter"][::2]
    # |diff| of rank 3: 0.5 | 0.25 1, of rank 7: 0 0.25 0.5 | 2, 1; the last tokens of
    # rounds are in bin 0.
    assert [line.y.tolist() for line in lines] == [[0.625, 0.5], [3.5 / 3, 0.25, 0.0]]
    assert [round(float(line.x[0]), 3) for line in lines] == [-0.125, 0.125]
    assert lines[1].customdata[2][0].endswith(": 2 to 3, 7")
    bars = [trace for trace in figure.data if trace.yaxis == "y3"]
    assert [bar.y.tolist() for bar in bars] == [[2, 1], [3, 1, 1]]
    assert figure.layout.yaxis3.range == (0, 5)
    means = position_means(batch, along="end", by="rank")
    assert plot_positions(means, along="end", by="rank") == figure
