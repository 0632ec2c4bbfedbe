"""The points of a forest of means, and the numbers beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures import means
from rounddiag.figures.labels import hover_text

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.mean_axis import MeanAxis
    from rounddiag.figures.round_lines import RoundLine
    from rounddiag.figures.theme import Theme

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
