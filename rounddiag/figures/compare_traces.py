"""The layers of a comparison: means, differences, and a strip of colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.words import count
from rounddiag.core.measures import measure_of
from rounddiag.figures.canvas import cross
from rounddiag.figures.color_bar import add_color_bar
from rounddiag.figures.gaps import add_hatching, outlines
from rounddiag.figures.labels import number, wrapped
from rounddiag.figures.means import (
    HOVER,
    add_undefined,
    few_caution,
    fills,
    hover_texts,
    interval,
    intervals,
)
from rounddiag.figures.round_words import unit_of
from rounddiag.figures.signed_scale import scale_of

if TYPE_CHECKING:
    from typing import Any

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.compared import Compared
    from rounddiag.figures.mean_axis import MeanAxis

# Characters of a line over the colour bar in a figure of 400 pixels.
_TITLE = 44


def add_means(figure: go.Figure, compared: Compared, axis: MeanAxis) -> None:
    """Draw the mean of each batch and round, with its interval."""
    look, unit = compared.look, unit_of(compared.metric)
    for place, line in enumerate(compared.lines):
        summary, means = line.rows, line.rows["mean"]
        x = summary["round"].to_numpy() + compared.shift(place)
        names = [f"{line.name}, round {index}" for index in summary["round"]]
        hover = hover_texts(summary, names, unit)
        figure.add_scatter(
            x=x,
            y=axis.raised(means).to_numpy(),
            mode="lines+markers",
            line={"color": line.color, "width": 1},
            marker={
                "symbol": line.symbol,
                "size": compared.size,
                "color": fills(summary, line.color, look.paper),
                "line": {"color": line.color, "width": 1.5},
            },
            error_y=intervals(summary, line.color) if compared.layers["ci"] else None,
            cliponaxis=False,
            customdata=hover,
            hovertemplate=HOVER,
        )
        rows = np.flatnonzero(means.isna()).tolist()
        low = axis.raised(means.iloc[rows].fillna(0)).to_numpy()
        add_undefined(figure, x[rows], low, [hover[row] for row in rows], look)


def add_differences(figure: go.Figure, compared: Compared) -> None:
    """Draw how much larger each batch's mean is than the first's."""
    rows = compared.differences[compared.differences["difference"].notna()]
    unit = unit_of(compared.metric)
    for place, line in enumerate(compared.lines[1:], 1):
        found = rows[rows["name"] == compared.names[place]]
        bars = intervals(found.assign(mean=found["difference"]), line.color)
        figure.add_scatter(
            x=found["round"].to_numpy() + compared.shift(place),
            y=found["difference"].to_numpy(),
            yaxis="y2",
            mode="markers",
            marker={
                "symbol": line.symbol,
                "size": compared.size,
                "color": fills(found, line.color, compared.look.paper),
                "line": {"color": line.color, "width": 1.5},
            },
            error_y=bars if compared.layers["ci"] else None,
            customdata=[
                _hover_row(line.name, row, unit) for _, row in found.iterrows()
            ],
            hovertemplate=HOVER,
            cliponaxis=False,
        )


def add_strip(figure: go.Figure, compared: Compared) -> None:
    """Draw the means of all batches as colours of one range, a row a batch."""
    num, unit = len(compared.lines), unit_of(compared.metric)
    means = np.full((num, compared.num_rounds), np.nan)
    there = np.zeros(means.shape, dtype=bool)
    for row, line in enumerate(compared.lines):
        means[row, line.rows["round"]] = line.rows["mean"]
        there[row, line.rows["round"]] = True
    names = np.array([line.name for line in compared.lines], dtype=object)
    scale = scale_of(means, is_signed=measure_of(compared.metric).is_signed)
    figure.add_heatmap(
        z=means,
        yaxis="y3",
        text=np.repeat(names[:, None], compared.num_rounds, axis=1),
        hovertemplate="<b>%{text}, round %{x}</b>"
        f"<br>mean %{{z:.3g}}{unit}<extra></extra>",
        hoverongaps=False,
        zmin=scale.low,
        zmax=scale.high,
        colorscale=scale.linear_colors(),
        showscale=False,
        xgap=1,
        ygap=1,
    )
    add_hatching(figure, *outlines(~there), compared.look, yaxis="y3")
    rows, columns = np.nonzero(there & np.isnan(means))
    figure.add_scatter(
        x=columns,
        y=rows,
        yaxis="y3",
        mode="markers",
        marker=cross(compared.look),
        hoverinfo="skip",
    )
    title = wrapped(compared.pair.label(compared.column), _TITLE)
    add_color_bar(figure, scale, means, title)


def _hover_row(name: str, row: pd.Series[Any], unit: str) -> list[str]:
    paired = row["num_pairs"] > 0
    num, before = row["num_samples"], row["num_baseline_samples"]
    of = count(num, "pair") if paired else f"{count(num, 'sample')}, {before:,} before"
    lines = [
        f"difference {number(row['difference'])}{unit}",
        interval(row["ci_low"], row["ci_high"]),
        of,
    ]
    if row["is_few"]:
        lines.append(few_caution(min(num, before)))
    return [f"{name}, round {row['round']}", "<br>".join(lines)]
