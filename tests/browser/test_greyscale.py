"""What must be told apart in a figure is, without colour: measured in its picture."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

import rounddiag
import rounddiag as rd
from rounddiag.figures._parts.canvas import DARK, LIGHT, Theme
from rounddiag.findings.onset import Onset
from tests.batches import padded
from tests.browser.text_boxes import FigurePage
from tests.figures.pictures import Array, ink, lightness, list_colors, pixels, without

# In CIE L*, of which 100 lie between black and white.
APART, FROM_PAPER = 10, 8
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
WINDOW, HEALTHY = (
    rd.load(f"sample_data/{name}.parquet") for name in ("image_window", "healthy")
)
ONSET = Onset(round=2, low=2, high=2, before=0.0027, after=0.14)
FIGURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "rounds": (WINDOW, {"onset": ONSET}),
    "rounds, quantiles": (WINDOW, {"layers": {"quantiles": True}}),
    "rounds, by": (WINDOW, {"by": "task_kind"}),
    "trajectory": (WINDOW, {"sample": 5}),
    "tail": (WINDOW, {}),
    "conditional": (WINDOW, {}),
    "compare": ([HEALTHY, WINDOW], {}),
}
# What is drawn, on which y axis, and the how manyth of these in the figure.
Trace: TypeAlias = tuple[str, str, int]
# Two traces that their lightness tells apart.
BY_LIGHTNESS: dict[str, tuple[str, Trace, Trace]] = {
    "survivors": ("rounds", ("lines+markers", "y", 0), ("lines", "y", 0)),
    "90 %, 99 %": ("rounds, quantiles", ("bar", "y", 0), ("bar", "y", 1)),
    "99 %, largest": ("rounds, quantiles", ("bar", "y", 1), ("bar", "y", 2)),
    "median, 90 %": ("rounds, quantiles", ("markers", "y", 0), ("bar", "y", 0)),
    "counts 0, 1": ("rounds, by", ("bar", "y2", 0), ("bar", "y2", 1)),
    "counts 1, 2": ("rounds, by", ("bar", "y2", 1), ("bar", "y2", 2)),
    "log-probs": ("trajectory", ("lines", "y2", 0), ("lines", "y2", 1)),
    "tails 0, 1": ("tail", ("lines", "y", 0), ("lines", "y", 1)),
    "tails 1, 2": ("tail", ("lines", "y", 1), ("lines", "y", 2)),
    "tails 2, 3": ("tail", ("lines", "y", 2), ("lines", "y", 3)),
    "as if alike": (
        "conditional",
        ("lines+markers", "y3", 0),
        ("lines+markers", "y3", 1),
    ),
    "batches": ("compare", ("lines+markers", "y", 0), ("lines+markers", "y", 1)),
}

_WIDTH = 500


def picture(page: FigurePage, figure: go.Figure) -> Array:
    """Draw a figure: linear RGB of each pixel, from 0 to 1."""
    return pixels(page.picture(figure, _WIDTH))


@cache
def draw(page: FigurePage, name: str, theme: str) -> tuple[go.Figure, Array]:
    data, options = FIGURES[name]
    plot = getattr(rounddiag, f"plot_{name.partition(',')[0]}")
    figure = plot(data, **options, theme=theme)
    return figure, picture(page, figure)


def place(figure: go.Figure, trace: Trace) -> int:
    """Return the number of a trace in its figure."""
    kind, axis, number = trace
    return [
        index
        for index, one in enumerate(figure.data)
        if (one.mode if one.type == "scatter" else one.type, one.yaxis or "y")
        == (kind, axis)
    ][number]


@cache
def inked(page: FigurePage, name: str, trace: Trace, theme: str) -> tuple[Array, Array]:
    """The picture, and where the trace is in it."""
    figure, image = draw(page, name, theme)
    return image, ink(image, picture(page, without(figure, place(figure, trace))))


def median_lightness(page: FigurePage, name: str, trace: Trace, theme: Theme) -> float:
    image, where = inked(page, name, trace, theme.name)
    assert where.sum() >= 10  # pixels
    return float(np.median(lightness(image[where])))


@THEMES
@pytest.mark.parametrize("pair", BY_LIGHTNESS)
def test_two_things_differ_in_grey_and_from_the_paper(
    pair: str, theme: Theme, figure_page: FigurePage
) -> None:
    name, *traces = BY_LIGHTNESS[pair]
    one, other = (median_lightness(figure_page, name, trace, theme) for trace in traces)
    paper = float(lightness(list_colors([theme.paper]))[0])
    assert abs(one - other) >= APART
    assert min(abs(one - paper), abs(other - paper)) >= FROM_PAPER


@THEMES
def test_the_bar_of_the_worst_round_differs_in_grey(
    theme: Theme, figure_page: FigurePage
) -> None:
    figure, _ = draw(figure_page, "rounds", theme.name)
    counts = figure.data[place(figure, ("bar", "y2", 0))]
    bars = lightness(list_colors(counts.marker.color))
    assert np.ptp(bars) >= APART


@THEMES
def test_stems_tell_their_sign_by_their_side(
    theme: Theme, figure_page: FigurePage
) -> None:
    more, less = (
        inked(figure_page, "trajectory", ("lines", "y", number), theme.name)[1]
        for number in (0, 1)
    )
    assert np.nonzero(more)[0].max() <= np.nonzero(less)[0].min() + 1


@THEMES
def test_a_missing_round_is_hatched_and_a_round_of_zeros_is_even(
    theme: Theme, figure_page: FigurePage
) -> None:
    mask = torch.tensor([[1, 0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0]])
    zeros = padded(mask, torch.zeros(2, 7), torch.zeros(2, 7))
    layers = {"marginals": False}
    figure = rounddiag.plot_heatmap(zeros, layers=layers, theme=theme.name)
    image = picture(figure_page, figure)
    bare = (
        picture(figure_page, without(figure, place(figure, trace)))
        for trace in (("heatmap", "y", 0), ("lines", "y", 0))
    )
    cells, hatched = (lightness(box(image, ink(image, one))) for one in bare)
    assert np.ptp(np.percentile(hatched, [10, 95])) >= APART
    gap = 1 / 4  # less of the rectangle is between cells
    even = np.percentile(cells, [100 * gap, 100 * (1 - gap)])
    assert np.ptp(even) < 1


def box(image: Array, where: Array) -> Array:
    """Return the smallest rectangle of a picture with all marked pixels."""
    rows, columns = np.nonzero(where)
    part: Array = image[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    return part
