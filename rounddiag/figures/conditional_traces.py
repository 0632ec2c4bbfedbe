"""The layers of the figure by rollout probability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.checks.words import count
from rounddiag.figures import means
from rounddiag.figures.labels import number
from rounddiag.figures.round_lines import shortened
from rounddiag.stats import few_rows
from rounddiag.stats.conditional import PROB_EDGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.mean_axis import MeanAxis
    from rounddiag.figures.round_lines import RoundLine
    from rounddiag.figures.theme import Theme

    Array = np.ndarray[Any, Any]

# Points of 60 rounds must not touch in a figure of 400 pixels.
_PLOT_WIDTH = 300
# Groups stand side by side within this share of what lines have in other figures.
_SPREAD = 0.6


def _bins(known: pd.DataFrame) -> Array:
    """Return the bin of each row, whose edges are integers on the axis."""
    places = np.searchsorted(PROB_EDGES, known["prob_low"])
    return places + 0.5


def add_envelope(figure: go.Figure, known: pd.DataFrame, look: Theme) -> None:
    """Draw what is expected, dotted, from the first group that has each bin."""
    first = known.drop_duplicates("prob_low").sort_values("prob_low")
    figure.add_scatter(
        x=_bins(first),
        y=first["envelope"],
        mode="lines",
        line={"color": look.muted, "width": 2, "dash": "dot"},
        hoverinfo="skip",
    )


def add_groups(
    figure: go.Figure,
    lines: Sequence[RoundLine],
    axis: MeanAxis,
    unit: str,
    by: str | None,
    look: Theme,
) -> None:
    """Draw each group's means side by side, and its tokens in stacked bars."""
    for line in lines:
        part, x = line.rows, _bins(line.rows) + _SPREAD * line.shift
        hover = means.hover_texts(part, _names(line, by), unit)
        figure.add_scatter(x=x, customdata=hover, **_means(line, axis, look))
        without = np.flatnonzero(part["mean"].isna())
        texts = [hover[place] for place in without]
        floor = np.full(len(without), axis.low)
        means.add_undefined(figure, x[without], floor, texts, look)
        figure.add_bar(
            x=_bins(part),
            y=part["num_tokens"],
            yaxis="y2",
            width=0.7,
            marker={"color": line.color},
            customdata=hover,
            hovertemplate=means.HOVER,
        )


def _means(line: RoundLine, axis: MeanAxis, look: Theme) -> dict[str, Any]:
    return {
        "y": axis.raised(line.rows["mean"]),
        "mode": "lines+markers",
        "line": {"color": line.color, "width": 1},
        "marker": {
            "size": 8,
            "symbol": line.symbol,
            "color": means.fills(line.rows, line.color, look.paper),
            "line": {"color": line.color, "width": 1.5},
        },
        "error_y": means.intervals(line.rows, line.color),
        "hovertemplate": means.HOVER,
    }


def _names(line: RoundLine, by: str | None) -> list[str]:
    group = f"{shortened(by or 'round')} {line.name}"
    return [
        f"{group}, probability {low:g} to {high:g}"
        for low, high in zip(line.rows["prob_low"], line.rows["prob_high"], strict=True)
    ]


def add_rounds(figure: go.Figure, rounds: pd.DataFrame, unit: str, look: Theme) -> None:
    """Draw the means of rounds below, as they are and made alike."""
    is_few = few_rows(rounds)
    hover = [[_round_text(row, unit)] for row in rounds.itertuples()]
    for name, symbol, dash, color, hollow in (
        ("mean", "diamond", "dot", look.quiet, is_few | True),
        ("standardised", "circle", "solid", look.text, is_few),
    ):
        figure.add_scatter(
            x=rounds["round"],
            y=rounds[name],
            xaxis="x2",
            yaxis="y3",
            mode="lines+markers",
            line={"color": color, "width": 1, "dash": dash},
            marker={
                "size": min(7, max(4, _PLOT_WIDTH / len(rounds))),
                "symbol": symbol,
                "color": np.where(hollow, look.paper, color),
                "line": {"color": color, "width": 1.5},
            },
            customdata=hover,
            hovertemplate="%{customdata[0]}<extra></extra>",
            cliponaxis=False,
        )


def _round_text(row: Any, unit: str) -> str:  # noqa: ANN401 a row of `itertuples` has no type
    lines = (
        f"<b>round {row.round}</b>",
        f"as it is {number(row.mean)}{unit}",
        f"as if alike {number(row.standardised)}{unit}",
        f"which {row.covered:.0%} of the tokens say",
        f"{count(row.num_samples, 'sample')}, {count(row.num_tokens, 'token')}",
    )
    return "<br>".join(lines)
