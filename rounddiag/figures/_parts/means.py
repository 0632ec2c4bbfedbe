"""Means with intervals: points, hover texts, counts, axis titles and captions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.figures._parts.canvas import Theme, cross
from rounddiag.figures._parts.labels import CROSS, count_nonfinite, format_number, wrap
from rounddiag.schema import METRICS, Column, Pair
from rounddiag.stats import FEW_SAMPLES, few_rows
from rounddiag.wording import pluralize

HOVER = "<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>"
# Height of a figure of means in pixels, with the panels of counts and without.
HEIGHT, HEIGHT_WITHOUT_COUNTS = 460, 340
# The panels of counts: the axis and the column of each.
COUNT_PANELS = {"y2": "num_samples", "y3": "num_tokens"}
# Bottom and top of the three panels, as shares of the plot.
_MEANS, _COUNTS = (0.46, 1.0), {"y2": (0.23, 0.34), "y3": (0.0, 0.11)}
# Characters per line of an axis title that fit beside the panel of the means.
_TITLE_WIDTH = 38
# The columns that a hover text needs.
_HOVER_COLUMNS = (
    *("num_samples", "num_tokens", "num_nonfinite"),
    *("mean", "ci_low", "ci_high"),
)


@dataclass(frozen=True, kw_only=True)
class MeanSeries:
    """Means that are drawn as points with intervals.

    Attributes
    ----------
    means: With `num_samples`, `num_tokens`, `num_nonfinite`, `mean`, `ci_low` and
        `ci_high`, and `is_few` if it is known.
    names: The heading of each point's hover text, safe in plotly's pseudo HTML.
    metric: What is averaged.
    color: The colour of all points, or of each.
    details: More lines of each point's hover text; they follow its interval.
    is_horizontal: Whether the means are on the x axis.
    """

    means: pd.DataFrame
    names: Sequence[str]
    metric: str
    color: str | Sequence[str]
    details: Sequence[Sequence[str]] = ()
    is_horizontal: bool = False

    @cached_property
    def hover(self) -> list[list[str]]:
        """The two strings that `HOVER` shows, for each point."""
        unit = unit_suffix(self.metric)
        means = self.means[[*_HOVER_COLUMNS]].assign(is_few=few_rows(self.means))
        details = self.details or [()] * len(means)
        return [
            [name, _hover_text(row, unit, more)]
            for name, row, more in zip(
                self.names, means.itertuples(index=False), details, strict=True
            )
        ]

    def add_to(
        self,
        figure: go.Figure,
        theme: Theme,
        places: Array,
        values: Array,
        *,
        floor: float,
        interval_color: str | None,
        **trace: Any,  # noqa: ANN401 what plotly takes
    ) -> None:
        """Draw the points, and a cross at `floor` for each mean that is undefined.

        `values` are on the axis of the means and `places` on the other one. Without
        `interval_color` there are no intervals. `trace` has more options of plotly.
        """
        across, along = ("x", "y") if self.is_horizontal else ("y", "x")
        has_bars = interval_color is not None
        bars = interval_bars(self.means, interval_color) if has_bars else None
        marker = {
            "color": fill_colors(self.means, self.color, theme.paper),
            "line": {"color": self.color, "width": 1.5},
            **trace.pop("marker", {}),
        }
        figure.add_scatter(
            **{along: places, across: values, f"error_{across}": bars},
            **{"mode": "lines+markers", "marker": marker, **trace},
            customdata=self.hover,
            hovertemplate=HOVER,
        )
        rows = np.flatnonzero(self.means["mean"].isna())
        figure.add_scatter(
            **{along: places[rows], across: np.full(len(rows), floor)},
            mode="markers",
            marker=cross(theme),
            customdata=[self.hover[row] for row in rows],
            hovertemplate=HOVER,
            cliponaxis=False,
        )


def _hover_text(row: Any, unit: str, details: Sequence[str]) -> str:  # noqa: ANN401 a row of `itertuples` has no type
    samples = pluralize(row.num_samples, "sample")
    lines = [
        f"mean {format_number(row.mean)}{unit if math.isfinite(row.mean) else ''}",
        describe_interval(row.ci_low, row.ci_high),
        *details,
        f"{samples}, {pluralize(row.num_tokens, 'token')}",
        *note_left_out(row.num_nonfinite),
    ]
    if row.is_few:
        lines.append(caution_few(row.num_samples))
    return "<br>".join(lines)


def unit_suffix(metric: str) -> str:
    """Return what follows a number of this metric.

    Examples
    --------
    >>> unit_suffix("abs_diff"), unit_suffix("prob_diff")
    (' nat', '')
    """
    unit = METRICS[metric].unit
    return f" {unit}" if unit else ""


def axis_title(
    metric: str,
    pair: Pair,
    *,
    note: str = "",
    is_mean: bool = True,
    width: int = _TITLE_WIDTH,
) -> str:
    """Write the title of the axis of means, or of single tokens.

    The `note` follows the label of the metric; lines have up to `width` characters.

    Examples
    --------
    >>> from rounddiag.schema import Pair
    >>> axis_title("abs_diff", Pair("current", "rollout"))
    'mean |current − rollout|<br>log-prob [nat]'
    """
    label = pair.label(METRICS[metric])
    return wrap((label if is_mean else label.removeprefix("mean ")) + note, width)


def describe_interval(low: float, high: float) -> str:
    """Write an interval, or that there is none.

    Examples
    --------
    >>> describe_interval(0.5, 1.0), describe_interval(float("nan"), 1.0)
    ('95 % interval 0.5 to 1', 'too few independent samples for an interval')
    """
    if np.isnan(low) or np.isnan(high):
        return "too few independent samples for an interval"
    return f"95 % interval {format_number(low)} to {format_number(high)}"


def caution_few(num_samples: int) -> str:
    """Warn of a mean of few samples.

    Samples of one group are not independent.

    Examples
    --------
    >>> caution_few(9)
    'fewer than 10 samples: interpret with caution'
    >>> caution_few(64)
    'fewer than 10 independent samples: interpret with caution'
    """
    return f"{_few(num_samples)}: interpret with caution"


def _few(num_samples: int) -> str:
    kind = "samples" if num_samples < FEW_SAMPLES else "independent samples"
    return f"fewer than {FEW_SAMPLES} {kind}"


def explain_marks(
    means: pd.DataFrame, *, num_nonfinite: int | None = None, few_note: str = ""
) -> list[str]:
    """Explain hollow points and crosses, and count what is left out, a line each.

    `num_nonfinite` is the sum over all means by default; `few_note` follows the
    explanation of hollow points.
    """
    lines = []
    is_few = few_rows(means)
    if is_few.any():
        largest = means["num_samples"].to_numpy()[is_few].max()
        lines.append(f"○ hollow: {_few(largest)}{few_note}")
    if means["mean"].isna().any():
        lines.append(f"{CROSS} no finite value")
    if num_nonfinite is None:
        num_nonfinite = int(means["num_nonfinite"].sum())
    return lines + note_left_out(num_nonfinite)


def note_left_out(num_nonfinite: int) -> list[str]:
    """State how many tokens have no finite diff, if any."""
    return [f"left out: {count_nonfinite(num_nonfinite)}"] if num_nonfinite else []


def interval_bars(
    means: pd.DataFrame, color: str | None, column: str = "mean"
) -> dict[str, Any]:
    """Return plotly's error bars around a column, for either direction."""
    middle = means[column]
    return {
        "type": "data",
        "symmetric": False,
        "array": (means["ci_high"] - middle).to_numpy(),
        "arrayminus": (middle - means["ci_low"]).to_numpy(),
        "color": color,
        "thickness": 2,
        "width": 0,
    }


