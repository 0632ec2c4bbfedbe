"""What a heatmap shows where it has no number: no such round, or no finite value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.canvas import cross

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

    from rounddiag.figures.heat import Heat
    from rounddiag.figures.theme import Theme

    Array = np.ndarray[Any, Any]


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
