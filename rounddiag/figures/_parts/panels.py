"""Panels over one x axis, one below the other; heatmaps of steps and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.figures._parts.canvas import AXIS_ROOM, Theme, cross, new_figure
from rounddiag.figures._parts.scales import BOTTOM, ColorScale
from rounddiag.schema import ROUND, STEP

# Longer lines have no markers.
MAX_POINTS = 80
MEANS_HEIGHT = 230  # of the panel of means, in pixels
STEP_HOVER = "<b>step %{x:,}, round %{y}</b><br>"  # of a heatmap
# Height of a row of the heatmap, its fewest and most rows; and between panels.
_ROW, _MIN_ROWS, _MAX_ROWS, _GAP = 14, 5, 24, 34


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel: its height in pixels, and its y axis."""

    height: int
    axis: dict[str, Any]


def heatmap_panel(rows: pd.DataFrame) -> Panel:
    """Return the panel of a heatmap of the rounds of these rows, the first on top."""
    num_rounds = int(rows["round"].max()) + 1
    return Panel(
        height=_ROW * min(max(num_rounds, _MIN_ROWS), _MAX_ROWS),
        axis={
            "title": {"text": ROUND.label},
            "range": [num_rounds - 0.5, -0.5],
            "dtick": max(1, num_rounds // _MIN_ROWS),
        },
    )


def new_panel_figure(
    title: str,
    lines: Sequence[str],
    panels: Sequence[Panel],
    xaxis: dict[str, Any],
    theme: Theme,
    *,
    has_heatmap: bool,
    gap: int = _GAP,
) -> go.Figure:
    """Return a figure whose panels are below one another, over one x axis."""
    plot = sum(panel.height for panel in panels) + gap * (len(panels) - 1)
    bottom = BOTTOM if has_heatmap else AXIS_ROOM
    figure = new_figure(title, [*lines], theme, plot=plot, bottom=bottom)
    anchor = f"y{len(panels)}" if len(panels) > 1 else "y"
    figure.update_layout(xaxis={**xaxis, "anchor": anchor})
    top = plot
    for index, panel in enumerate(panels, 1):
        domain = [(top - panel.height) / plot, top / plot]
        name = f"yaxis{index if index > 1 else ''}"
        figure.layout[name] = {"domain": domain, **panel.axis}
        top -= panel.height + gap
    return figure


def step_axis(steps: pd.Series[int]) -> dict[str, Any]:
    """Return the x axis of training steps."""
    known = np.sort(steps.unique())
    half = float(np.median(np.diff(known))) / 2 if len(known) > 1 else 0.5
    return {
        "title": {"text": STEP.label},
        "range": [float(known[0]) - half, float(known[-1]) + half],
        "tickformat": ",d",
    }


def place_rounds(rows: pd.DataFrame, *columns: str) -> tuple[Array, list[Array]]:
    """Return the steps, and columns as tables of round and step; NaN without a row."""
    steps = np.sort(rows["step"].unique())
    place = rows["round"], np.searchsorted(steps, rows["step"])
    tables = []
    for name in columns:
        table = np.full((int(rows["round"].max()) + 1, len(steps)), np.nan)
        table[place] = rows[name]
        tables.append(table)
    return steps, tables


def add_heatmap(
    figure: go.Figure,
    *,
    places: Array,
    values: Array,
    has_value: Array,
    hover: str,
    scale: ColorScale,
    axis: str,
    theme: Theme,
    **trace: Any,  # noqa: ANN401 what plotly takes
) -> None:
    """Draw a value of every place and row as a colour, an undefined one as a cross."""
    figure.add_heatmap(
        x=places,
        z=values,
        yaxis=axis,
        hovertemplate=f"{hover}<extra></extra>",
        hoverongaps=False,
        zmin=scale.low,
        zmax=scale.high,
        colorscale=scale.linear_colors(theme),
        showscale=False,
        **trace,
    )
    rows, columns = np.nonzero(has_value & np.isnan(values))
    figure.add_scatter(
        x=places[columns],
        y=rows,
        yaxis=axis,
        mode="markers",
        marker=cross(theme),
        hoverinfo="skip",
    )
