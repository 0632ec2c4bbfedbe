"""Where the panels of a comparison are, and what its title says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rounddiag.checks.words import count
from rounddiag.figures.canvas import colored
from rounddiag.figures.labels import tick_step, wrapped
from rounddiag.figures.mean_axis import raised_words
from rounddiag.figures.means import notes
from rounddiag.schema import DIFFERENCE, ROUND

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.compared import Compared
    from rounddiag.figures.mean_axis import MeanAxis
    from rounddiag.figures.round_lines import RoundLine

# Characters of a line of an axis title: the panel of the means is no higher.
_CHARACTERS = 38


def explanation(compared: Compared, means: pd.DataFrame, axis: MeanAxis) -> list[str]:
    """Give a line for each batch, which says how it is compared with the first."""
    first, *others = (f"{_sign(line)} {line.name}" for line in compared.lines)
    lines = [f"{first}: the baseline of the others"]
    found = compared.differences
    for name, text in zip(compared.names[1:], others, strict=True):
        num = found.loc[found["name"] == name, "num_pairs"].max()
        how = f"paired, {count(num, 'sample')}" if num > 0 else "not paired by ids"
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
