"""The cells of a heatmap, and what they say on hover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.schema import ROUNDS

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rounddiag.figures.heat import Heat
    from rounddiag.figures.theme import Theme

SHOWN = ("mean_abs_diff", "max_abs_diff")
# Up to this many rows the cells are divided by thin lines.
_FEW_ROWS = 64


def add_cells(figure: go.Figure, heat: Heat) -> None:
    """Draw a cell for each row and round."""
    gap = 1 if heat.rows.num <= _FEW_ROWS else 0
    scale = heat.scale
    others = columns_of(heat.metric, is_pooled=heat.is_pooled)[1:]
    figure.add_heatmap(
        z=heat.shown,
        y0=heat.y(np.zeros(1)).item(),
        dy=heat.rows.pool,
        text=heat.grid.num_tokens,
        hovertext=heat.cell_names(),
        customdata=np.stack([heat.grid.columns[name] for name in others], axis=-1),
        hovertemplate="<br>".join([*heat.hover, *_lines(heat, others)])
        + "<extra></extra>",
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


def columns_of(metric: str, *, is_pooled: bool) -> list[str]:
    """Name what a cell knows: `shown` first, then what it says on hover."""
    others = [*SHOWN, "num_rows"] if is_pooled else set(SHOWN) - {metric}
    return ["shown", *sorted(others)]


def _lines(heat: Heat, others: list[str]) -> list[str]:
    label = heat.pair.named(ROUNDS[heat.metric].meaning)
    which = "largest " if heat.is_pooled and heat.pooling == "max" else ""
    lines = [f"{which}{label} %{{z:.3g}}"]
    for place, name in enumerate(others):
        if name == "num_rows":
            num = f"%{{customdata[{place}]:.0f}} of {heat.rows.pool}"
            lines.append(f"{num} samples reach the round")
        else:
            value = f"%{{customdata[{place}]:.3g}}"
            lines.append(f"{heat.pair.named(ROUNDS[name].meaning)} {value}")
    return lines
