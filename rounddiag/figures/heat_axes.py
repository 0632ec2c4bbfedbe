"""The axes of a heatmap: rounds, and samples in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures.labels import tick_step
from rounddiag.schema import ROUND, SAMPLE

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rounddiag.figures.heat import Heat

_ORDERS = {
    "worst": ", worst first",
    "rounds": ", most rounds first",
    "reward": ", highest reward first",
    "group": ", by group",
}


def set_axes(figure: go.Figure, heat: Heat) -> None:
    """Name the axes, and mark as many rows as have room."""
    num_samples, num_rounds = len(heat.rows.samples), heat.grid.there.shape[1]
    step = tick_step(num_samples)
    figure.update_layout(
        xaxis={
            "title": {"text": ROUND.label},
            "range": [-0.5, num_rounds - 0.5],
            "dtick": tick_step(num_rounds),
        },
        yaxis={
            "title": {"text": _row_title(heat)},
            "range": [num_samples - 0.5, -0.5],
            "dtick": step,
            "showgrid": False,
        },
    )
    if heat.order != "sample" or heat.is_pooled:
        ticks = np.arange(0, num_samples, step)
        labels = ticks if heat.is_pooled else heat.numbers[ticks]
        figure.layout.yaxis.tickvals = ticks
        figure.layout.yaxis.ticktext = [f"{label:,}" for label in labels]


def _row_title(heat: Heat) -> str:
    """Name what the rows are; pools are counted in samples."""
    place = _ORDERS.get(heat.order, "")
    ranked = "rank of " if heat.is_pooled and place else ""
    return f"{ranked}{SAMPLE.label}{place}"
