"""Means with intervals look alike, and are explained alike, in all figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from rounddiag import (
    plot_compare,
    plot_conditional,
    plot_positions,
    plot_roles,
    plot_rounds,
)
from rounddiag.figures._parts.canvas import LIGHT, new_figure
from rounddiag.figures._parts.labels import CROSS
from rounddiag.figures._parts.lines import RoundLine
from rounddiag.figures._parts.means import add_means, explain_marks, hover_texts
from tests.batches import padded
from tests.figures.plots import captions, decode

NAN = math.nan
# Sample 0 has a token in each of two rounds; the second one has no finite value. Bins
# of probability and of positions, and roles, hold the tokens apart as rounds do.
BATCH = padded(
    [[1, 0, 1], [1, 0, 0]],
    [[-1.0, 0, NAN], [-1.0, 0, 0]],
    [[-1.5, 0, -0.1], [-1.5, 0, 0]],
    tokenizer=decode,
)
FIGURES: dict[str, Callable[..., go.Figure]] = {
    "rounds": plot_rounds,
    "positions": lambda batch, **options: plot_positions(
        batch, along="response", **options
    ),
    "conditional": plot_conditional,
    "roles": lambda batch, **options: plot_roles(
        batch,
        tagger=lambda text: [(0, 1, "broken" if text == "c" else "thought")],
        **options,
    ),
    "compare": lambda batch, **options: plot_compare([batch, batch[1:]], **options),
}
EVERY = pytest.mark.parametrize("name", FIGURES)


def means_of(figure: go.Figure) -> list[go.Scatter]:
    """The traces of the means on the main axes, without crosses."""
    return [
        trace
        for trace in figure.data
        if trace.type == "scatter"
        and "markers" in trace.mode
        and trace.customdata is not None
        and trace.yaxis is None
        and trace.marker.symbol != "x-thin"
    ]


@EVERY
def test_means_of_few_samples_are_hollow(name: str) -> None:
    figure = FIGURES[name](BATCH, theme="light")
    traces = means_of(figure)
    assert traces
    for trace in traces:
        assert set(trace.marker.color) == {LIGHT.paper}
        assert trace.marker.line.color not in {LIGHT.paper, None}
    assert "○ fewer than 5 samples" in captions(figure)


@EVERY
def test_a_mean_without_a_finite_value_is_a_cross(name: str) -> None:
    figure = FIGURES[name](BATCH)
    crosses = [
        (place, texts[1])
        for trace in figure.data
        if trace.type == "scatter" and trace.marker.symbol == "x-thin"
        for place, texts in zip(trace.x, trace.customdata or [], strict=False)
    ]
    # A role is counted once more as the last, and the first, of its round.
    assert len(crosses) == 1
    (_, text), *_ = crosses
    assert text.split("<br>")[0].startswith("mean not finite")
    assert text.split("<br>")[-2:] == [
        "left out: 1 token whose diff is not finite",
        "fewer than 5 samples: interpret with caution",
    ]
    assert f"{CROSS} no finite value" in captions(figure)
    assert "left out: 1 token whose diff is not finite" in captions(figure)


@EVERY
def test_intervals_can_be_left_out(name: str) -> None:
    def bars(**options: Any) -> list[Any]:
        means = means_of(FIGURES[name](BATCH, **options))
        axis = "error_x" if name == "roles" else "error_y"
        return [trace[axis].array is not None for trace in means]

    assert set(bars()) == {True}
    assert set(bars(layers={"ci": False})) == {False}


NAMES = ["one", "two", "three"]
MEANS = pd.DataFrame(
    {
        "num_samples": [64, 4, 12],
        "num_tokens": [1000, 400, 1],
        "num_nonfinite": [0, 3, 1],
        "mean": [0.01, 0.02, NAN],
        "ci_low": [0.008, 0.01, NAN],
        "ci_high": [0.015, 0.05, NAN],
    }
)


def test_hover_texts_have_the_mean_the_interval_and_the_counts() -> None:
    assert hover_texts(MEANS, NAMES, "abs_diff") == [
        [
            "one",
            "mean 0.01 nat<br>95 % interval 0.008 to 0.015<br>64 samples, 1,000 tokens",
        ],
        [
            "two",
            "mean 0.02 nat<br>95 % interval 0.01 to 0.05<br>4 samples, 400 tokens"
            "<br>left out: 3 tokens whose diff is not finite"
            "<br>fewer than 5 samples: interpret with caution",
        ],
        [
            "three",
            "mean not finite<br>too few independent samples for an interval"
            "<br>12 samples, 1 token<br>left out: 1 token whose diff is not finite",
        ],
    ]
    (_, text), *_ = hover_texts(MEANS, NAMES, "beyond", [["median 1"], [], []])
    assert text == (
        "mean 0.01<br>95 % interval 0.008 to 0.015<br>median 1"
        "<br>64 samples, 1,000 tokens"
    )


@pytest.mark.parametrize("is_horizontal", [False, True])
def test_points_intervals_and_crosses_are_where_they_should_be(
    is_horizontal: bool,
) -> None:
    figure = new_figure("title", [], LIGHT, height=300)
    hover = add_means(
        figure,
        RoundLine(name="", rows=MEANS, color="#123456"),
        "abs_diff",
        LIGHT,
        names=NAMES,
        places=np.array([3, 4, 5]),
        values=np.array([0.01, 0.02, NAN]),
        floor=0.5,
        stroke="#abcdef",
        is_horizontal=is_horizontal,
        marker={"size": 7},
    )
    points, crosses = figure.data
    assert hover == [list(texts) for texts in points.customdata]
    along, across = ("y", "x") if is_horizontal else ("x", "y")
    assert list(points[along]) == [3, 4, 5]
    assert list(points[across][:2]) == [0.01, 0.02]
    bars = points[f"error_{across}"]
    assert bars.array[:2] == pytest.approx([0.005, 0.03])
    assert bars.arrayminus[:2] == pytest.approx([0.002, 0.01])
    assert (bars.color, points.line.color) == ("#abcdef", "#abcdef")
    assert points.marker.color == ("#123456", LIGHT.paper, "#123456")
    assert points.marker.size == 7
    assert (list(crosses[along]), list(crosses[across])) == ([5], [0.5])
    assert crosses.customdata[0][0] == "three"


@pytest.mark.parametrize(
    ("count", "kind"), [(4, "samples"), (64, "independent samples")]
)
def test_few_groups_are_named_as_such(count: int, kind: str) -> None:
    means = MEANS.assign(num_samples=count, is_few=[True, False, False])
    lines = explain_marks(means, num_nonfinite=0)
    assert lines == [
        f"○ fewer than 5 {kind}",
        f"{CROSS} no finite value",
    ]
    (_, text), *_ = hover_texts(means, NAMES, "abs_diff")
    assert text.endswith(f"<br>fewer than 5 {kind}: interpret with caution")
