"""Two panels with the same axes: the first round beside later rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.theme import Theme
    from rounddiag.stats.densities import Bins

PANELS = ("first round", "later rounds")
_AXES = ("x", "x2")
_DOMAINS = ((0.0, 0.455), (0.545, 1.0))
# Lines of a head, in a size of which 25 characters fit half a figure of 400 pixels.
_HEAD_SIZE, _HEAD_LINE = 11, 15
# Heads stand clear of points at the upper edge.
_HEAD_ABOVE = 5
# The title that both x axes share begins this far under the plot.
_TITLE_BELOW = 26


def panels(points: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give each panel's x axis, and the rows of a frame that belong there."""
    is_later = points["is_later"].to_numpy()
    for axis, later in zip(_AXES, (False, True), strict=True):
        yield axis, points[is_later == later]


def set_panels(
    figure: go.Figure, ends: tuple[Bins, Bins], labels: tuple[str, str], look: Theme
) -> None:
    """Lay out two panels that share both axes, and name what they show."""
    x_range, y_range = ([bins.low, bins.high] for bins in ends)
    for name, domain in zip(("xaxis", "xaxis2"), _DOMAINS, strict=True):
        figure.layout[name] = {"domain": domain, "range": x_range, "nticks": 5}
        figure.layout[name].anchor = "y"
    figure.layout.yaxis = {"title": {"text": labels[1]}, "range": y_range}
    figure.add_annotation(
        text=labels[0],
        x=0.5,
        y=0,
        xref="paper",
        yref="paper",
        yanchor="top",
        yshift=-_TITLE_BELOW,
        showarrow=False,
        font={"color": look.text},
    )


def add_heads(figure: go.Figure, heads: Sequence[Sequence[str]]) -> None:
    """Write lines over each panel, and make room for them."""
    room = _HEAD_LINE * (1 + max(len(head) for head in heads))
    figure.layout.margin.t += room
    figure.layout.height += room
    for axis, name, head in zip(_AXES, PANELS, heads, strict=True):
        figure.add_annotation(
            text="<br>".join([f"<b>{name}</b>", *head]),
            x=0,
            y=1,
            xref=f"{axis} domain",
            yref="paper",
            xanchor="left",
            yanchor="top",
            yshift=room + _HEAD_ABOVE,
            align="left",
            showarrow=False,
            font={"size": _HEAD_SIZE},
        )


def add_guide(
    figure: go.Figure, start: tuple[float, float], end: tuple[float, float], look: Theme
) -> None:
    """Draw the line on which both engines agree, under what is drawn."""
    for axis in _AXES:
        figure.add_shape(
            type="line",
            layer="below",
            xref=axis,
            yref="y",
            x0=start[0],
            y0=start[1],
            x1=end[0],
            y1=end[1],
            line={"color": look.muted, "width": 1, "dash": "dot"},
        )


def add_empty(figure: go.Figure, axis: str, why: str, look: Theme) -> None:
    """Say in a panel why it is empty."""
    # An axis without a trace would not be drawn.
    figure.add_scatter(x=[None], y=[None], xaxis=axis)
    figure.add_annotation(
        text=why,
        x=0.5,
        y=0.5,
        xref=f"{axis} domain",
        yref="y domain",
        showarrow=False,
        font={"color": look.muted},
        bgcolor=look.paper,
    )
