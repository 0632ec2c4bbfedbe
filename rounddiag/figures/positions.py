"""The figure of means by the position of tokens in round, response or context."""

from __future__ import annotations

from math import ceil
from typing import Literal, TypeAlias

import pandas as pd
import plotly.graph_objects as go

from rounddiag.errors import require_one_of
from rounddiag.figures._parts.axes import LinearAxis, note_cut
from rounddiag.figures._parts.canvas import CHARACTER, NARROW_PLOT, ThemeName
from rounddiag.figures._parts.data import prepare, without_layers
from rounddiag.figures._parts.labels import subject
from rounddiag.figures._parts.lines import format_key, split_by_column
from rounddiag.figures._parts.means import (
    COUNT_PANELS,
    HEIGHT,
    add_lines,
    axis_title,
    explain_marks,
    read_means,
    set_panels,
)
from rounddiag.schema import PLACE_MEANS, PLACES
from rounddiag.stats.inputs import Data
from rounddiag.stats.place_means import X

Along: TypeAlias = Literal["round", "response", "end", "image", "images", "context"]

# What `along` is called in `stats.means_by`, and in a title.
_AXES: dict[Along, tuple[X, str]] = {
    "round": ("token", "along the round"),
    "response": ("position", "along the response"),
    "end": ("end", "to the end of the round"),
    "image": ("image", "since the last screenshot"),
    "images": ("images", "by screenshots seen"),
    "context": ("context", "by length of context"),
}
_GAP = 10  # pixels between the labels of ticks


@without_layers
def plot_positions(
    data: Data,
    *,
    along: Along = "round",
    by: str | None = None,
    metric: str = "abs_diff",
    a: str = "old",
    b: str = "rollout",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot a metric's mean by the position of tokens, with intervals and counts.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or what `rounddiag.stats.means_by` made of one, with the same
        `by` and `metric`.
    along : {"round", "response", "end", "image", "images", "context"}
        The token in its round; the position in the response; tokens to the end of the
        round; tokens since the last screenshot began; screenshots seen so far; tokens
        before it, prompt included.
    by : str, optional
        A column of samples or rounds, such as `status`: a line for each of its values,
        at most 8.
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
    inputs = prepare(data, a, b, metric=metric, theme=theme)
    advice = "Choose what tokens are counted from."
    require_one_of(along, _AXES, key="along", advice=advice)
    x, words = _AXES[along]
    title = f"{subject(metric)} {words}"
    means = read_means(inputs, x, by)
    if means.empty:
        return inputs.empty_figure(title)
    bins = means.drop_duplicates("place").sort_values("place")  # NaN last
    heads = [f"{PLACES[x].meaning}: {label}" for label in means["label"]]
    means = means.assign(place=bins["place"].searchsorted(means["place"]), head=heads)
    axis = LinearAxis.around(means)
    lines = split_by_column(means, by, inputs.theme)
    captions = format_key(by, lines) + note_cut(means, axis) + explain_marks(means)
    figure = inputs.new_figure(title, captions, plot=HEIGHT)
    _set_axes(figure, bins["place"], x, axis)
    figure.layout.yaxis.title.text = axis_title(inputs.metric, inputs.pair)
    add_lines(figure, lines, inputs, axis, num_places=len(bins), panels=COUNT_PANELS)
    set_panels(figure, means, PLACE_MEANS, inputs)
    return figure


def _set_axes(
    figure: go.Figure, bins: pd.Series[float], x: X, axis: LinearAxis
) -> None:
    labels = [f"{low:,.0f}".replace("nan", "none") for low in bins]
    width = CHARACTER * max(map(len, labels)) + _GAP
    step = ceil(width * len(labels) / NARROW_PLOT)
    extra = "" if x == "images" else ", bins from"
    figure.update_layout(
        xaxis={
            "title": {"text": PLACES[x].label + extra},
            "range": [-0.6, len(bins) - 0.4],
            "tickvals": list(range(0, len(bins), step)),
            "ticktext": labels[::step],
            "tickangle": 0,
        },
        yaxis=axis.layout(),
    )
