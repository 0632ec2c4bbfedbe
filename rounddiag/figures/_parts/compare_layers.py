"""What a comparison draws, and where its panels are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.core.measures import measure_of
from rounddiag.figures._parts.axes import raised_words
from rounddiag.figures._parts.canvas import colored, cross
from rounddiag.figures._parts.labels import number, short_name, tick_step, wrapped
from rounddiag.figures._parts.lines import line_of
from rounddiag.figures._parts.marks import add_hatching, outlines
from rounddiag.figures._parts.means import (
    HOVER,
    add_undefined,
    few_caution,
    fills,
    hover_texts,
    interval,
    intervals,
    notes,
)
from rounddiag.figures._parts.round_layers import unit_of
from rounddiag.figures._parts.scales import add_color_bar, scale_of
from rounddiag.schema import DIFFERENCE, METRICS, ROUND
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures._parts.axes import MeanAxis
    from rounddiag.figures._parts.canvas import Theme
    from rounddiag.figures._parts.lines import RoundLine
    from rounddiag.schema import Column, Pair


# How much of the room between two rounds the batches share.
_SPREAD = 0.6
# Markers of all batches and rounds must not touch in a figure of 400 pixels.
_PLOT_WIDTH = 300
# Pixels between panels, and a row of the strip.
_GAP, _ROW = 26, 18
_HEIGHTS = {"means": 230, "difference": 170}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Batches beside each other.

    Attributes
    ----------
    names : list of str
        As the user gave them; those of the lines are cut and escaped.
    lines : list of RoundLine
        Of each batch, with its summary as `stats.round_summary` gives it.
    differences : DataFrame
        As `stats.differences` gives them.
    metric : str
    pair : Pair
    layers : dict of str to bool
    look : Theme
    """

    names: Sequence[str]
    lines: Sequence[RoundLine]
    differences: pd.DataFrame
    metric: str
    pair: Pair
    layers: dict[str, bool]
    look: Theme

    @property
    def num_rounds(self) -> int:
        """One more than the last round of any batch."""
        lasts = [line.rows["round"].max() for line in self.lines if len(line.rows)]
        return int(max(lasts, default=-1)) + 1

    @property
    def size(self) -> float:
        """How large markers are, in pixels."""
        room = _PLOT_WIDTH / (self.num_rounds * len(self.lines))
        return min(8.0, max(3.0, room))

    @property
    def column(self) -> Column:
        """What is averaged."""
        return METRICS[self.metric]

    def shift(self, place: int) -> float:
        """Say how far beside its round a batch stands."""
        num = len(self.lines)
        return (place - (num - 1) / 2) * min(_SPREAD / num, 0.2)

    def heights(self) -> dict[str, int]:
        """Say how high each panel is, top first, in pixels."""
        heights = {**_HEIGHTS, "strip": _ROW * len(self.lines)}
        return {
            name: height
            for name, height in heights.items()
            if self.layers.get(name, True)
        }

    def domains(self) -> tuple[int, dict[str, list[float]]]:
        """Return the height of the plot, and the share of each panel."""
        heights = self.heights()
        plot = sum(heights.values()) + _GAP * (len(heights) - 1)
        tops = plot - np.cumsum([0, *(height + _GAP for height in heights.values())])
        shares = {
            name: [(top - height) / plot, top / plot]
            for (name, height), top in zip(heights.items(), tops[:-1], strict=True)
        }
        return plot, shares


def batch_lines(summaries: Mapping[str, pd.DataFrame], look: Theme) -> list[RoundLine]:
    """Give each batch a look of its own: colours that stand for no magnitude."""
    colors = (look.text, look.more, look.less, look.muted)
    return [
        replace(
            line_of(index, len(summaries), name, summary, look),
            name=short_name(name),
            color=colors[index % len(colors)],
        )
        for index, (name, summary) in enumerate(summaries.items())
    ]


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
    of = (
        pluralize(num, "pair")
        if paired
        else f"{pluralize(num, 'sample')}, {before:,} before"
    )
    lines = [
        f"difference {number(row['difference'])}{unit}",
        interval(row["ci_low"], row["ci_high"]),
        of,
    ]
    if row["is_few"]:
        lines.append(few_caution(min(num, before)))
    return [f"{name}, round {row['round']}", "<br>".join(lines)]


# Characters of a line of an axis title: the panel of the means is no higher.
_CHARACTERS = 38


def explanation(compared: Compared, means: pd.DataFrame, axis: MeanAxis) -> list[str]:
    """Give a line for each batch, which says how it is compared with the first."""
    first, *others = (f"{_sign(line)} {line.name}" for line in compared.lines)
    lines = [f"{first}: the baseline of the others"]
    found = compared.differences
    for name, text in zip(compared.names[1:], others, strict=True):
        num = found.loc[found["name"] == name, "num_pairs"].max()
        how = f"paired, {pluralize(num, 'sample')}" if num > 0 else "not paired by ids"
        lines.append(f"{text}: {how}")
    lines += raised_words(means, axis, "lower")
    return lines + notes(means, int(means["num_nonfinite"].sum()))


def set_axes(
    figure: go.Figure,
    compared: Compared,
    axis: MeanAxis,
    domains: Mapping[str, list[float]],
) -> None:
    """Put the panels where `domains` says, and name what they show."""
    names = {"means": "y", "difference": "y2", "strip": "y3"}
    column, pair = compared.column, compared.pair
    title = wrapped(pair.label(column), _CHARACTERS)
    figure.update_layout(
        xaxis={
            "title": {"text": ROUND.label},
            "range": [-0.6, compared.num_rounds - 0.4],
            "dtick": tick_step(compared.num_rounds),
            "anchor": names[[*domains][-1]],
        },
        yaxis={
            **axis.layout(),
            "title": {"text": title},
            "domain": domains["means"],
        },
    )
    if "difference" in domains:
        figure.layout.yaxis2 = {
            "title": {"text": replace(DIFFERENCE, unit=column.unit).label},
            "domain": domains["difference"],
            "zeroline": True,
            "nticks": 6,
        }
    if "strip" in domains:
        num = len(compared.lines)
        figure.layout.yaxis3 = {
            "domain": domains["strip"],
            "range": [num - 0.5, -0.5],
            "tickvals": [*range(num)],
            "ticktext": [_sign(line) for line in compared.lines],
            "showgrid": False,
        }


def _sign(line: RoundLine) -> str:
    return colored(line.sign, line.color)
