"""What must be told apart in a figure is, without colour: measured in its picture."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import kaleido
import numpy as np
import pytest
import torch
from plotly.colors import hex_to_rgb, unlabel_rgb

import rounddiag as rd
from rounddiag import figures
from rounddiag.figures.round_lines import MAX_LINES
from rounddiag.figures.theme import DARK, LIGHT, Theme
from tests.batches import padded
from tests.browser.conftest import NO_BROWSER, find_browser
from tests.figures.pictures import (
    Array,
    ink,
    laboratory,
    lightness,
    linear,
    picture,
    seen_by_deuteranopes,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import plotly.graph_objects as go

# In CIE L*, of which 100 lie between black and white.
APART, FROM_PAPER = 10, 8
# In CIE L*a*b*, where 2 are just seen by those who compare.
COLORS_APART = 20
THEMES = pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
WINDOW, HEALTHY = (
    rd.load(f"sample_data/{name}.parquet") for name in ("image_window", "healthy")
)
FIGURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "rounds": (WINDOW, {}),
    "rounds, quantiles": (WINDOW, {"layers": {"quantiles": True}}),
    "rounds, by": (WINDOW, {"by": "task_kind"}),
    "trajectory": (WINDOW, {"sample": 5}),
    "tail": (WINDOW, {}),
    "conditional": (WINDOW, {}),
    "compare": ([HEALTHY, WINDOW], {}),
}
# Two traces of a figure that only their lightness tells apart, or that touch.
BY_LIGHTNESS = {
    "means and survivors": ("rounds", 1, 0),
    "bars to 90 % and to 99 %": ("rounds, quantiles", 0, 1),
    "bars to 99 % and to the largest": ("rounds, quantiles", 1, 2),
    "median and bar": ("rounds, quantiles", 3, 0),
    "counts, first and second": ("rounds, by", 6, 7),
    "counts, second and third": ("rounds, by", 7, 8),
    "log-probs of both engines": ("trajectory", 3, 4),
    "tail, first and second": ("tail", 0, 1),
    "tail, second and third": ("tail", 1, 2),
    "tail, third and last": ("tail", 2, 3),
    "as it is, as if alike": ("conditional", 13, 14),
    "first and second batch": ("compare", 0, 2),
}

pytestmark = pytest.mark.filterwarnings("ignore:The kopts argument is ignored")


@pytest.fixture(scope="module", autouse=True)
def renderer() -> Iterator[None]:
    """One browser for all pictures."""
    if find_browser() is None:
        pytest.skip(NO_BROWSER)
    kaleido.start_sync_server(silence_warnings=True)
    yield
    kaleido.stop_sync_server()


@cache
def drawn(name: str, theme: str) -> tuple[go.Figure, Array]:
    data, options = FIGURES[name]
    plot = getattr(figures, f"plot_{name.partition(',')[0]}")
    figure = plot(data, **options, theme=theme)
    return figure, picture(figure)


@cache
def inked(name: str, trace: int, theme: str) -> tuple[Array, Array]:
    """The picture, and where the trace is in it."""
    figure, shown = drawn(name, theme)
    return shown, ink(shown, picture(without(figure, trace)))


def median_lightness(name: str, trace: int, look: Theme) -> float:
    shown, where = inked(name, trace, look.name)
    assert where.sum() >= 10  # pixels
    return float(np.median(lightness(shown[where])))


@THEMES
@pytest.mark.parametrize("pair", BY_LIGHTNESS)
def test_two_things_differ_in_grey_and_from_the_paper(pair: str, look: Theme) -> None:
    name, *traces = BY_LIGHTNESS[pair]
    one, other = (median_lightness(name, trace, look) for trace in traces)
    paper = float(lightness(colors_of([look.paper]))[0])
    assert abs(one - other) >= APART
    assert min(abs(one - paper), abs(other - paper)) >= FROM_PAPER


@THEMES
def test_the_bar_of_the_worst_round_differs_in_grey(look: Theme) -> None:
    figure, _ = drawn("rounds", look.name)
    bars = lightness(colors_of(figure.data[3].marker.color))
    assert np.ptp(bars) >= APART


@THEMES
def test_stems_tell_their_sign_by_their_side(look: Theme) -> None:
    more, less = (inked("trajectory", trace, look.name)[1] for trace in (0, 1))
    assert np.nonzero(more)[0].max() <= np.nonzero(less)[0].min() + 1


@THEMES
def test_a_missing_round_is_hatched_and_a_round_of_zeros_is_even(look: Theme) -> None:
    mask = torch.tensor([[1, 0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0]])
    zeros = padded(mask, torch.zeros(2, 7), torch.zeros(2, 7))
    layers = {"marginals": False}
    figure = figures.plot_heatmap(zeros, layers=layers, theme=look.name)
    shown = picture(figure)
    cells, hatched = (
        lightness(box(shown, ink(shown, picture(without(figure, trace)))))
        for trace in (0, 1)
    )
    assert np.ptp(np.percentile(hatched, [10, 95])) >= APART
    gap = 1 / 4  # less of the rectangle is between cells
    even = np.percentile(cells, [100 * gap, 100 * (1 - gap)])
    assert np.ptp(even) < 1


def box(shown: Array, where: Array) -> Array:
    """Return the smallest rectangle of a picture with all marked pixels."""
    rows, columns = np.nonzero(where)
    part: Array = shown[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    return part


@THEMES
@pytest.mark.parametrize("metric", ["mean_abs_diff", "mean_diff"])
def test_a_scale_grows_lighter_or_darker_throughout(metric: str, look: Theme) -> None:
    figure = figures.plot_heatmap(WINDOW, metric=metric, theme=look.name)
    scale = colors_of([color for _, color in figure.data[0].colorscale])
    for seen in (scale, seen_by_deuteranopes(scale)):
        steps = np.diff(lightness(seen))
        assert (steps >= 0).all() or (steps <= 0).all()
        assert abs(steps.sum()) >= 4 * APART


@THEMES
def test_colours_of_sign_and_marks_differ_to_deuteranopes(look: Theme) -> None:
    colors = colors_of([look.more, look.less, look.quiet, look.text])
    seen = laboratory(seen_by_deuteranopes(colors))
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(one - other) >= COLORS_APART


def test_the_points_of_both_signs_have_two_symbols() -> None:
    for plot in (figures.plot_probabilities, figures.plot_log_ppl):
        figure = plot(WINDOW)
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
    many = np.arange(64) % MAX_LINES
    by = replace(WINDOW, sample_columns={"rank": many})
    batches = [HEALTHY] * MAX_LINES
    rounds = figures.plot_rounds(by, by="rank").data
    compared = figures.plot_compare(batches, layers={"difference": False}).data
    for traces in (rounds, compared):
        lines = [one for one in traces if one.type == "scatter" and len(one.x)]
        drawn = [one for one in lines if one.mode == "lines+markers"]
        assert len({line.marker.symbol for line in drawn}) == MAX_LINES


@THEMES
def test_counts_of_all_lines_of_a_stack_differ_from_their_neighbours(
    look: Theme,
) -> None:
    many = np.arange(64) % MAX_LINES
    by = replace(WINDOW, sample_columns={"rank": many})
    figure = figures.plot_rounds(by, by="rank", theme=look.name)
    bars = [one.marker.color[0] for one in figure.data if one.yaxis == "y2"]
    stack = lightness(colors_of(bars))
    assert len(stack) == MAX_LINES
    assert abs(np.diff(stack)).min() >= APART


def colors_of(names: Iterable[str]) -> Array:
    """Return the linear RGB of colours as plotly writes them."""
    rows = [
        hex_to_rgb(name) if name.startswith("#") else unlabel_rgb(name)
        for name in names
    ]
    return linear(np.array(rows) / 255)
