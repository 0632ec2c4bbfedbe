"""Mismatch by what tokens are for: a forest of means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures._parts import means
from rounddiag.figures._parts.axes import mean_axis, raised_words
from rounddiag.figures._parts.canvas import TOP, empty_figure, new_figure, theme_of
from rounddiag.figures._parts.data import layers_of, left_out, of_pair, role_means_of
from rounddiag.figures._parts.labels import hover_text, wrapped
from rounddiag.figures._parts.lines import key_lines, lines_of
from rounddiag.figures._parts.round_layers import unit_of
from rounddiag.schema import METRICS, metric_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures._parts.axes import MeanAxis
    from rounddiag.figures._parts.canvas import Theme, ThemeName
    from rounddiag.figures._parts.lines import RoundLine
    from rounddiag.text.roles import Tagger


# Means of one row stand under each other, in this share of what lines have beside
# each other in other figures.
_SPREAD = 1.6


def add_means(
    figure: go.Figure, line: RoundLine, axis: MeanAxis, unit: str, look: Theme
) -> None:
    """Draw a mean in each row, with its interval; a cross where there is none."""
    found, y = line.rows, _places(line).to_numpy()
    extra = f", {line.name}" if line.name else ""
    hover = means.hover_texts(found, [safe(r) + extra for r in found["role"]], unit)
    figure.add_scatter(
        x=axis.raised(found["mean"]),
        y=y,
        mode="markers",
        marker={
            "size": 9,
            "symbol": np.where(found["overlaps"], "diamond", line.symbol)
            if not line.name
            else line.symbol,
            "color": means.fills(found, line.color, look.paper),
            "line": {"color": line.color, "width": 1.5},
        },
        error_x=means.intervals(found, line.color if line.name else look.muted),
        customdata=hover,
        hovertemplate=means.HOVER,
    )
    without = np.flatnonzero(found["mean"].isna())
    texts, floor = [hover[i] for i in without], np.full(len(without), axis.low)
    means.add_undefined(figure, floor, y[without], texts, look)


def add_counts(figure: go.Figure, lines: list[RoundLine], look: Theme) -> None:
    """Write each mean's number of tokens right of the plot, and what it is on top."""
    places = [
        (place, "y", f"{num:,}")
        for line in lines
        for place, num in zip(_places(line), line.rows["num_tokens"], strict=True)
    ]
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


def safe(role: str) -> str:
    """Show a role, which a tagger may have taken from the text, and its spaces."""
    return " ".join(map(hover_text, role.split(" ")))


def _places(line: RoundLine) -> pd.Series[float]:
    return line.rows["place"] - _SPREAD * line.shift


# A row with one mean, and how much higher each other one makes it, in pixels.
_ROW_HEIGHT, _HEIGHT_OF_MORE = 30, 14
# Room under the plot, and for each line more of the axis title.
_BOTTOM, _LINE = 52, 15
# Room for the counts, right of the plot, in pixels.
_RIGHT = 76
# Characters of a role's name in a figure of 400 pixels, and of its axis title.
_LONGEST, _AXIS = 19, 38
# What is counted twice.
_MARK = "◆"


def plot_roles(
    data: Batch | pd.DataFrame,
    *,
    tagger: Tagger | None = None,
    metric: str = "abs_diff",
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot mean |old - rollout| log-prob by what tokens are for.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch with a tokenizer, or what `rounddiag.stats.role_means` made of one, with
        the same options.
    tagger : callable, optional
        For a batch: from the text of a round to stretches (start, stop, role) of it;
        `rounddiag.text.tag_actions` where left out.
    metric : str
        What is averaged, as in `round_summary`.
    by : str, optional
        A column of samples or rounds, `status` say: a point for each of its values, at
        most 8, under each other.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        What to leave out: `{"ci": False, "counts": False}`.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If the batch has no tokenizer, a frame lacks a column or has another pair, a
        metric or layer is unknown, or `by` has more than 8 values.
    BatchError
        If the batch has no such score.

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
    With `by`, the points of a row are those of its values: a fault of one rank, replica
    or kind of sample stands apart in the roles that it touches.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_roles(batch).layout.yaxis.ticktext[-1]
    'typed text'
    """
    look, drawn = theme_of(theme), layers_of(layers, "ci", "counts")
    metric = metric_name(metric)
    data, pair = of_pair(data, a, b)
    found = role_means_of(data, tagger, metric=metric, by=by)
    title = "Mismatch by what tokens are for"
    if found.empty:
        return empty_figure(title, "no generated tokens: the response mask is 0", look)
    names, found = _placed(found)
    lines, axis = lines_of(found, by, look), mean_axis(found, metric)
    label = wrapped(pair.label(METRICS[metric]), _AXIS)
    row = _ROW_HEIGHT + _HEIGHT_OF_MORE * (len(lines) - 1)
    bottom = _BOTTOM + _LINE * label.count("<br>")
    height = TOP + row * len(names) + bottom
    words = key_lines(by, lines) if by else []
    words += _explanation(found, axis) + left_out(data)
    figure = new_figure(title, words, look, height=height, bottom=bottom)
    for line in lines:
        add_means(figure, line, axis, unit_of(metric), look)
    means.show_intervals(figure, visible=drawn["ci"])
    if drawn["counts"]:
        figure.layout.margin.r = _RIGHT
        add_counts(figure, lines, look)
    _set_axes(figure, names, axis)
    figure.layout.xaxis.title.text = label
    return figure


def _placed(found: pd.DataFrame) -> tuple[list[str], pd.DataFrame]:
    """Return what rows are called, the largest mean last, and the row of each mean."""
    keys = ["role", "overlaps"]
    largest = found.assign(size=found["mean"].abs()).groupby(keys, sort=False)["size"]
    ordered = largest.max().sort_values(na_position="first", kind="stable").index
    places = {key: place for place, key in enumerate(ordered)}
    rows = zip(found["role"], found["overlaps"], strict=True)
    names = [f"{_MARK} {role}" if more else role for role, more in ordered]
    placed = found.assign(place=[places[row] for row in rows])
    return names, placed.sort_values("place", kind="stable")


def _explanation(found: pd.DataFrame, axis: MeanAxis) -> list[str]:
    of_roles = found.loc[~found["overlaps"], "num_nonfinite"]
    lines = means.notes(found, int(of_roles.sum()))
    if found["overlaps"].any():
        lines.insert(0, f"{_MARK} counted among the roles too")
    return lines + raised_words(found, axis, "left")


def _set_axes(figure: go.Figure, names: list[str], axis: MeanAxis) -> None:
    figure.update_layout(
        xaxis={"showgrid": True, **axis.layout()},
        yaxis={
            "range": [-0.6, len(names) - 0.4],
            "tickvals": list(range(len(names))),
            "ticktext": [_shortened(name) for name in names],
            "showgrid": False,
        },
    )


def _shortened(name: str) -> str:
    return safe(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…")
