"""The lines of a tail with their names, and the ratios that it is read at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.figures.canvas import colored
from rounddiag.figures.labels import number
from rounddiag.figures.round_lines import shortened
from rounddiag.stats.tails import RATIOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

    from rounddiag.figures.round_lines import RoundLine
    from rounddiag.figures.theme import Theme

# Height of the plot between its margins, in pixels.
PLOT_HEIGHT = 320
# Names of lines must not touch.
_NAME_HEIGHT = 15
# Width of the stroke before a line's name, in pixels.
_STROKE = 14
_HOVER = (
    "<b>{what} {name}</b><br>at least %{{x:.3g}} nat: %{{y:.3%}}"
    "<br>%{{customdata:,}} tokens<extra></extra>"
)


def add_ratios(figure: go.Figure, look: Theme) -> None:
    """Shade what lies beyond each ratio, and label where it begins."""
    end = 10 ** figure.layout.xaxis.range[1]
    # Two labels side by side must not touch where the axis has many decades.
    for ratio, anchor in zip(RATIOS, ("right", "left"), strict=True):
        figure.add_shape(
            type="rect",
            layer="below",
            x0=np.log(ratio),
            x1=end,
            y0=0,
            y1=1,
            yref="paper",
            fillcolor=look.grid,
            opacity=0.5,
            line={"width": 0},
        )
        place = {"x": np.log10(np.log(ratio)), "xanchor": anchor}
        _add_label(figure, f"{number(ratio)}x", look, **place)


def _add_label(figure: go.Figure, text: str, look: Theme, **place: Any) -> None:  # noqa: ANN401 what plotly takes
    figure.add_annotation(
        text=text,
        y=1,
        yref="paper",
        yanchor="bottom",
        showarrow=False,
        font={"color": look.muted},
        **place,
    )


def add_lines(figure: go.Figure, lines: Sequence[RoundLine], what: str) -> None:
    """Draw a line for each group of rounds, or value of a column."""
    for line in lines:
        figure.add_scatter(
            x=line.rows["abs_diff"].to_numpy(np.float32),
            y=line.rows["share"].to_numpy(np.float32),
            mode="lines",
            line={"color": line.color, "width": 2, "dash": line.dash},
            customdata=line.rows["num_tokens"].to_numpy(),
            hovertemplate=_HOVER.format(what=shortened(what), name=line.name),
        )


def add_ends(figure: go.Figure, lines: Sequence[RoundLine]) -> None:
    """Mark where each line ends with its sign."""
    for line in lines:
        end = line.rows.iloc[-1]
        figure.add_scatter(
            x=[end["abs_diff"]],
            y=[end["share"]],
            mode="markers",
            marker={"color": line.color, "symbol": line.symbol, "size": 9},
            hoverinfo="skip",
            cliponaxis=False,
        )


def add_names(figure: go.Figure, lines: Sequence[RoundLine], look: Theme) -> None:
    """Write the name of each line where it ends, right of the plot."""
    ends = pd.DataFrame([line.rows.iloc[-1] for line in lines])
    order = np.lexsort((ends["abs_diff"], -ends["share"]))
    low, high = figure.layout.yaxis.range
    scale = PLOT_HEIGHT / (high - low)
    wanted = (np.log10(ends["share"].to_numpy()[order]) - low) * scale
    for index, place in zip(order, spread(wanted, _NAME_HEIGHT), strict=True):
        _add_name(figure, lines[index], low + place / scale, look)
    # Over the names, which begin with a stroke.
    over = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": _STROKE}
    _add_label(figure, "round", look, **over)


def spread(places: np.ndarray[Any, Any], gap: float) -> list[float]:
    """Move places upwards until neighbours are apart; they come in descending order.

    Examples
    --------
    >>> spread(np.array([50.0, 9.0, 8.0, 0.0]), 10)
    [50.0, 20.0, 10.0, 0.0]
    """
    moved: list[float] = []
    for place in places[::-1].tolist():
        moved.insert(0, max(place, moved[0] + gap) if moved else place)
    return moved


def _add_name(figure: go.Figure, line: RoundLine, place: float, look: Theme) -> None:
    """Lead from the end of a line to its name, right of the plot."""
    right, end = figure.layout.xaxis.range[1], line.rows.iloc[-1]
    figure.add_scatter(
        x=[end["abs_diff"], 10**right],
        y=[end["share"], 10**place],
        mode="lines+markers",
        line={"color": line.color, "width": 1, "dash": "dot"},
        marker={"color": line.color, "size": [6, 0]},
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.add_annotation(
        text=f"{colored('━', line.color)} {line.name}",
        x=1,
        xref="paper",
        y=place,
        xanchor="left",
        showarrow=False,
        font={"color": look.text},
    )
