"""Mismatch by what tokens are for: a forest of means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.words import count
from rounddiag.figures import means
from rounddiag.figures.canvas import TOP, empty_figure, new_figure
from rounddiag.figures.labels import hover_text
from rounddiag.figures.layers import layers_of
from rounddiag.figures.log_axis import LogAxis
from rounddiag.figures.sources import role_means_of
from rounddiag.figures.theme import theme_of
from rounddiag.schema import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import Theme, ThemeName
    from rounddiag.text.tagging import Tagger

_ROW_HEIGHT, _BOTTOM = 30, 52
# Room for the counts, right of the plot, in pixels.
_RIGHT = 76
# Characters of a role's name in a figure of 400 pixels.
_LONGEST = 18
_MEASURE = METRICS["abs_diff"]


def plot_roles(
    data: Batch | pd.DataFrame,
    *,
    tagger: Tagger | None = None,
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot mean |old - rollout| log-prob by what tokens are for.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch with a tokenizer, or what `rounddiag.stats.role_means` made of one.
    tagger : callable, optional
        For a batch: from the text of a round to stretches (start, stop, role) of it;
        `rounddiag.text.tag_actions` where left out.
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
        If the batch has no tokenizer, a frame lacks a column, or a layer is unknown.

    Notes
    -----
    How to read it: a row is a role, the largest mean on top; a line through a point is
    its interval, clustered by sample or group, and where two of them do not overlap the
    roles differ. The axis is logarithmic. In a healthy batch the order follows how sure
    the model is: syntax and special tokens, which are nearly certain, at the bottom,
    thought and typed text on top, all of them small. Coordinates alone on top say that
    the engines see another screenshot, or see it in another size; typed text and
    thought, that one of them has forgotten something it read; special tokens, or the
    first token of rounds, that their templates differ; the last one, that their stop
    tokens do. First and last tokens, as diamonds, are counted in their roles too.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_roles(batch).layout.yaxis.ticktext[-1]
    'typed text'
    """
    look, drawn = theme_of(theme), layers_of(layers, "ci")
    found = role_means_of(data, tagger)
    title = "Mismatch by what tokens are for"
    if found.empty:
        return empty_figure(title, "no generated tokens: the response mask is 0", look)
    height = TOP + _ROW_HEIGHT * len(found) + _BOTTOM
    lines = _explanation(found)
    figure = new_figure(title, lines, look, height=height, bottom=_BOTTOM)
    figure.layout.margin.r = _RIGHT
    found = found.sort_values("mean", na_position="first", ignore_index=True)
    axis = LogAxis.around(found)
    _add_means(figure, found, axis, look)
    means.show_intervals(figure, visible=drawn["ci"])
    _add_counts(figure, found, look)
    _set_axes(figure, found, axis)
    return figure


def _explanation(found: pd.DataFrame) -> list[str]:
    of_roles = found.loc[~found["overlaps"], "num_nonfinite"]
    lines = means.notes(found, int(of_roles.sum()))
    if found["overlaps"].any():
        lines.insert(0, "◆ counted among the roles too")
    zeros = int((found["mean"] == 0).sum())
    if zeros:
        lines.append(f"{count(zeros, 'mean')} exactly 0, drawn at the left edge")
    return lines


def _add_means(
    figure: go.Figure, found: pd.DataFrame, axis: LogAxis, look: Theme
) -> None:
    hover = means.hover_texts(found, map(_safe, found["role"]))
    figure.add_scatter(
        x=axis.raised(found["mean"]),
        y=found.index,
        mode="markers",
        marker={
            "size": 9,
            "symbol": np.where(found["overlaps"], "diamond", "circle"),
            "color": means.fills(found, look.text, look.paper),
            "line": {"color": look.text, "width": 1.5},
        },
        error_x=means.intervals(found, look.muted),
        customdata=hover,
        hovertemplate=means.HOVER,
    )
    without = np.flatnonzero(found["mean"].isna())
    texts = [hover[i] for i in without]
    means.add_undefined(figure, np.full(len(without), axis.low), without, texts, look)


def _add_counts(figure: go.Figure, found: pd.DataFrame, look: Theme) -> None:
    """Write each row's number of tokens right of the plot, and what it is on top."""
    counts = zip(found.index, found["num_tokens"], strict=True)
    places = [(place, "y", f"{num:,}") for place, num in counts]
    for y, yref, text in (*places, (1, "paper", "tokens")):
        figure.add_annotation(
            text=text,
            x=1,
            y=y,
            xref="paper",
            yref=yref,
            xanchor="left",
            yanchor="bottom" if yref == "paper" else "middle",
            xshift=8,
            showarrow=False,
            font={"color": look.muted},
        )


def _set_axes(figure: go.Figure, found: pd.DataFrame, axis: LogAxis) -> None:
    figure.update_layout(
        xaxis={"title": {"text": _MEASURE.label}, "showgrid": True, **axis.layout()},
        yaxis={
            "range": [-0.6, len(found) - 0.4],
            "tickvals": list(found.index),
            "ticktext": [_shortened(role) for role in found["role"]],
            "showgrid": False,
        },
    )


def _shortened(role: str) -> str:
    return _safe(role if len(role) <= _LONGEST else f"{role[: _LONGEST - 1]}…")


def _safe(role: str) -> str:
    """Show a role, which a tagger may have taken from the text, and its spaces."""
    return " ".join(map(hover_text, role.split(" ")))
