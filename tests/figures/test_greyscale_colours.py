"""Colours that grey and eyes with two kinds of cones tell apart; symbols that help."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import rounddiag as rd
from rounddiag import figures
from rounddiag.figures._parts.canvas import DARK, LIGHT, Theme
from rounddiag.figures._parts.lines import MAX_LINES
from tests.figures.pictures import (
    laboratory,
    lightness,
    list_colors,
    seen_by_deuteranopes,
)

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
@pytest.mark.parametrize("metric", ["mean_abs_diff", "mean_diff"])
def test_a_scale_grows_lighter_or_darker_throughout(metric: str, theme: Theme) -> None:
    figure = figures.plot_heatmap(WINDOW, metric=metric, theme=theme.name)
    scale = list_colors([color for _, color in figure.data[0].colorscale])
    for seen in (scale, seen_by_deuteranopes(scale)):
        steps = np.diff(lightness(seen))
        assert (steps >= 0).all() or (steps <= 0).all()
        assert abs(steps.sum()) >= 4 * APART


@THEMES
def test_colours_of_sign_and_marks_differ_to_deuteranopes(theme: Theme) -> None:
    colors = list_colors([theme.more, theme.less, theme.quiet, theme.text])
    seen = laboratory(seen_by_deuteranopes(colors))
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(one - other) >= COLORS_APART


def test_the_points_of_both_signs_have_two_symbols() -> None:
    for plot in (figures.plot_probabilities, figures.plot_log_ppl):
        figure = plot(HEALTHY)
        points = [one for one in figure.data if one.customdata is not None]
        assert len(points) == 2
        for trace in points:
            signs = np.array(trace.customdata)[:, -1] > 0
            up = np.array(trace.marker.symbol) == "triangle-up"
            assert (up == signs).all()
            assert signs.any()
            assert not signs.all()
        assert "▲" in figure.layout.title.text
        assert "▼" in figure.layout.title.text


def test_no_two_lines_have_one_symbol() -> None:
    batches = [HEALTHY] * MAX_LINES
    rounds = figures.plot_rounds(RANKED, by="rank").data
    compared = figures.plot_compare(batches, layers={"difference": False}).data
    for traces in (rounds, compared):
        lines = [one for one in traces if one.type == "scatter" and len(one.x)]
        drawn = [one for one in lines if one.mode == "lines+markers"]
        assert len({line.marker.symbol for line in drawn}) == MAX_LINES


@THEMES
def test_counts_of_all_lines_of_a_stack_differ_from_their_neighbours(
    theme: Theme,
) -> None:
    figure = figures.plot_rounds(RANKED, by="rank", theme=theme.name)
    bars = [one.marker.color[0] for one in figure.data if one.yaxis == "y2"]
    stack = lightness(list_colors(bars))
    assert len(stack) == MAX_LINES
    assert abs(np.diff(stack)).min() >= APART
