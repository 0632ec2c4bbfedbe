"""The cells of a heatmap, and what they say on hover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.schema import PAIRED_CELLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.heat import Heat
    from rounddiag.figures.theme import Theme

# What a cell says on hover of its tokens, whatever its colour shows.
_SAID = ("baseline_mean", "mean_abs_diff", "p95_abs_diff", "max_abs_diff")
# Up to this many rows the cells are divided by thin lines.
_FEW_ROWS = 64


def said_of(placed: pd.DataFrame, metric: str, *, is_pooled: bool) -> list[str]:
    """Name what a cell says besides its colour: what is known, and nothing twice."""
    own = None if is_pooled else metric
    return [name for name in _SAID if name in placed and name != own]


def add_cells(figure: go.Figure, heat: Heat) -> None:
    """Draw a cell for each row and round."""
    gap = 1 if heat.rows.num <= _FEW_ROWS else 0
    scale = heat.scale
    values = np.stack([heat.grid.columns[name] for name in heat.said], axis=-1)
    figure.add_heatmap(
        z=heat.shown,
        y0=heat.y(np.zeros(1)).item(),
        dy=heat.rows.pool,
        text=heat.grid.num_tokens,
        hovertext=heat.grid.num_rows if heat.is_pooled else None,
        customdata=np.nan_to_num(values),  # zeros are shorter, and cells in gaps silent
        hovertemplate="<br>".join([*heat.hover, *_lines(heat)]) + "<extra></extra>",
        hoverongaps=False,
        zmin=scale.low,
        zmax=scale.high,
        colorscale=scale.linear_colors(),
        showscale=False,
        xgap=gap,
        ygap=gap,
    )


def add_dividers(figure: go.Figure, heat: Heat, look: Theme) -> None:
    """Draw a line between groups that stand one under the other, if each is seen."""
    if heat.order != "group" or heat.rows.num > _FEW_ROWS:
        return
    group = heat.rows.samples["group_id"].to_numpy()
    changes = np.flatnonzero(group[1:] != group[:-1]) + 0.5
    last = heat.shown.shape[1] - 0.5
    figure.add_scatter(
        x=np.tile([-0.5, last, np.nan], len(changes)),
        y=np.repeat(changes, 3),
        mode="lines",
        line={"width": 1, "color": look.text},
        hoverinfo="skip",
    )


def _lines(heat: Heat) -> Iterator[str]:
    if heat.is_pooled:
        yield f"%{{hovertext}} of {heat.rows.pool} samples reach the round"
    which = "largest " if heat.is_pooled and heat.pooling == "max" else ""
    yield f"{which}{heat.pair.named(heat.column.meaning)} %{{z:.3g}}"
    for place, name in enumerate(heat.said):
        meaning = heat.pair.named(PAIRED_CELLS[name].meaning)
        yield f"{meaning} %{{customdata[{place}]:.3g}}"
