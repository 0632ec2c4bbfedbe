"""Where the panels of a comparison are, and what its title says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.checks.words import count
from rounddiag.figures.labels import tick_step
from rounddiag.figures.means import notes
from rounddiag.schema import DIFFERENCE, METRICS, ROUND

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.compared import Compared
    from rounddiag.figures.log_axis import LogAxis


def explanation(compared: Compared, means: pd.DataFrame) -> list[str]:
    """Give a line for each batch, which says how it is compared with the first."""
    first, *others = (f"{style.sign} {style.name}" for style in compared.styles)
    lines = [f"{first}: the baseline of the others"]
    found = compared.differences
    for name, line in zip(compared.names[1:], others, strict=True):
        num = found.loc[found["name"] == name, "num_pairs"].max()
        how = f"paired, {count(num, 'sample')}" if num > 0 else "not paired by ids"
        lines.append(f"{line}: {how}")
    if (means["mean"] == 0).any():
        lines.append("means of exactly 0 are at the lower edge")
    return lines + notes(means, int(means["num_nonfinite"].sum()))


def set_axes(
    figure: go.Figure,
    compared: Compared,
    axis: LogAxis,
    domains: Mapping[str, list[float]],
) -> None:
    """Put the panels where `domains` says, and name what they show."""
    names = {"means": "y", "difference": "y2", "strip": "y3"}
    titles = {"text": METRICS["abs_diff"].label}
    figure.update_layout(
        xaxis={
            "title": {"text": ROUND.label},
            "range": [-0.6, compared.num_rounds - 0.4],
            "dtick": tick_step(compared.num_rounds),
            "anchor": names[[*domains][-1]],
        },
        yaxis={**axis.layout(), "title": titles, "domain": domains["means"]},
    )
    if "difference" in domains:
        figure.layout.yaxis2 = {
            "title": {"text": DIFFERENCE.label},
            "domain": domains["difference"],
            "zeroline": True,
            "nticks": 6,
        }
    if "strip" in domains:
        num = len(compared.styles)
        figure.layout.yaxis3 = {
            "domain": domains["strip"],
            "range": [num - 0.5, -0.5],
            "tickvals": [*range(num)],
            "ticktext": [style.sign for style in compared.styles],
            "showgrid": False,
        }
