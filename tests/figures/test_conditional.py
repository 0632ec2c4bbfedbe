"""Mismatch by rollout probability: a line a group of rounds, and rounds made alike."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from rounddiag import plot_conditional
from rounddiag.errors import FrameError
from rounddiag.stats import conditional_means, standardise
from rounddiag.stats.standardisation import PROB_EDGES
from tests.batches import padded
from tests.figures.plots import words

NAN = math.nan
LIKELY, RARE = math.log(0.8), math.log(0.02)
FRAME = pd.DataFrame(
    {
        "sample": [0, 0, 0, 1, 1, 1],
        "round": [0, 0, 1, 0, 1, 1],
        "diff": [0.1, -0.5, 0.7, 0.3, -0.9, NAN],
        "rollout_log_prob": [LIKELY, RARE, RARE, LIKELY, RARE, LIKELY],
    }
)


def traces(figure: go.Figure, mode: str) -> list[go.Scatter]:
    drawn = [trace for trace in figure.data if trace.type == "scatter"]
    return [trace for trace in drawn if trace.mode == mode]


def lines(figure: go.Figure) -> list[go.Scatter]:
    return [t for t in traces(figure, "lines+markers") if t.yaxis is None]


def explained(figure: go.Figure) -> list[str]:
    text = words(figure).replace("<br>", " | ")
    return re.sub("<[^>]*>", "", text).split(" | ")[1:]


def test_a_line_is_a_group_and_its_places_are_bins() -> None:
    first, later = lines(plot_conditional(FRAME))
    # Bins 0.01 to 0.05 and 0.75 to 0.9: the third and the eighth.
    assert np.floor(first.x).tolist() == [2, 7]
    assert first.y.tolist() == pytest.approx([0.5, 0.2])
    assert np.floor(later.x).tolist() == [2, 7]
    assert later.y.tolist() == pytest.approx([0.8, NAN], nan_ok=True)
    assert (later.x > first.x).all()


def test_the_envelope_is_dotted() -> None:
    (envelope,) = traces(plot_conditional(FRAME), "lines")
    assert envelope.line.dash == "dot"
    found = conditional_means(FRAME)
    assert envelope.x.tolist() == [2.5, 7.5]
    assert envelope.y.tolist() == pytest.approx(found["envelope"][:2].tolist())


def test_tokens_are_stacked_under_their_bins() -> None:
    figure = plot_conditional(FRAME)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [bar.x.tolist() for bar in bars] == [[2.5, 7.5]] * 2
    assert [bar.y.tolist() for bar in bars] == [[1, 2], [2, 1]]
    assert figure.layout.yaxis2.range == (0, 3)


def test_rounds_are_drawn_as_they_are_and_made_alike() -> None:
    as_is, alike = [t for t in plot_conditional(FRAME).data if t.yaxis == "y3"]
    found = standardise(FRAME)
    assert as_is.x.tolist() == alike.x.tolist() == [0, 1]
    assert as_is.y.tolist() == found["mean"].tolist()
    assert alike.y.tolist() == found["standardised"].tolist()
    assert as_is.marker.symbol != alike.marker.symbol


def test_groups_differ_in_color_and_in_sign_and_are_named() -> None:
    frame = pd.concat([FRAME.assign(round=r) for r in (0, 1, 2, 4, 8, 64)])
    figure = plot_conditional(frame)
    assert len({line.line.color for line in lines(figure)}) == 6
    assert len({line.marker.symbol for line in lines(figure)}) == 6
    assert explained(figure)[:2] == [
        "round  ● 0  ■ 1  ◆ 2 to 3  ▲ 4 to 7  ▼ 8 to 15",
        "★ 64 to 127",
    ]


def test_the_axes_say_what_is_drawn_and_in_which_unit() -> None:
    layout = plot_conditional(FRAME).layout
    assert layout.xaxis.title.text == "probability by the sampling engine"
    assert [text.strip("<br>") for text in layout.xaxis.ticktext] == [
        f"{edge:g}" for edge in PROB_EDGES
    ]
    assert layout.yaxis.title.text == "mean |old − rollout| log-prob [nat]"
    assert layout.yaxis.type == "log"
    heads = [re.sub("<[^>]*>", "|", note.text) for note in layout.annotations]
    assert heads[0] == "generated tokens"
    assert heads[1].startswith("mean |old − rollout| log-prob [nat]|")


def test_a_bin_without_a_finite_value_has_its_cross_in_place() -> None:
    figure = plot_conditional(FRAME)
    (cross,) = [trace for trace in traces(figure, "markers") if len(trace.x)]
    assert np.floor(cross.x).tolist() == [7]


def test_what_is_no_probability_is_left_out_and_said() -> None:
    frame = FRAME.assign(rollout_log_prob=[LIKELY, 0.5, RARE, LIKELY, RARE, NAN])
    figure = plot_conditional(frame)
    assert "left out: 2 tokens without a probability" in explained(figure)
    assert len(lines(figure)[0].x) == 1


def test_means_of_zero_are_on_the_logarithmic_axis() -> None:
    figure = plot_conditional(FRAME.assign(diff=[0.0, 0.5, 0.0, 0.0, 0.0, 0.0]))
    low, _ = figure.layout.yaxis.range
    assert all(np.log10(value) > low for line in lines(figure) for value in line.y)
    assert "3 means exactly 0, drawn at the lower edge" in explained(figure)


def test_tokens_without_a_finite_diff_are_reported_instead_of_drawn() -> None:
    figure = plot_conditional(padded([[1] * 2], [[NAN] * 2], [[-1.0] * 2]))
    assert "2 tokens, none with a finite diff" in words(figure)
    assert figure.data == ()


def test_the_figure_is_small_enough_for_a_notebook() -> None:
    frame = pd.DataFrame(
        {"sample": np.arange(5000) % 512, "round": np.arange(5000) % 60}
    )
    values = np.linspace(-10, 0, 5000)
    figure = plot_conditional(frame.assign(diff=values, rollout_log_prob=values))
    assert len(json.dumps(figure.to_plotly_json(), default=list)) < 500_000


def test_the_envelope_can_be_left_out() -> None:
    figure = plot_conditional(FRAME, layers={"envelope": False})
    assert traces(figure, "lines") == []
    assert "rounding" not in words(figure)


def test_a_column_gives_a_line_for_each_of_its_values() -> None:
    frame = FRAME.assign(rank=[7, 7, 7, 3, 3, 3])
    figure = plot_conditional(frame, by="rank")
    three, seven = lines(figure)
    assert three.y.tolist() == pytest.approx([0.9, 0.3])
    assert seven.y.tolist() == pytest.approx([0.6, 0.1])
    assert explained(figure)[0] == "rank  ● 3  ■ 7"
    assert three.customdata[0][0] == "rank 3, probability 0.01 to 0.05"
    # Rounds below are of all samples.
    as_is, _ = [t for t in figure.data if t.yaxis == "y3"]
    assert as_is.y.tolist() == standardise(FRAME)["mean"].tolist()


def test_means_with_a_sign_have_a_linear_axis_and_no_envelope() -> None:
    figure = plot_conditional(FRAME, metric="diff")
    layout = figure.layout
    assert layout.yaxis.title.text == "mean old − rollout log-prob [nat]"
    assert layout.yaxis.type is None
    assert layout.yaxis.zeroline is True
    low, high = layout.yaxis.range
    assert low < -0.5 < 0.2 < high
    assert lines(figure)[0].y.tolist() == pytest.approx([-0.5, 0.2])
    assert traces(figure, "lines") == []
    assert "rounding" not in words(figure)


def test_a_metric_without_a_unit_has_none_on_hover() -> None:
    figure = plot_conditional(FRAME, metric="beyond")
    assert figure.layout.yaxis.title.text == (
        "share of tokens whose importance ratio is<br>beyond limits"
    )
    assert lines(figure)[1].customdata[0][1].startswith("mean 1<br>")


def test_an_envelope_that_a_metric_has_not_is_an_error() -> None:
    message = (
        "`envelope`: expected metric='abs_diff', whose noise scales with 1 - p; found"
        " 'k3'. Leave the layer out, or the metric."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_conditional(FRAME, metric="k3", layers={"envelope": True})
