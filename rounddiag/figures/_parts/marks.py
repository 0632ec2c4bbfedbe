"""What a heatmap shows where it has no number: no such round, or no finite value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures._parts.canvas import cross
from rounddiag.figures._parts.labels import width_of
from rounddiag.schema import NUM_TOKENS, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag._typing import Array
    from rounddiag.figures._parts.canvas import Theme
    from rounddiag.figures._parts.heatmap_cells import Heat


def add_missing(figure: go.Figure, heat: Heat, look: Theme) -> None:
    """Hatch every run of missing rounds; neighbours with the same run are one area."""
    x, y = outlines(~heat.grid.there)
    add_hatching(figure, x, heat.y(np.array(y, dtype=np.float32)), look)


def add_hatching(
    figure: go.Figure,
    x: Sequence[Any],
    y: Sequence[Any] | Array,
    look: Theme,
    **axes: str,
) -> None:
    """Hatch areas, whose paths are divided by None or NaN."""
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillpattern={
            "shape": "/",
            "size": 7,
            "solidity": 0.15,
            "fgcolor": look.quiet,
            "bgcolor": look.paper,
        },
        hoverinfo="skip",
        **axes,
    )


def add_undefined(figure: go.Figure, heat: Heat, look: Theme) -> None:
    """Put a cross on every cell whose round is there without a finite value."""
    rows, columns = np.nonzero(heat.grid.undefined("shown"))
    figure.add_scatter(
        x=columns,
        y=heat.y(rows),
        mode="markers",
        marker=cross(look),
        text=heat.grid.num_tokens[rows, columns],
        hovertemplate="<br>".join([*heat.hover, "none finite"]) + "<extra></extra>",
    )


def outlines(cells: Array) -> tuple[list[float | None], list[float | None]]:
    """Draw a rectangle around each run of marked cells in a row.

    Neighbouring rows with the same runs share theirs.

    Returns
    -------
    x, y : list of float
        Closed paths, divided by None; a cell reaches half a unit around its indices.

    Examples
    --------
    >>> outlines(np.array([[False, True], [False, True]]))
    ([0.5, 1.5, 1.5, 0.5, 0.5, None], [-0.5, -0.5, 1.5, 1.5, -0.5, None])
    """
    x: list[float | None] = []
    y: list[float | None] = []
    for top, bottom in _equal_rows(cells):
        padded = np.pad(cells[top].astype(np.int8), 1)
        for left, right in np.flatnonzero(np.diff(padded)).reshape(-1, 2) - 0.5:
            x += [
                float(left),
                float(right),
                float(right),
                float(left),
                float(left),
                None,
            ]
            y += [top - 0.5, top - 0.5, bottom - 0.5, bottom - 0.5, top - 0.5, None]
    return x, y


def _equal_rows(cells: Array) -> list[tuple[int, int]]:
    """Divide the rows into stretches of equal neighbours, as (start, stop)."""
    changes = np.flatnonzero((cells[1:] != cells[:-1]).any(axis=1)) + 1
    starts = [0, *changes.tolist()] if len(cells) else []
    return list(zip(starts, [*starts[1:], len(cells)], strict=True))


# Pixels that the strip above the cells takes, its label included.
ROOM = 64
_BARS = 36
# Small letters over the strip that a figure of 400 pixels has room for.
_HEAD = 50
# Bars of more rows have no room between them.
_MANY = 64
# From here on numbers are written without a fraction.
_WHOLE = 100
# Shares of the width.
_CELLS, _STRIP = (0.0, 0.82), (0.86, 1.0)
# Room for the right half of the last tick, up to "12,345", in pixels.
_RIGHT = 30


def add_marginals(
    figure: go.Figure, heat: Heat, per_round: pd.DataFrame, look: Theme
) -> None:
    """Add both strips to a figure whose plot is `ROOM` higher than its cells.

    Parameters
    ----------
    figure : Figure
    heat : Heat
    per_round : DataFrame
        One row a round, with the metric over all samples.
    look : Theme
    """
    margin = figure.layout.margin
    margin.r = _RIGHT
    plot = figure.layout.height - margin.t - margin.b
    figure.update_layout(
        xaxis={"domain": _CELLS},
        xaxis2={"domain": _STRIP, "anchor": "y"},
        yaxis={"domain": [0, 1 - ROOM / plot]},
        yaxis2={"domain": [1 - _BARS / plot, 1], "anchor": "x"},
    )
    _add_rounds(figure, heat, per_round, look)
    _add_samples(figure, heat, look)


def _add_rounds(
    figure: go.Figure, heat: Heat, per_round: pd.DataFrame, look: Theme
) -> None:
    meaning = heat.pair.named(heat.column.meaning)
    head, values = f"{meaning}, all samples", per_round[heat.metric].to_numpy()
    colors = np.where(values > 0, look.more, look.less)
    figure.add_bar(
        x=per_round["round"].to_numpy(),
        y=values,
        yaxis="y2",
        width=0.7,
        marker={"color": colors if heat.is_signed else look.quiet},
        customdata=per_round[["num_rows", "num_tokens"]].to_numpy(),
        hovertemplate="<b>round %{x}, all samples</b><br>"
        f"{meaning} %{{y:.3g}}<br>"
        "%{customdata[0]:,} samples, %{customdata[1]:,} tokens<extra></extra>",
    )
    figure.update_layout(yaxis2=_ends(values))
    figure.add_annotation(
        text=head if width_of(head) <= _HEAD else meaning,
        x=0,
        y=1,
        xref="paper",
        yref="paper",
        xanchor="left",
        yanchor="bottom",
        yshift=2,  # clear of the line at zero, which is on top of negative bars
        showarrow=False,
        font={"color": look.muted},
    )


def _add_samples(figure: go.Figure, heat: Heat, look: Theme) -> None:
    samples = heat.rows.samples
    has_rewards = "reward" in samples and samples["reward"].notna().any()
    column = SAMPLES["reward"] if has_rewards else NUM_TOKENS
    values = heat.rows.means(column.name)
    y = heat.y(np.arange(heat.rows.num))
    mean = "mean " if heat.is_pooled else ""
    # The name of a row tells its reward.
    length = "" if has_rewards else f"<br>{mean}{column.meaning} %{{x:,.3~g}}"
    figure.add_bar(
        x=values,
        y=y,
        xaxis="x2",
        orientation="h",
        width=heat.rows.pool * (0.8 if len(values) <= _MANY else 1),
        marker={"color": look.quiet, "line": {"width": 0}},
        hovertemplate=f"<b>%{{y}}</b>{length}<extra></extra>",
    )
    unknown = np.isnan(values)
    figure.add_scatter(
        x=np.zeros(unknown.sum()),
        y=y[unknown],
        xaxis="x2",
        mode="markers",
        marker=cross(look),
        hovertemplate=f"<b>%{{y}}</b><br>no {column.meaning}<extra></extra>",
    )
    figure.update_layout(xaxis2=_ends(values))
    # The last word is what the strip has room for.
    figure.layout.xaxis2.title.text = column.meaning.split()[-1]


def _ends(values: Array) -> dict[str, object]:
    """Mark nothing but zero and the end that is farther from it."""
    known = values[np.isfinite(values)]
    low, high = float(known.min(initial=0)), float(known.max(initial=0))
    ends = [low, high] if high > low else [0.0, 1.0]
    farthest = max(ends, key=abs)
    return {
        "range": ends,
        "tickvals": [0, farthest],
        "ticktext": [
            "0",
            f"{farthest:,.2g}" if abs(farthest) < _WHOLE else f"{farthest:,.0f}",
        ],
        "zeroline": low < 0,
    }
