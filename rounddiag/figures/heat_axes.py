"""The axes of a heatmap: rounds, and samples in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.labels import tick_step
from rounddiag.schema import ROUND, SAMPLE

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rounddiag.figures.heat import Heat

    Array = np.ndarray[Any, Any]

_ORDERS = {
    "worst": ", worst first",
    "rounds": ", most rounds first",
    "reward": ", highest reward first",
    "group": ", by group",
}


def set_axes(figure: go.Figure, heat: Heat) -> None:
    """Name the axes, mark as many rows as have room, and list the samples of all."""
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
            **_row_names(heat, np.arange(0, num_samples, step)),
        },
    )
    shown = heat.rows.samples["sample"].tolist()
    figure.layout.meta = {"samples": shown, "pool": heat.rows.pool}


def _row_names(heat: Heat, ticks: Array) -> dict[str, Any]:
    """Name rows once for all cells: in full on hover, by their number at ticks.

    Plotly looks up what it would write, which differs by its format.
    """
    labels = ticks if heat.is_pooled else heat.numbers[ticks]
    short = {f"{tick}": f"{label:,}" for tick, label in zip(ticks, labels, strict=True)}
    y = heat.y(np.arange(heat.rows.num))
    names = {f"{at:.1f}": name for at, name in zip(y, heat.names(), strict=True)}
    return {"tickformat": "d", "hoverformat": ".1f", "labelalias": short | names}


def _row_title(heat: Heat) -> str:
    """Name what the rows are; pools are counted in samples."""
    place = _ORDERS.get(heat.order, "")
    ranked = "rank of " if heat.is_pooled and place else ""
    return f"{ranked}{SAMPLE.label}{place}"
