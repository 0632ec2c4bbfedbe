"""The axes of means by probability, of the tokens in each bin, and of rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.figures import means
from rounddiag.figures.labels import tick_step
from rounddiag.schema import ROUND
from rounddiag.stats.conditional import PROB_EDGES

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.mean_axis import MeanAxis

# Bottom and top of the panels, as shares of the plot.
_MEANS, _COUNTS, _ROUNDS = (0.49, 1.0), (0.365, 0.45), (0.0, 0.17)
# So many labels have room over each other.
_MAX_TICKS = 10


def set_axes(
    figure: go.Figure, known: pd.DataFrame, rounds: pd.DataFrame, axis: MeanAxis
) -> None:
    """Mark the edges of the bins and the rounds, and share the plot."""
    highest = int(known.groupby("prob_low")["num_tokens"].sum().max())
    last = int(rounds["round"].max())
    figure.update_layout(
        barmode="stack",
        xaxis={
            "range": [0, len(PROB_EDGES) - 1],
            "tickvals": list(range(len(PROB_EDGES))),
            # In two lines: side by side they touch in a figure of 400 pixels.
            "ticktext": [f"{'<br>' * (i % 2)}{p:g}" for i, p in enumerate(PROB_EDGES)],
            "tickangle": 0,
            "anchor": "y2",
        },
        xaxis2={
            "title": {"text": ROUND.label},
            "range": [-0.6, last + 0.6],
            "dtick": tick_step(last + 1),
            "anchor": "y3",
        },
        yaxis={"domain": _MEANS, **axis.layout(_MAX_TICKS)},
        yaxis2={"domain": _COUNTS, **means.ends(highest)},
        yaxis3={"domain": _ROUNDS, "rangemode": "tozero", "nticks": 4},
    )
