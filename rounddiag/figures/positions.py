"""The figure of means by the position of tokens in round, response or context."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.batch import Batch
from rounddiag.figures._parts.canvas import empty_figure, new_figure
from rounddiag.figures._parts.data import note_picked, note_unknown_rounds, prepare
from rounddiag.figures._parts.labels import NO_TOKENS
from rounddiag.figures._parts.means import (
    COUNT_PANELS,
    HEIGHT,
    HEIGHT_WITHOUT_COUNTS,
    HOVER,
    MeanSeries,
    add_counts,
    axis_title,
    explain_marks,
    set_panels,
)
from rounddiag.schema import PLACE_MEANS, PLACES
from rounddiag.stats import positions
from rounddiag.stats.token_positions import check_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures._parts.canvas import Theme, ThemeName
    from rounddiag.figures._parts.data import PlotInputs
    from rounddiag.stats.token_positions import By


_LAYERS = ("ci", "counts")
_TITLES = {
    "round": "Mismatch along the round",
    "response": "Mismatch along the response",
    "end": "Mismatch to the end of the round",
    "image": "Mismatch since the last screenshot",
    "images": "Mismatch by screenshots seen",
    "context": "Mismatch by length of context",
}
# Ticks must not touch in a figure of 400 pixels: its plot, a character, and the gap
# between labels, in pixels.
_PLOT_WIDTH, _CHARACTER, _GAP = 300, 6.5, 10
_NO_SCREENSHOT = "no screenshot yet"


def plot_positions(
    data: Batch | pd.DataFrame,
    *,
    by: By = "round",
    metric: str = "abs_diff",
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot a metric's mean by the position of tokens, with intervals and counts.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or what `rounddiag.stats.positions` made of one for the same `by` and
        `metric`.
    by : {"round", "response", "end", "image", "images", "context"}
        The token in its round; the position in the response; tokens to the end of the
        round; tokens since the last screenshot began; screenshots seen so far; tokens
        before it, prompt included.
    metric : str
        What is averaged, as in `round_summary`.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        What to leave out: `ci`, the intervals; `counts`, of samples and tokens.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If the batch does not know what `by` asks for, a frame lacks a column or has
        another pair, or there is no such metric or layer.
    BatchError
        If the batch has no such score.

    Notes
    -----
    How to read it: a point is a bin of places, labelled with its first; bins double in
    size, except for screenshots, which are counted one by one. In a healthy batch the
    points lie on a level line as far as tokens are equally likely at all places: the
    first token of a round often is certain, so check `plot_conditional` before you
    trust a rise. A point that stands out at token 0 points to the template or to an
    off-by-one between the engines; one at the end, to the stop token. A rise with the
    context's length is what accumulating errors, positions or a cache do; a step at one
    length, a limit (a window, a chunk) of one engine. A step at one number of
    screenshots, and level lines by length, say that screenshots are lost or changed.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_positions(batch, by="images").layout.xaxis.title.text
    'screenshots seen so far'
    """
    check_by(by)
    inputs = prepare(
        data, a, b, metric=metric, layers=layers, known=_LAYERS, theme=theme
    )
    means = _get_means(inputs, by).reset_index(drop=True)
    if means.empty:
        return empty_figure(_TITLES[by], NO_TOKENS, inputs.theme)
    lines = note_unknown_rounds(inputs.data) + explain_marks(means)
    lines += note_picked(inputs.data)
    has_counts = inputs.layers["counts"]
    height = HEIGHT if has_counts else HEIGHT_WITHOUT_COUNTS
    figure = new_figure(_TITLES[by], lines, inputs.theme, height=height)
    series = _series(means, by, inputs.metric, inputs.theme)
    _set_axes(figure, means, by, has_counts=has_counts)
    figure.layout.yaxis.title.text = axis_title(inputs.metric, inputs.pair)
    series.add_to(
        figure,
        inputs.theme,
        means.index.to_numpy(),
        means["mean"].to_numpy(),
        floor=0,
        interval_color=inputs.theme.muted if inputs.layers["ci"] else None,
        line={"color": inputs.theme.muted, "width": 1},
        marker={"size": 8},
        cliponaxis=False,
    )
    if has_counts:
        _add_counts(figure, series, inputs.theme)
    return figure


def _get_means(inputs: PlotInputs, by: By) -> pd.DataFrame:
    if isinstance(inputs.data, Batch):
        return positions(inputs.data, by=by, metric=inputs.metric)
    names = (column.name for column in PLACE_MEANS.columns)
    PLACE_MEANS.require(inputs.data.columns, *names)
    return inputs.data


def _series(means: pd.DataFrame, by: By, metric: str, theme: Theme) -> MeanSeries:
    """Name each bin by its first and last place."""
    ends = zip(means["low"], means["high"], strict=True)
    names = [f"{PLACES[by].meaning}: {_name_bin(low, high)}" for low, high in ends]
    return MeanSeries(means=means, names=names, metric=metric, color=theme.text)


def _name_bin(low: float, high: float) -> str:
    if np.isnan(low):
        return _NO_SCREENSHOT
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _add_counts(figure: go.Figure, series: MeanSeries, theme: Theme) -> None:
    """Draw how many samples and tokens each bin has."""
    means = series.means
    for axis, name in COUNT_PANELS.items():
        bar = {
            "x": means.index,
            "y": means[name],
            "width": 0.6 * min(1, len(means) / 15),  # thin also when they are few
            "marker_color": theme.quiet,
            "customdata": series.hover,
            "hovertemplate": HOVER,
        }
        add_counts(figure, axis, PLACE_MEANS[name], [bar], theme)


def _set_axes(
    figure: go.Figure, means: pd.DataFrame, by: By, *, has_counts: bool
) -> None:
    """Name the places, and label as many bins as fit."""
    labels = [f"{low:,.0f}".replace("nan", "none") for low in means["low"]]
    width = _CHARACTER * max(map(len, labels)) + _GAP
    step = ceil(width * len(labels) / _PLOT_WIDTH)
    bins = "" if by == "images" else ", bins from"
    figure.update_layout(
        xaxis={
            "title": {"text": PLACES[by].label + bins},
            "range": [-0.6, len(means) - 0.4],
            "tickvals": list(means.index[::step]),
            "ticktext": labels[::step],
            "tickangle": 0,
        },
        yaxis={"rangemode": "tozero"},
    )
    set_panels(figure, means if has_counts else None)
