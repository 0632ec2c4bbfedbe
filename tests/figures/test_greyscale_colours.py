"""Colours that grey and eyes with two kinds of cones tell apart; symbols that help."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import rounddiag
import rounddiag as rd
from rounddiag.figures._parts.canvas import DARK, LIGHT, Theme, scale_colors
from rounddiag.figures._parts.lines import MAX_LINES
from tests.figures.pictures import (
    laboratory,
    lightness,
    list_colors,
    seen_by_deuteranopes,
)
from tests.figures.plots import words

# In CIE L*, of which 100 lie between black and white.
APART = 10
# In CIE L*a*b*, where 2 are just seen by those who compare.
COLORS_APART = 20
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
WINDOW, HEALTHY = (
    rd.load(f"sample_data/{name}.parquet") for name in ("image_window", "healthy")
)
RANKED = replace(WINDOW, sample_columns={"rank": np.arange(64) % MAX_LINES})


@THEMES
def test_a_scale_grows_lighter_or_darker_throughout(theme: Theme) -> None:
    figure = rounddiag.plot_heatmap(WINDOW, theme=theme.name)
    scale = list_colors([color for _, color in figure.data[0].colorscale])
    for seen in (scale, seen_by_deuteranopes(scale)):
        steps = np.diff(lightness(seen))
        assert (steps >= 0).all() or (steps <= 0).all()
        assert abs(steps.sum()) >= 4 * APART


@THEMES
def test_zero_is_the_paper_and_both_signs_are_equally_loud(theme: Theme) -> None:
    figure = rounddiag.plot_heatmap(WINDOW, metric="mean_diff", theme=theme.name)
    scale = [color for _, color in figure.data[0].colorscale]
    parts = [
        [float(one) for one in color[5:-1].split(",")]  # of "rgba(r, g, b, opacity)"
        for color in scale
    ]
    opacity = np.array([one[3] for one in parts])
    assert opacity[[0, -1]].tolist() == [1, 1]
    assert opacity.min() == 0
    assert opacity == pytest.approx(opacity[::-1], abs=1e-3)
    ends = list_colors([theme.less, theme.more])
    assert np.ptp(lightness(ends)) < 5
    one, other = laboratory(seen_by_deuteranopes(ends))
    assert np.linalg.norm(one - other) >= 2 * COLORS_APART


@THEMES
def test_no_series_and_no_mark_has_the_colour_of_a_sign_or_of_a_size(
    theme: Theme,
) -> None:
    scale = rounddiag.plot_heatmap(WINDOW, theme=theme.name).data[0].colorscale
    others = laboratory(list_colors([*theme.lines, *theme.ramp, theme.mark]))
    taken = list_colors([theme.more, theme.less, scale[0][1], scale[-1][1]])
    for color in laboratory(taken):
        assert np.linalg.norm(others - color, axis=1).min() >= 1.5 * COLORS_APART


def test_later_rounds_are_darker_in_both_themes() -> None:
    for theme in (LIGHT, DARK):
        ramp = list_colors(scale_colors(theme, 4))
        assert np.diff(lightness(ramp)).max() <= -APART
        paper = lightness(list_colors([theme.paper]))
        assert abs(lightness(ramp) - paper).min() >= 3 * APART


@THEMES
def test_colours_of_sign_and_marks_differ_to_deuteranopes(theme: Theme) -> None:
    colors = list_colors([theme.more, theme.less, theme.quiet, theme.text])
    seen = laboratory(seen_by_deuteranopes(colors))
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(one - other) >= COLORS_APART


def test_the_points_of_both_signs_have_two_symbols() -> None:
    figure = rounddiag.plot_probabilities(HEALTHY)
    points = [trace for trace in figure.data if trace.customdata is not None]
    assert len(points) == 2
    for trace in points:
        signs = np.array(trace.customdata)[:, -1] > 0
        up = np.array(trace.marker.symbol) == "triangle-up"
        assert (up == signs).all()
        assert signs.any()
        assert not signs.all()
    assert "▲" in words(figure)
    assert "▼" in words(figure)


def test_no_two_lines_have_one_symbol() -> None:
    traces = rounddiag.plot_rounds(RANKED, by="rank").data
    lines = [trace for trace in traces if trace.type == "scatter" and len(trace.x)]
    drawn = [line for line in lines if line.mode == "lines+markers"]
    assert len({line.marker.symbol for line in drawn}) == MAX_LINES


@THEMES
def test_counts_of_all_lines_of_a_stack_differ_from_their_neighbours(
    theme: Theme,
) -> None:
    figure = rounddiag.plot_rounds(RANKED, by="rank", theme=theme.name)
    bars = [one.marker.color for one in figure.data if one.yaxis == "y2"]
    stack = lightness(list_colors(bars))
    assert len(stack) == MAX_LINES
    assert abs(np.diff(stack)).min() >= APART
