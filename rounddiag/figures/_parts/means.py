"""Means with intervals: how they are drawn, and what they say on hover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures._parts.canvas import cross
from rounddiag.figures._parts.labels import CROSS, number
from rounddiag.stats import FEW_SAMPLES, few_rows
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag._typing import Array
    from rounddiag.figures._parts.canvas import Theme


COLUMNS = (
    *("num_samples", "num_tokens", "num_nonfinite"),
    *("mean", "ci_low", "ci_high"),
)
HOVER = "<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>"


def intervals(means: pd.DataFrame, color: str) -> dict[str, Any]:
    """Return the error bars of means, for either direction."""
    middle = means["mean"]
    return {
        "type": "data",
        "symmetric": False,
        "array": (means["ci_high"] - middle).to_numpy(),
        "arrayminus": (middle - means["ci_low"]).to_numpy(),
        "color": color,
        "thickness": 2,
        "width": 0,
    }


def show_intervals(figure: go.Figure, *, visible: bool) -> None:
    """Show the error bars of a figure, or hide them."""
    if not visible:
        hidden = {"visible": False}
        figure.update_traces(
            error_x=hidden, error_y=hidden, selector={"type": "scatter"}
        )


def fills(means: pd.DataFrame, colors: str | Sequence[str], paper: str) -> list[str]:
    """Return the fill of each marker: that of few samples is hollow."""
    found: list[str] = np.where(few_rows(means), paper, colors).tolist()
    return found


def hover_texts(
    means: pd.DataFrame, names: Iterable[str], unit: str = " nat"
) -> list[list[str]]:
    """Return the strings that `HOVER` names, per row; names are shown as they are."""
    rows = means[[*COLUMNS]].assign(is_few=few_rows(means)).itertuples(index=False)
    return [
        [name, _hover_text(row, unit)] for name, row in zip(names, rows, strict=True)
    ]


def _hover_text(row: Any, unit: str) -> str:  # noqa: ANN401 a row of `itertuples` has no type
    lines = [
        f"mean {number(row.mean)}{unit}",
        interval(row.ci_low, row.ci_high),
        f"{pluralize(row.num_samples, 'sample')}, {pluralize(row.num_tokens, 'token')}",
    ]
    if row.num_nonfinite:
        lines.append(f"{pluralize(row.num_nonfinite, 'token')} not finite, left out")
    if row.is_few:
        lines.append(few_caution(row.num_samples))
    return "<br>".join(lines)


def few_words(num_samples: int) -> str:
    """Say what there are few of: those of one group are not independent."""
    what = "samples" if num_samples < FEW_SAMPLES else "independent samples"
    return f"fewer than {FEW_SAMPLES} {what}"


def few_caution(num_samples: int) -> str:
    """Warn of a mean of few samples."""
    return f"{few_words(num_samples)}: do not lean on it"


def interval(low: float, high: float) -> str:
    """Say an interval, or that there is none."""
    if np.isnan(low) or np.isnan(high):
        return "too few independent samples for an interval"
    return f"95 % interval {number(low)} to {number(high)}"


def notes(means: pd.DataFrame, num_nonfinite: int) -> list[str]:
    """Explain hollow marks and crosses, and what was left out: lines for a title."""
    lines = []
    is_few = few_rows(means)
    if is_few.any():
        most = means["num_samples"].to_numpy()[is_few].max()
        lines.append(f"○ hollow: {few_words(most)}")
    if means["mean"].isna().any():
        lines.append(f"{CROSS} no finite value")
    if num_nonfinite:
        left_out = pluralize(num_nonfinite, "token")
        lines.append(f"left out: {left_out} whose diff is not finite")
    return lines


def add_undefined(
    figure: go.Figure, x: Array, y: Array, hover: list[list[str]], look: Theme
) -> None:
    """Put a cross where there is no mean: nothing at all would look like no tokens."""
    figure.add_scatter(
        x=x,
        y=y,
        mode="markers",
        marker=cross(look),
        customdata=hover,
        hovertemplate=HOVER,
        cliponaxis=False,
    )


def add_head(figure: go.Figure, axis: str, text: str, look: Theme) -> None:
    """Say over a lower panel what it shows."""
    figure.add_annotation(
        text=text,
        x=0,
        y=1,
        xref="paper",
        yref=f"{axis} domain",
        xanchor="left",
        yanchor="bottom",
        align="left",
        showarrow=False,
        font={"color": look.muted},
        bgcolor=look.paper,
    )


def ends(highest: int) -> dict[str, Any]:
    """Mark nothing but zero and the highest count on an axis."""
    return {"range": [0, highest], "tickvals": [0, highest], "tickformat": ",d"}
