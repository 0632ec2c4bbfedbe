"""Mismatch by where tokens stand in their round, response or context."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures import means
from rounddiag.figures.canvas import TOP, empty_figure, new_figure
from rounddiag.figures.labels import wrapped
from rounddiag.figures.layers import layers_of
from rounddiag.figures.sources import of_pair, positions_of
from rounddiag.figures.theme import theme_of
from rounddiag.schema import METRICS, PLACE_MEANS, PLACES
from rounddiag.stats.places import check_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import Theme, ThemeName
    from rounddiag.schema import Pair
    from rounddiag.stats.places import By

# Bottom and top of both panels, as shares of the plot.
_MEANS, _COUNTS = (0.3, 1.0), (0.0, 0.15)
_PLOT_HEIGHT, _BOTTOM = 320, 52
# Ticks must not touch in a figure of 400 pixels: its room, and that of a character.
_PLOT_WIDTH, _CHARACTER, _BETWEEN = 300, 6.5, 10
_TITLES = {
    "round": "Mismatch along the round",
    "response": "Mismatch along the response",
    "end": "Mismatch to the end of the round",
    "image": "Mismatch since the last screenshot",
    "images": "Mismatch by screenshots seen",
    "context": "Mismatch by length of context",
}
# Characters of the axis title that the panel of the means has room for.
_AXIS = 38
_BEFORE_ANY = "no screenshot yet"
_MEASURE = METRICS["abs_diff"]


def plot_positions(
    data: Batch | pd.DataFrame,
    *,
    by: By = "round",
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot mean |old - rollout| log-prob by where tokens stand.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or what `rounddiag.stats.positions` made of one for the same `by`.
    by : {"round", "response", "end", "image", "images", "context"}
        The token in its round; the position in the response; tokens to the end of the
        round; tokens since the last screenshot began; screenshots seen so far; tokens
        before it, prompt included.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        What to leave out: `{"ci": False}`.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If the batch does not know what `by` asks for, a frame lacks a column or has
        another pair, or a layer is unknown.
    BatchError
        If the batch has no such score.

    Notes
    -----
    How to read it: a point is a bin of places, labelled with its first; bins double in
    size, except for screenshots, which are counted one by one. In a healthy batch the
    points lie on a level line as far as tokens are equally likely at all places: the
    first token of a round often is certain, so look at `plot_conditional` before you
    believe a rise. A point that stands out at token 0 speaks of the template or of an
    off-by-one between the engines; one at the end, of the stop token. A rise with the
    context's length is what accumulating errors, positions or a cache do; a step at
    one length, a limit (a window, a chunk) of one engine. A step at one number of
    screenshots, and level lines by length, say that screenshots are lost or changed.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_positions(batch, by="images").layout.xaxis.title.text
    'screenshots seen so far'
    """
    look, drawn = theme_of(theme), layers_of(layers, "ci")
    check_by(by)
    data, pair = of_pair(data, a, b)
    found = positions_of(data, by).reset_index(drop=True)
    if found.empty:
        why = "no generated tokens: the response mask is 0"
        return empty_figure(_TITLES[by], why, look)
    lines = means.notes(found, int(found["num_nonfinite"].sum()))
    height = TOP + _PLOT_HEIGHT + _BOTTOM
    figure = new_figure(_TITLES[by], lines, look, height=height, bottom=_BOTTOM)
    names = [f"{PLACES[by].meaning}: {name}" for name in _names(found)]
    _add_means(figure, found, names, look)
    means.show_intervals(figure, visible=drawn["ci"])
    _add_counts(figure, found, names, look)
    _set_axes(figure, found, by, pair)
    return figure


def _names(found: pd.DataFrame) -> list[str]:
    """Name each bin, by its first and last place."""
    pairs = zip(found["low"], found["high"], strict=True)
    return [_name(low, high) for low, high in pairs]


def _name(low: float, high: float) -> str:
    if np.isnan(low):
        return _BEFORE_ANY
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _add_means(
    figure: go.Figure, found: pd.DataFrame, names: list[str], look: Theme
) -> None:
    hover = means.hover_texts(found, names)
    figure.add_scatter(
        x=found.index,
        y=found["mean"],
        mode="lines+markers",
        line={"color": look.muted, "width": 1},
        marker={
            "size": 8,
            "color": means.fills(found, look.text, look.paper),
            "line": {"color": look.text, "width": 1.5},
        },
        error_y=means.intervals(found, look.muted),
        customdata=hover,
        hovertemplate=means.HOVER,
        cliponaxis=False,
    )
    without = np.flatnonzero(found["mean"].isna())
    texts = [hover[i] for i in without]
    means.add_undefined(figure, without, np.zeros(len(without)), texts, look)


def _add_counts(
    figure: go.Figure, found: pd.DataFrame, names: list[str], look: Theme
) -> None:
    figure.add_bar(
        x=found.index,
        y=found["num_tokens"],
        yaxis="y2",
        width=0.6 * min(1, len(found) / 15),  # thin also when they are few
        marker={"color": look.quiet},
        customdata=means.hover_texts(found, names),
        hovertemplate=means.HOVER,
    )
    means.add_head(figure, "y2", PLACE_MEANS["num_tokens"].label, look)


def _set_axes(figure: go.Figure, found: pd.DataFrame, by: By, pair: Pair) -> None:
    highest = int(found["num_tokens"].max())
    labels = [f"{low:,.0f}".replace("nan", "none") for low in found["low"]]
    width = _CHARACTER * max(map(len, labels)) + _BETWEEN
    step = ceil(width * len(labels) / _PLOT_WIDTH)
    bins = "" if by == "images" else ", bins from"
    figure.update_layout(
        xaxis={
            "title": {"text": PLACES[by].label + bins},
            "range": [-0.6, len(found) - 0.4],
            "tickvals": list(found.index[::step]),
            "ticktext": labels[::step],
            "tickangle": 0,
            "anchor": "y2",
        },
        yaxis={
            "title": {"text": wrapped(pair.label(_MEASURE), _AXIS)},
            "domain": _MEANS,
            "rangemode": "tozero",
        },
        yaxis2={"domain": _COUNTS, **means.ends(highest)},
    )
