"""The figure of means by the role of tokens: a forest plot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.figures._parts.axes import MeanAxis, choose_axis, note_zeros
from rounddiag.figures._parts.canvas import AXIS_ROOM, Theme, ThemeName
from rounddiag.figures._parts.data import prepare, without_layers
from rounddiag.figures._parts.labels import hover_text, shorten_name
from rounddiag.figures._parts.lines import (
    RoundLine,
    format_key,
    split_by_column,
)
from rounddiag.figures._parts.means import (
    add_lines,
    axis_title,
    explain_marks,
    read_means,
)
from rounddiag.stats.inputs import Data
from rounddiag.text.role_tagging import Tagger

_TITLE = "Mismatch by token role"
# Means of one row are stacked, within this share of the spacing of lines in other
# figures.
_SPREAD = 1.6
# Height of a row with one mean, and what each further mean adds, in pixels.
_ROW_HEIGHT, _EXTRA_HEIGHT = 30, 14
# Room under the plot for each further line of the axis title.
_LINE = 15
# Room for the counts, right of the plot, in pixels.
_RIGHT = 76
# Characters of a role's name in a figure of 400 pixels.
_LONGEST = 18
# Marks roles whose tokens are counted in another role as well.
_MARK = "◆"


@without_layers
def plot_roles(
    data: Data,
    *,
    tagger: Tagger | None = None,
    metric: str = "abs_diff",
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot mean |old − rollout| log-prob by the role of tokens.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch with a tokenizer, or what `rounddiag.stats.means_by` made of one by
        "role", with the same options.
    tagger : callable, optional
        For a batch: from the text of a round to stretches (start, stop, role) of it;
        `rounddiag.text.tag_actions` where left out.
    by : str, optional
        A column of samples or rounds, such as `status`: a point for each of its values,
        at most 8, under each other.
    metric, a, b, theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: a row is a role, the largest mean on top; a line through a point is
    its interval, clustered by sample or group, and where two of them do not overlap the
    roles differ. The axis is logarithmic. In a healthy batch the order follows how
    certain the model is: syntax and special tokens, which are nearly certain, at the
    bottom, thought and typed text on top, all of them small. Coordinates alone on top
    mean that the engines see another screenshot, or see it in another size; typed text
    and thought, that one of them lost part of its context; special tokens, or the first
    token of rounds, that their templates differ; the last one, that their stop tokens
    do. First and last tokens, as diamonds, are counted in their roles too. With `by`,
    the points of a row are those of its values: a fault of one rank, replica or kind of
    sample stands apart in the roles that it touches.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_roles(batch).layout.yaxis.ticktext[-1]
    'typed text'
    """
    inputs = prepare(data, a, b, metric=metric, theme=theme)
    means = read_means(inputs, "role", by, tagger)
    if means.empty:
        return inputs.empty_figure(_TITLE)
    names, means = _order_rows(means)
    axis = choose_axis(means, inputs.metric)
    lines = split_by_column(means, by, inputs.theme)
    label = axis_title(inputs.metric, inputs.pair)
    row = _ROW_HEIGHT + _EXTRA_HEIGHT * (len(lines) - 1)
    bottom = AXIS_ROOM + _LINE * label.count("<br>")
    captions = format_key(by, lines) + _explanation(means, axis)
    figure = inputs.new_figure(_TITLE, captions, plot=row * len(names), bottom=bottom)
    if by is None:  # else a symbol is that of a value
        symbols = np.where(means["overlaps"], "diamond", "circle").tolist()
        lines = [replace(lines[0], symbol=symbols)]
    add_lines(
        figure,
        lines,
        inputs,
        axis,
        num_places=len(names),
        spread=-_SPREAD,
        is_horizontal=True,
        mode="markers",
        marker={"size": 9},
    )
    figure.layout.margin.r = _RIGHT
    _add_counts(figure, lines, inputs.theme)
    _set_axes(figure, names, axis)
    figure.layout.xaxis.title.text = label
    return figure


def _order_rows(means: pd.DataFrame) -> tuple[list[str], pd.DataFrame]:
    """Return the names of rows, the largest mean last, and the place of each mean."""
    largest = means.assign(size=means["mean"].abs()).groupby("place")["size"].max()
    order = largest.sort_values(na_position="first", kind="stable").index
    rows = means.drop_duplicates("place").set_index("place").loc[order]
    pairs = zip(rows["label"], rows["overlaps"], strict=True)
    names = [f"{_MARK} {role}" if overlaps else role for role, overlaps in pairs]
    heads = [*map(_escape, means["label"])]
    placed = means.assign(
        place=means["place"].map({place: row for row, place in enumerate(order)}),
        head=heads,
    )
    return names, placed.sort_values("place", kind="stable")


def _explanation(means: pd.DataFrame, axis: MeanAxis) -> list[str]:
    distinct = means.loc[~means["overlaps"], "num_nonfinite"]
    lines = explain_marks(means, num_nonfinite=int(distinct.sum()))
    if means["overlaps"].any():
        lines.insert(0, f"{_MARK} counted in other roles as well")
    return lines + note_zeros(means, axis, "left")


def _add_counts(figure: go.Figure, lines: list[RoundLine], theme: Theme) -> None:
    places = [
        (place - _SPREAD * line.shift, "y", f"{count:,}")
        for line in lines
        for place, count in line.rows[["place", "num_tokens"]].itertuples(index=False)
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
            font={"color": theme.muted},
        )


def _set_axes(figure: go.Figure, names: list[str], axis: MeanAxis) -> None:
    figure.update_layout(
        xaxis={"showgrid": True, **axis.layout()},
        yaxis={
            "range": [-0.6, len(names) - 0.4],
            "tickvals": list(range(len(names))),
            "ticktext": [shorten_name(name, _LONGEST) for name in names],
            "showgrid": False,
        },
    )


def _escape(role: str) -> str:
    """Escape a role, which a tagger may take from untrusted text; keep its spaces."""
    return " ".join(map(hover_text, role.split(" ")))
