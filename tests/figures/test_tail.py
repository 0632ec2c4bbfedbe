"""The tail: a line a group of rounds, named at its end, ratios of 2 and 5 shaded."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch

from rounddiag import plot_tail, token_frame
from rounddiag.figures._parts.labels import CROSS
from rounddiag.figures.tail import spread_apart
from rounddiag.stats.tail import tail_shares
from tests.batches import hand_batch, padded
from tests.figures.plots import shapes, words

NAN = math.nan
LN2, LN5 = math.log(2), math.log(5)


def lines(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.mode == "lines"]


def texts(figure: go.Figure) -> list[str]:
    notes = figure.layout.annotations
    return [re.sub("<[^>]*>", "", note.text) for note in notes]


def test_a_line_is_the_tail_of_its_group_without_the_zeros() -> None:
    figure = plot_tail(hand_batch())
    found = tail_shares(hand_batch())
    for line, (_, part) in zip(lines(figure), found.groupby("rounds"), strict=True):
        drawn = part[part["abs_diff"] > 0]
        np.testing.assert_allclose(line.x, drawn["abs_diff"], rtol=1e-6)
        np.testing.assert_allclose(line.y, drawn["share"], rtol=1e-6)
        assert line.customdata.tolist() == drawn["num_tokens"].tolist()


def test_lines_are_named_where_they_end() -> None:
    frame = pd.DataFrame({"round": [0, 0, 2, 3], "diff": [0.5, 0.1, 0.9, 0.1]})
    figure = plot_tail(frame)
    assert texts(figure)[-3:] == ["━ 2 to 3", "━ 0", "round"]
    ends = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert [end.x[0] for end in ends] == [0.9, 0.5]


def test_names_have_the_order_of_the_lines_not_of_their_ends() -> None:
    low, high = [1e-3, 0.4, 0.5, 0.6], [0.01, 0.5, 0.6, 0.55]
    frame = pd.DataFrame({"round": [0] * 4 + [1] * 4, "diff": [*high, *low]})
    figure = plot_tail(frame)
    assert texts(figure)[-3:-1] == ["━ 0", "━ 1"]
    upper, lower = (note.y for note in figure.layout.annotations[-3:-1])
    assert upper > lower


def test_a_name_of_a_score_is_no_html() -> None:
    scores = {"<script>alert(1)</script>": torch.full((3, 6), -1.5)}
    figure = plot_tail(hand_batch(scores=scores), a="<script>alert(1)</script>")
    title = figure.layout.xaxis.title.text
    assert title == "|&lt;script&gt;aler… − rollout| log-prob [nat]"


def test_names_of_lines_that_end_together_do_not_touch() -> None:
    figure = plot_tail(pd.DataFrame({"round": range(64), "diff": 0.5}))
    names = [note for note in figure.layout.annotations if "━" in note.text]
    low, high = figure.layout.yaxis.range
    pixels = np.array([note.y for note in names]) * 320 / (high - low)
    assert len(names) == 7
    assert (np.diff(np.sort(pixels)) > 14.9).all()


def test_places_move_no_further_than_they_must() -> None:
    assert spread_apart(np.array([90.0, 50.0]), 15) == [90.0, 50.0]
    assert spread_apart(np.array([51.0, 50.0, 50.0]), 15) == [80.0, 65.0, 50.0]


def test_the_ratios_are_shaded_and_named_on_the_axis_whatever_the_diffs() -> None:
    figure = plot_tail(pd.DataFrame({"round": [0, 0], "diff": [0.001, 0.002]}))
    assert [shape.x0 for shape in shapes(figure)] == pytest.approx([LN2, LN5])
    assert texts(figure)[:2] == ["2x", "5x"]
    assert figure.layout.annotations[1].x == pytest.approx(math.log10(LN5))
    assert figure.layout.xaxis.range[1] > math.log10(LN5)
    title = words(figure)
    assert "shaded: probabilities differ by a factor of 2, of 5" in title
    assert "exactly 0" not in title


def test_zeros_and_what_is_not_finite_are_said_in_words() -> None:
    figure = plot_tail(pd.DataFrame({"round": 0, "diff": [0.0, 0.5, 1.0, 2.0, NAN]}))
    title = words(figure)
    assert "exactly 0, so not on the axis: 25 % of tokens" in title
    assert "left out: 1 token whose diff is not finite" in title
    assert lines(figure)[0].y[0] == 0.75


def test_the_axis_begins_where_nearly_all_tokens_are_left() -> None:
    diff = np.r_[1e-7, np.full(99, 0.05)]
    figure = plot_tail(pd.DataFrame({"round": 0, "diff": diff}))
    assert figure.layout.xaxis.range[0] == -2


def test_one_token_is_a_point_with_a_name() -> None:
    figure = plot_tail(padded([[1]], [[-1.0]], [[-1.5]]))
    end = figure.data[-1]
    assert (end.x[0], end.y[0], end.marker.size[0]) == (0.5, 1.0, 6)


@pytest.mark.parametrize(
    ("mask", "old", "why"),
    [
        (
            [[1]],
            [[NAN]],
            f"{CROSS} 1 token whose diff is not finite, and 0 of exactly 0",
        ),
        ([[1]], [[-1.0]], "the diff of 1 token is exactly 0: no tail"),
    ],
)
def test_nothing_to_draw_is_said(mask: object, old: object, why: str) -> None:
    figure = plot_tail(padded(mask, old, [[-1.0]]))
    assert why in words(figure)
    assert figure.data == ()


def test_a_hundred_rounds_stay_small() -> None:
    generator = np.random.default_rng(0)
    diff = generator.standard_t(1, 200_000)
    frame = pd.DataFrame({"round": np.arange(200_000) % 100, "diff": diff})
    assert len(json.dumps(json.loads(plot_tail(frame).to_json()))) < 200_000


def test_a_column_gives_a_line_for_each_of_its_values_with_a_key() -> None:
    batch = hand_batch(sample_columns={"rank": np.array([7, 3, 7])})
    figure = plot_tail(batch, by="rank")
    # |diff| 0, 0.25, 0.5, 2 of rank 3 and 0.25, 0.5, 1, 1 of rank 7.
    three, seven = lines(figure)
    assert (three.x.max(), seven.x.max()) == (2.0, 1.0)
    assert three.line.dash != seven.line.dash
    assert "rank 3" in three.hovertemplate
    signs = [trace for trace in figure.data if trace.mode == "markers"]
    assert [(sign.x[0], sign.y[0]) for sign in signs] == [(2.0, 0.25), (1.0, 0.5)]
    assert len({sign.marker.symbol for sign in signs}) == 2
    title = re.sub("<[^>]*>", "|", words(figure))
    assert "rank  |●| 3  |■| 7" in title
    assert plot_tail(token_frame(batch, ["rank"]), by="rank") == figure