def fill_colors(
    means: pd.DataFrame, colors: str | Sequence[str], paper: str
) -> list[str]:
    """Return the fill of each marker: hollow for few samples."""
    fills: list[str] = np.where(few_rows(means), paper, colors).tolist()
    return fills


def add_counts(
    figure: go.Figure,
    axis: str,
    column: Column,
    bars: Iterable[Mapping[str, Any]],
    theme: Theme,
) -> None:
    """Draw counts as bars in the lower panel of an axis, with its heading."""
    for bar in bars:
        figure.add_bar(**bar, yaxis=axis, marker_line_width=0)
    add_heading(figure, axis, column.label, theme)


def add_heading(figure: go.Figure, axis: str, text: str, theme: Theme) -> None:
    """Write a heading over a lower panel."""
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
        font={"color": theme.muted},
        bgcolor=theme.paper,
    )


def set_panels(figure: go.Figure, counts: pd.DataFrame | None) -> None:
    """Divide the plot into panels of means, samples and tokens.

    `counts` has the `num_samples` and `num_tokens` of each place on the x axis; without
    it, the means take all of the plot.
    """
    if counts is None:
        figure.update_layout(xaxis={"anchor": "y"}, yaxis={"domain": (0, 1)})
        return
    figure.update_layout(xaxis={"anchor": "y3"}, yaxis={"domain": _MEANS})
    for axis, column in COUNT_PANELS.items():
        ticks = count_ticks(int(counts[column].max()))
        figure.layout[f"yaxis{axis[1:]}"] = {"domain": _COUNTS[axis], **ticks}


def count_ticks(highest: int) -> dict[str, Any]:
    """Return a plotly axis of counts with two ticks: zero and the highest count."""
    return {"range": [0, highest], "tickvals": [0, highest], "tickformat": ",d"}
