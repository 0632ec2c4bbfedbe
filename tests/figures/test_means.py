"""Means with intervals look alike, and are explained alike, in all figures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from rounddiag import (
    load,
    plot_compare,
    plot_conditional,
    plot_positions,
    plot_roles,
    plot_rounds,
)
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import LIGHT, new_figure
from rounddiag.figures._parts.data import prepare
from rounddiag.figures._parts.labels import CROSS
from rounddiag.figures._parts.lines import RoundLine
from rounddiag.figures._parts.means import add_means, explain_marks, hover_texts
from rounddiag.schema import Pair
from rounddiag.stats import means_by, standardise
from tests.batches import hand_batch, padded
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
LIKELY, RARE = math.log(0.8), math.log(0.02)
TOKENS = pd.DataFrame(
    {
        "sample": [0, 0, 0, 1, 1, 1],
        "round": [0, 0, 1, 0, 1, 1],
        "diff": [0.1, -0.5, 0.7, 0.3, -0.9, NAN],
        "rollout_log_prob": [LIKELY, RARE, RARE, LIKELY, RARE, LIKELY],
    }
)


def means(**columns: list[Any]) -> pd.DataFrame:
    """A frame of means; `columns` say what differs from these."""
    size = len(next(iter(columns.values())))
    known: dict[str, list[Any]] = {
        "place": [0, 1, 2, 4][:size],
        "label": ["thought", "action", "syntax", "first of a round"][:size],
        "overlaps": [False, False, False, True][:size],
        "num_samples": [64] * size,
        "num_tokens": [1000] * size,
        "num_nonfinite": [0] * size,
        "mean": [0.01] * size,
        "ci_low": [0.005] * size,
        "ci_high": [0.02] * size,
        "is_few": [False] * size,
    }
    return pd.DataFrame({**known, **columns})


def drawn(figure: go.Figure) -> list[go.Scatter]:
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


@pytest.mark.parametrize("name", FIGURES)
def test_few_samples_are_hollow_and_a_mean_without_a_finite_value_is_a_cross(
    name: str,
) -> None:
    figure = FIGURES[name](BATCH, theme="light")
    traces = drawn(figure)
    assert traces
    for trace in traces:
        assert set(trace.marker.color) == {LIGHT.paper}
        assert trace.marker.line.color not in {LIGHT.paper, None}
        assert trace["error_x" if name == "roles" else "error_y"].array is not None
    across, axis = ("x", "xaxis") if name == "roles" else ("y", "yaxis")
    crosses = [
        (place, texts[1])
        for trace in figure.data
        if trace.type == "scatter" and trace.marker.symbol == "x-thin"
        for place, texts in zip(trace[across], trace.customdata or [], strict=False)
    ]
    # A role is counted once more as the last, and the first, of its round.
    ((place, text),) = crosses
    low, high = figure.layout[axis].range
    at = place if figure.layout[axis].type is None else math.log10(place)
    assert low <= at < low + 0.05 * (high - low)
    assert text.split("<br>")[0].startswith("mean not finite")
    assert text.split("<br>")[-2:] == [
        "left out: 1 token whose diff is not finite",
        "fewer than 5 samples: interpret with caution",
    ]
    assert {
        "○ fewer than 5 samples",
        f"{CROSS} no finite value",
        "left out: 1 token whose diff is not finite",
    } <= {*captions(figure)}


MEANS = means(
    head=["one", "two", "three"],
    place=[3, 4, 5],
    num_samples=[64, 4, 12],
    num_tokens=[1000, 400, 1],
    num_nonfinite=[0, 3, 1],
    mean=[0.01, 0.02, NAN],
    ci_low=[0.008, 0.01, NAN],
    ci_high=[0.015, 0.05, NAN],
    is_few=[False, True, False],
)


def test_hover_texts_have_the_mean_the_interval_and_the_counts() -> None:
    assert hover_texts(MEANS, "abs_diff", Pair()) == [
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
    (_, text), *_ = hover_texts(
        MEANS.assign(details=pd.Series([["median 1"], [], []])), "beyond", Pair()
    )
    assert text == (
        "mean 0.01<br>95 % interval 0.008 to 0.015<br>median 1"
        "<br>64 samples, 1,000 tokens"
    )


@pytest.mark.parametrize("is_horizontal", [False, True])
def test_points_intervals_and_crosses_are_where_they_should_be(
    is_horizontal: bool,
) -> None:
    figure = new_figure("title", [], LIGHT, plot=188)
    hover = add_means(
        figure,
        RoundLine(name="", rows=MEANS, color="#123456"),
        prepare(hand_batch(), "old", "rollout", theme="light"),
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
    few = MEANS.assign(num_samples=count, is_few=[True, False, False])
    assert explain_marks(few, num_nonfinite=0) == [
        f"○ fewer than 5 {kind}",
        f"{CROSS} no finite value",
    ]
    (_, text), *_ = hover_texts(few, "abs_diff", Pair())
    assert text.endswith(f"<br>fewer than 5 {kind}: interpret with caution")


@pytest.mark.parametrize(
    ("plot", "x", "options"),
    [
        (plot_positions, "token", {}),
        (plot_positions, "end", {"along": "end", "by": "status", "metric": "k3"}),
        (plot_roles, "role", {}),
        (plot_roles, "role", {"metric": "k3", "by": "status"}),
    ],
)
def test_a_batch_and_its_means_give_the_same_figure(
    plot: Any, x: Any, options: dict[str, Any]
) -> None:
    batch = load("sample_data/image_window.parquet")
    own = {name: value for name, value in options.items() if name != "along"}
    assert plot(means_by(batch, x, **own), **options) == plot(batch, **options)


def test_a_bin_is_named_and_labels_leave_room_for_each_other() -> None:
    size = 17
    frame = means(
        place=[1 << i for i in range(size)],
        label=[f"{1 << i:,} to {(2 << i) - 1:,}" for i in range(size)],
        overlaps=[False] * size,
    ).set_index(pd.Index(range(7, 24)))
    figure = plot_positions(frame, along="context")
    axis, points = figure.layout.xaxis, figure.data[0]
    assert axis.ticktext == ("1", "8", "64", "512", "4,096", "32,768")
    assert axis.tickvals == (0, 3, 6, 9, 12, 15)
    assert list(points.x) == list(range(size))
    name = "tokens before it, prompt and response: 1,024 to 2,047"
    assert points.customdata[10][0] == name
    nowhere = means(place=[0, NAN], label=["0", "no screenshot yet"])
    figure = plot_positions(nowhere, along="image")
    assert figure.layout.xaxis.ticktext == ("0", "none")
    assert figure.data[0].customdata[1][0].endswith(": no screenshot yet")
    with pytest.raises(FrameError, match=r"^`along`: expected one of .* found 'token'"):
        plot_positions(nowhere, along="token")  # type: ignore[arg-type]


def test_a_column_divides_the_tokens_of_each_bin_into_lines() -> None:
    batch = hand_batch(sample_columns={"rank": np.array([3, 7, 7])})
    figure = plot_positions(batch, along="end", by="rank")
    lines = drawn(figure)
    # |diff| of rank 3: 0.5 | 0.25 1, of rank 7: 0 0.25 0.5 | 2, 1; the last tokens of
    # rounds are in bin 0.
    assert [line.y.tolist() for line in lines] == [[0.625, 0.5], [3.5 / 3, 0.25, 0.0]]
    assert [round(float(line.x[0]), 3) for line in lines] == [-0.125, 0.125]
    assert lines[1].customdata[2][0].endswith(": 2 to 3, 7")
    bars = [trace for trace in figure.data if trace.yaxis == "y3"]
    assert [bar.y.tolist() for bar in bars] == [[2, 1], [3, 1, 1]]
    assert figure.layout.yaxis3.range == (0, 5)


def test_roles_are_sorted_and_what_overlaps_is_a_diamond_and_said() -> None:
    figure = plot_roles(means(mean=[0.02, 0.5, NAN, 0.1], num_nonfinite=[3, 0, 2, 5]))
    assert figure.layout.yaxis.ticktext == (
        *("syntax", "thought", "◆ first of a round", "action"),
    )
    points, crosses = figure.data
    assert points.x.tolist() == pytest.approx([NAN, 0.02, 0.1, 0.5], nan_ok=True)
    assert list(points.marker.symbol) == ["circle", "circle", "diamond", "circle"]
    assert list(crosses.y) == [0]
    assert "◆ counted in other roles as well" in captions(figure)
    assert "left out: 5 tokens whose diff is not finite" in captions(figure)
    alone = plot_roles(means(mean=[0.0, 0.5], ci_low=[NAN] * 2))
    low, _ = alone.layout.xaxis.range
    assert (np.log10(alone.data[0].x) > low).all()
    assert "1 mean exactly 0, drawn at the left edge" in captions(alone)
    assert not any("◆" in line for line in captions(alone))


def test_a_column_gives_a_point_for_each_of_its_values() -> None:
    frame = means(
        place=[0, 0, 1, 4],
        label=["thought", "thought", "action", "last of a round"],
        mean=[0.5, 0.1, 0.2, 0.3],
        num_tokens=[4, 3, 2, 1],
    ).assign(rank=[3, 7, 3, 7])
    figure = plot_roles(frame, by="rank")
    assert figure.layout.yaxis.ticktext == ("action", "◆ last of a round", "thought")
    three, seven = drawn(figure)
    # The first value is on top of its row, the second below.
    assert three.x.tolist() == [0.2, 0.5]
    assert list(three.y) == pytest.approx([0.2, 2.2])
    assert seven.x.tolist() == [0.3, 0.1]
    assert list(seven.y) == pytest.approx([0.8, 1.8])
    assert three.marker.symbol != seven.marker.symbol
    assert three.customdata[0][0] == "action, 3"
    assert "rank  ● 3  ■ 7" in captions(figure)
    assert [(note.text, note.y) for note in figure.layout.annotations] == [
        ("2", pytest.approx(0.2)),
        ("4", pytest.approx(2.2)),
        ("1", pytest.approx(0.8)),
        ("3", pytest.approx(1.8)),
        ("tokens", 1),
    ]


def test_means_with_a_sign_have_a_linear_axis_the_largest_size_on_top() -> None:
    frame = means(mean=[0.1, -0.5, 0.2], ci_low=[0, -0.7, 0], ci_high=[0.3, -0.2, 0.4])
    figure = plot_roles(frame, metric="diff")
    assert figure.layout.yaxis.ticktext == ("thought", "syntax", "action")
    assert figure.layout.xaxis.type is None
    assert figure.layout.xaxis.range == pytest.approx((-0.766, 0.466))
    zero = captions(plot_roles(means(mean=[0.0, 0.5]), metric="diff"))
    assert not any("exactly 0" in line for line in zero)


def test_roles_of_a_tagger_are_escaped_and_cut() -> None:
    batch = load("sample_data/healthy.parquet")
    name = "<script>alert(1)</script>\u202e of a page"
    figure = plot_roles(batch, tagger=lambda _: [(0, 9, name)])
    assert "&lt;script&gt;alert(1)&lt;/…" in figure.layout.yaxis.ticktext
    texts = [text for text, _ in figure.data[0].customdata]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e of a page" in texts


def test_a_line_is_a_group_of_rounds_over_the_bins_of_probability() -> None:
    figure = plot_conditional(TOKENS)
    first, later = drawn(figure)
    # Bins 0.01 to 0.05 and 0.75 to 0.9: the third and the eighth.
    assert [np.floor(line.x).tolist() for line in (first, later)] == [[2, 7]] * 2
    assert first.y.tolist() == pytest.approx([0.5, 0.2])
    assert later.y.tolist() == pytest.approx([0.8, NAN], nan_ok=True)
    assert (later.x > first.x).all()
    assert first.customdata[0][0] == "probability 0.01 to 0.05, round 0"
    envelope = figure.data[0]
    assert (envelope.line.dash, envelope.x.tolist()) == ("dot", [2.5, 7.5])
    expected = means_by(TOKENS, "probability")["envelope"][:2]
    assert envelope.y.tolist() == expected.tolist()
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [bar.x.tolist() for bar in bars] == [[2.5, 7.5]] * 2
    assert [bar.y.tolist() for bar in bars] == [[1, 2], [2, 1]]
    assert figure.layout.yaxis2.range == (0, 3)
    as_is, alike = [trace for trace in figure.data if trace.yaxis == "y3"]
    rounds = standardise(TOKENS)
    assert as_is.y.tolist() == rounds["mean"].tolist()
    assert alike.y.tolist() == rounds["standardised"].tolist()
    text = alike.customdata[1][0]
    assert "based on 60 % of the tokens" in text
    assert text.endswith("2 samples, 3 tokens")


def test_a_column_takes_the_place_of_groups_of_rounds() -> None:
    figure = plot_conditional(TOKENS.assign(rank=[7, 7, 7, 3, 3, 3]), by="rank")
    three, seven = drawn(figure)
    assert three.y.tolist() == pytest.approx([0.9, 0.3])
    assert seven.y.tolist() == pytest.approx([0.6, 0.1])
    assert three.customdata[0][0] == "probability 0.01 to 0.05, rank 3"
    assert captions(figure)[1] == "rank  ● 3  ■ 7"
    signed = plot_conditional(TOKENS, metric="diff")
    assert (signed.layout.yaxis.type, signed.layout.yaxis.zeroline) == (None, True)
    assert drawn(signed)[0].y.tolist() == pytest.approx([-0.5, 0.2])
    assert not any("rounding" in line for line in captions(signed))


@pytest.mark.parametrize(
    ("columns", "caption"),
    [
        (
            {"rollout_log_prob": [LIKELY, 0.5, RARE, LIKELY, RARE, NAN]},
            "left out: 2 tokens without a probability",
        ),
        (
            {"diff": [0.0, 0.5, 0.0, 0.0, 0.0, 0.0]},
            "3 means exactly 0, drawn at the lower edge",
        ),
        ({"diff": [NAN] * 6}, f"{CROSS} 6 tokens, none with a finite diff"),
    ],
)
def test_what_has_no_place_on_the_axes_is_said(
    columns: dict[str, list[float]], caption: str
) -> None:
    figure = plot_conditional(TOKENS.assign(**columns))
    assert caption in [re.sub("<[^>]*>", "", line) for line in captions(figure)]
    assert (figure.data == ()) == ("none with" in caption)
    for line in drawn(figure):
        known = line.y[~np.isnan(line.y)]
        assert (np.log10(known) > figure.layout.yaxis.range[0]).all()
