"""The lines of a tail with their names, and the ratios that it is read at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.canvas import colored
from rounddiag.figures.labels import number
from rounddiag.figures.round_groups import group_styles
from rounddiag.stats.tails import RATIOS

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.theme import Theme

# Height of the plot between its margins, in pixels.
PLOT_HEIGHT = 320
# Names of lines must not touch.
_NAME_HEIGHT = 15
# Width of the stroke before a line's name, in pixels.
_STROKE = 14
_HOVER = (
    "<b>round {rounds}</b><br>at least %{{x:.3g}} nat: %{{y:.3%}}"
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
    # Over the names of the lines, which begin with a stroke.
    place = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": _STROKE}
    _add_label(figure, "round", look, **place)


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


def add_lines(figure: go.Figure, drawn: pd.DataFrame, look: Theme) -> None:
    """Draw a line for each group of rounds, and its name where it ends."""
    groups = group_styles(drawn["rounds"].unique().tolist(), look)
    for group in groups:
        part = drawn[drawn["rounds"] == group.name]
        figure.add_scatter(
            x=part["abs_diff"].to_numpy(np.float32),
            y=part["share"].to_numpy(np.float32),
            mode="lines",
            line={"color": group.color, "width": 3 if group is groups[0] else 2},
            customdata=part["num_tokens"].to_numpy(),
            hovertemplate=_HOVER.format(rounds=group.name),
        )
    ends = drawn.drop_duplicates("rounds", keep="last")
    ends = ends.sort_values(["share", "abs_diff"], ascending=[False, True])
    colors = {group.name: group.color for group in groups}
    places = _name_places(figure, ends)
    for (_, row), place in zip(ends.iterrows(), places, strict=True):
        _add_name(figure, row, place, colors[row["rounds"]], look)


def _name_places(figure: go.Figure, ends: pd.DataFrame) -> list[float]:
    """Say how high the name of each line stands, as a logarithm of the share."""
    low, high = figure.layout.yaxis.range
    scale = PLOT_HEIGHT / (high - low)
    wanted = (np.log10(ends["share"].to_numpy()) - low) * scale
    return [low + place / scale for place in spread(wanted, _NAME_HEIGHT)]


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


def _add_name(
    figure: go.Figure, row: pd.Series[Any], place: float, color: str, look: Theme
) -> None:
    """Lead from the end of a line to its name, right of the plot."""
    right = figure.layout.xaxis.range[1]
    figure.add_scatter(
        x=[row["abs_diff"], 10**right],
        y=[row["share"], 10**place],
        mode="lines+markers",
        line={"color": color, "width": 1, "dash": "dot"},
        marker={"color": color, "size": [6, 0]},
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.add_annotation(
        text=f"{colored('━', color)} {row['rounds']}",
        x=1,
        xref="paper",
        y=place,
        xanchor="left",
        showarrow=False,
        font={"color": look.text},
    )
