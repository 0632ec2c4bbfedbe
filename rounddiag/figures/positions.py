"""Mismatch by where tokens stand in their round, response or context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.figures import means
from rounddiag.figures.canvas import empty_figure, new_figure
from rounddiag.figures.layers import layers_of
from rounddiag.figures.picked import left_out
from rounddiag.figures.place_panels import (
    add_counts,
    add_means,
    estimand,
    hover_texts,
    set_axes,
)
from rounddiag.figures.sources import of_pair, positions_of
from rounddiag.figures.theme import theme_of
from rounddiag.schema import metric_name
from rounddiag.stats.places import check_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import ThemeName
    from rounddiag.stats.places import By

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
