"""The figure of means by the position of tokens in round, response or context."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.figures._parts.axes import LinearAxis, note_cut
from rounddiag.figures._parts.canvas import (
    CHARACTER,
    NARROW_PLOT,
    ThemeName,
    empty_figure,
    new_figure,
)
from rounddiag.figures._parts.data import note_unknown_rounds, prepare
from rounddiag.figures._parts.labels import NO_TOKENS, subject
from rounddiag.figures._parts.lines import format_key, shift_line, split_by_column
from rounddiag.figures._parts.means import (
    HEIGHT,
    HEIGHT_WITHOUT_COUNTS,
    add_counts,
    add_placed_means,
    axis_title,
    explain_marks,
    read_means,
    set_panels,
)
from rounddiag.schema import PLACE_MEANS, PLACES
from rounddiag.stats import position_means
from rounddiag.stats.inputs import Data
from rounddiag.stats.token_positions import Along, check_along

_LAYERS = ("ci", "counts")
_TITLES = {
    "round": "along the round",
    "response": "along the response",
    "end": "to the end of the round",
    "image": "since the last screenshot",
    "images": "by screenshots seen",
    "context": "by length of context",
}
_GAP = 10  # pixels between the labels of ticks
_NO_SCREENSHOT = "no screenshot yet"


def plot_positions(
    data: Data,
    *,
    along: Along = "round",
    by: str | None = None,
    metric: str = "abs_diff",
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot a metric's mean by the position of tokens, with intervals and counts.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or what `rounddiag.stats.position_means` made of one with the
        same `along`, `by` and `metric`.
    along : {"round", "response", "end", "image", "images", "context"}
        The token in its round; the position in the response; tokens to the end of the
        round; tokens since the last screenshot began; screenshots seen so far; tokens
        before it, prompt included.
    by : str, optional
        A column of samples or rounds, such as `status`: a line for each of its values,
        at most 8.
    layers : mapping, optional
        What to leave out: `ci`, the intervals; `counts`, of samples and tokens.
    metric, a, b, theme : as everywhere, see `help(rounddiag)`

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
    >>> rd.plot_positions(batch, along="images").layout.xaxis.title.text
    'screenshots seen so far'
    """
    inputs = prepare(
        data, a, b, metric=metric, layers=layers, known=_LAYERS, theme=theme
    )
    check_along(along)
    title = f"{subject(metric)} {_TITLES[along]}"
    means = read_means(inputs, PLACE_MEANS, by, position_means, along=along)
    if means.empty:
        return empty_figure(title, NO_TOKENS, inputs.theme)
    bins = means["low"].drop_duplicates().sort_values(ignore_index=True)  # NaN last
    ends = zip(means["low"], means["high"], strict=True)
    heads = [f"{PLACES[along].meaning}: {_name_bin(low, high)}" for low, high in ends]
    means = means.assign(place=[*bins.searchsorted(means["low"])], head=heads)
    axis = LinearAxis.around(means)
    lines = split_by_column(means, by, inputs.theme)
    captions = note_unknown_rounds(inputs.data)
    captions += [] if by is None else format_key(by, lines)
    captions += note_cut(means, axis) if inputs.layers["ci"] else []
    captions += explain_marks(means)
    has_counts = inputs.layers["counts"]
    height = HEIGHT if has_counts else HEIGHT_WITHOUT_COUNTS
    figure = new_figure(title, captions, inputs.theme, height=height)
    _set_axes(figure, bins, along, axis)
    figure.layout.yaxis.title.text = axis_title(inputs.metric, inputs.pair)
    width = 0.6 * min(1, len(bins) / 15)  # thin also when they are few
    for line in lines:
        hover = add_placed_means(figure, shift_line(line), inputs, axis, floor=0)
        if has_counts:
            color = line.color if line.name else inputs.theme.quiet
            place = line.rows["place"]
            add_counts(figure, line, place, hover, width=width, color=color)
    if has_counts:
        counts = means.groupby("place").sum(numeric_only=True)
        set_panels(figure, counts, PLACE_MEANS, inputs.pair, inputs.theme)
    return figure


def _name_bin(low: float, high: float) -> str:
    if np.isnan(low):
        return _NO_SCREENSHOT
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _set_axes(
    figure: go.Figure, bins: pd.Series[float], along: Along, axis: LinearAxis
) -> None:
    labels = [f"{low:,.0f}".replace("nan", "none") for low in bins]
    width = CHARACTER * max(map(len, labels)) + _GAP
    step = ceil(width * len(labels) / NARROW_PLOT)
    extra = "" if along == "images" else ", bins from"
    figure.update_layout(
        barmode="stack",
        xaxis={
            "title": {"text": PLACES[along].label + extra},
            "range": [-0.6, len(bins) - 0.4],
            "tickvals": list(bins.index[::step]),
            "ticktext": labels[::step],
            "tickangle": 0,
        },
        yaxis=axis.layout(),
    )
