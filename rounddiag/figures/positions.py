"""Mismatch by where tokens stand in their round, response or context."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures._parts import means
from rounddiag.figures._parts.canvas import empty_figure, new_figure, theme_of
from rounddiag.figures._parts.data import layers_of, left_out, of_pair, positions_of
from rounddiag.figures._parts.labels import wrapped
from rounddiag.figures._parts.round_layers import unit_of
from rounddiag.schema import METRICS, NUM_TOKENS, PLACES, metric_name
from rounddiag.schema import PLACE_MEANS as MEANS
from rounddiag.stats.token_places import check_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures._parts.canvas import Theme, ThemeName
    from rounddiag.schema import Pair
    from rounddiag.stats.token_places import By


# Bottom and top of the three panels, as shares of the plot; of the first alone.
_MEANS, _SAMPLES, _TOKENS, _ALONE = (0.46, 1.0), (0.23, 0.34), (0.0, 0.11), (0.0, 1.0)
# Characters of the axis title that the panel of the means has room for.
_AXIS = 38
# Ticks must not touch in a figure of 400 pixels: its room, and that of a character.
_PLOT_WIDTH, _CHARACTER, _BETWEEN = 300, 6.5, 10
_BEFORE_ANY = "no screenshot yet"


def estimand(metric: str, pair: Pair) -> str:
    """Say what the y axis of the means shows, in lines that fit it."""
    return wrapped(pair.label(METRICS[metric]), _AXIS)


def hover_texts(found: pd.DataFrame, by: By, metric: str) -> list[list[str]]:
    """Return what each bin says on hover, its first and last place before all."""
    pairs = zip(found["low"], found["high"], strict=True)
    names = [f"{PLACES[by].meaning}: {_name(low, high)}" for low, high in pairs]
    return means.hover_texts(found, names, unit_of(metric))


def add_means(
    figure: go.Figure, found: pd.DataFrame, hover: list[list[str]], look: Theme
) -> None:
    """Draw a point a bin, with its interval; a cross where it has no mean."""
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


def add_counts(
    figure: go.Figure, found: pd.DataFrame, hover: list[list[str]], look: Theme
) -> None:
    """Draw how many samples and tokens each bin has."""
    for axis, column in (("y2", MEANS["num_samples"]), ("y3", NUM_TOKENS)):
        figure.add_bar(
            x=found.index,
            y=found[column.name],
            yaxis=axis,
            width=0.6 * min(1, len(found) / 15),  # thin also when they are few
            marker={"color": look.quiet, "line": {"width": 0}},
            customdata=hover,
            hovertemplate=means.HOVER,
        )
        means.add_head(figure, axis, column.label, look)


def set_axes(
    figure: go.Figure, found: pd.DataFrame, by: By, *, has_counts: bool
) -> None:
    """Name the places, label as many bins as fit, and share the plot."""
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
            "anchor": "y3" if has_counts else "y",
        },
        yaxis={"domain": _MEANS if has_counts else _ALONE, "rangemode": "tozero"},
    )
    if has_counts:
        for name, column, domain in (
            ("yaxis2", "num_samples", _SAMPLES),
            ("yaxis3", "num_tokens", _TOKENS),
        ):
            ends = means.ends(int(found[column].max()))
            figure.layout[name] = {"domain": domain, **ends}


def _name(low: float, high: float) -> str:
    if np.isnan(low):
        return _BEFORE_ANY
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


# As high as a figure per round, whose place it can take.
_HEIGHT, _HEIGHT_WITHOUT = 460, 340
_TITLES = {
    "round": "Mismatch along the round",
    "response": "Mismatch along the response",
    "end": "Mismatch to the end of the round",
    "image": "Mismatch since the last screenshot",
    "images": "Mismatch by screenshots seen",
    "context": "Mismatch by length of context",
}


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
    """Plot a metric's mean by where tokens stand, with intervals and counts.

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
    look, drawn = theme_of(theme), layers_of(layers, "ci", "counts")
    check_by(by)
    metric = metric_name(metric)
    data, pair = of_pair(data, a, b)
    found = positions_of(data, by, metric).reset_index(drop=True)
    if found.empty:
        why = "no generated tokens: the response mask is 0"
        return empty_figure(_TITLES[by], why, look)
    lines = means.notes(found, int(found["num_nonfinite"].sum())) + left_out(data)
    height = _HEIGHT if drawn["counts"] else _HEIGHT_WITHOUT
    figure = new_figure(_TITLES[by], lines, look, height=height)
    hover = hover_texts(found, by, metric)
    set_axes(figure, found, by, has_counts=drawn["counts"])
    figure.layout.yaxis.title.text = estimand(metric, pair)
    add_means(figure, found, hover, look)
    means.show_intervals(figure, visible=drawn["ci"])
    if drawn["counts"]:
        add_counts(figure, found, hover, look)
    return figure
