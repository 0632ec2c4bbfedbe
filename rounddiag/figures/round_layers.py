"""The layers of a figure per round: quantiles, survivors, means, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.means import (
    HOVER,
    add_head,
    add_undefined,
    ends,
    fills,
    intervals,
)
from rounddiag.figures.round_axis import FLOOR
from rounddiag.figures.round_words import RIBBONS, hover_texts, tint
from rounddiag.schema import NUM_SAMPLES, NUM_TOKENS

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.round_scene import RoundScene

# Points of 60 rounds must not touch in a figure of 400 pixels.
_PLOT_WIDTH = 300
_COUNTED = "<b>round %{{x}}%{{meta}}</b><br>{}: %{{y:,}}<extra></extra>"


def add_guide(figure: go.Figure, scene: RoundScene) -> None:
    """Lead the eye from the worst round's mean down to its counts."""
    if scene.worst is not None:
        figure.add_shape(
            type="line",
            layer="below",
            x0=scene.worst["round"],
            x1=scene.worst["round"],
            y0=0,
            y1=1,
            yref="paper",
            line={"color": scene.look.less, "width": 1, "dash": "dot"},
        )


def add_ribbons(figure: go.Figure, scene: RoundScene) -> None:
    """Draw bars from quantile to quantile, and a stroke at the median."""
    (line,) = scene.lines
    for low, high, strength in RIBBONS:
        base = scene.axis.placed(line.rows[low])
        figure.add_bar(
            x=line.rows["round"],
            base=base,
            y=scene.axis.placed(line.rows[high]) - base,
            width=0.9 * min(1, scene.num_rounds / 6),
            marker={"color": tint(scene.look, strength), "line": {"width": 0}},
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=line.rows["round"],
        y=scene.axis.placed(line.rows["p50"]),
        mode="markers",
        marker={
            "symbol": "line-ew",
            "size": min(18, _PLOT_WIDTH / scene.num_rounds),
            "line": {"width": 3, "color": scene.look.more},
        },
        hoverinfo="skip",
    )


def add_floor(figure: go.Figure, scene: RoundScene) -> None:
    """Shade where values are too small for the axis, zeros among them."""
    figure.add_shape(
        type="rect",
        layer="below",
        xref="paper",
        x0=0,
        x1=1,
        y0=scene.axis.bottom,
        y1=FLOOR,
        fillcolor=scene.look.grid,
        line={"width": 0},
    )


def add_survivors(figure: go.Figure, left: pd.DataFrame, scene: RoundScene) -> None:
    """Draw the samples that reach each round, as they were at round 0."""
    figure.add_scatter(
        x=left["round"],
        y=scene.axis.placed(left["first_mean_abs_diff"]),
        mode="lines",
        line={"color": scene.look.more, "width": 1.5, "dash": "dash"},
        customdata=left["num_samples"],
        hovertemplate="%{customdata:,} samples reach round %{x}"
        "<br>at round 0 their mean is %{y:.3g} nat<extra></extra>",
    )


def add_means(
    figure: go.Figure, scene: RoundScene, *, has_means: bool, has_intervals: bool
) -> None:
    """Draw each line's means and intervals; either carries what is said on hover."""
    size = min(8, max(4, _PLOT_WIDTH / scene.num_rounds))
    for line in scene.lines:
        color = scene.marked(line, line.color)
        strokes = scene.look.muted if len(scene.lines) == 1 else line.color
        x = (line.rows["round"] + line.shift).to_numpy()
        hover = hover_texts(line, scene.unit)
        figure.add_scatter(
            x=x,
            y=scene.axis.placed(line.rows["mean"]),
            mode="lines+markers" if has_means else "markers",
            line={"color": strokes, "width": 1, "dash": line.dash},
            marker={
                "symbol": line.symbol,
                "size": size,
                "color": fills(line.rows, color, scene.look.paper),
                "line": {"color": color, "width": 1.5},
                "opacity": 1 if has_means else 0,
            },
            error_y=intervals(line.rows, strokes) if has_intervals else None,
            customdata=hover,
            hovertemplate=HOVER,
            cliponaxis=False,
        )
        without = np.flatnonzero(line.rows["mean"].isna())
        low = np.full(len(without), scene.axis.bottom)
        said = [hover[row] for row in without]
        add_undefined(figure, x[without], low, said, scene.look)


def add_counts(figure: go.Figure, scene: RoundScene) -> None:
    """Draw how many samples and tokens each round has, one line's on another's."""
    for axis, column in (("y2", NUM_SAMPLES), ("y3", NUM_TOKENS)):
        for line in scene.lines:
            color = scene.look.quiet if len(scene.lines) == 1 else line.color
            figure.add_bar(
                x=line.rows["round"],
                y=line.rows[column.name],
                yaxis=axis,
                width=scene.bar,
                marker={
                    "color": scene.marked(line, color),
                    "line": {"width": 0},
                },
                meta=f", {line.name}" if line.name else "",
                hovertemplate=_COUNTED.format(column.label),
            )
        add_head(figure, axis, column.label, scene.look)


def count_ends(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the y axes of both counts, by the highest that all lines make."""
    names = [NUM_SAMPLES.name, NUM_TOKENS.name]
    highest = summary.groupby("round")[names].sum().max()
    return [ends(int(highest[name])) for name in names]
