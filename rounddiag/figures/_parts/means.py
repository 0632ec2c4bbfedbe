"""Means with intervals: points, hover texts, counts, axis titles and captions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.figures._parts.axes import MeanAxis
from rounddiag.figures._parts.canvas import NARROW_PLOT, Theme, cross
from rounddiag.figures._parts.data import PlotInputs
from rounddiag.figures._parts.labels import CROSS, count_nonfinite, format_number, wrap
from rounddiag.figures._parts.lines import RoundLine
from rounddiag.schema import METRICS, PLACE_MEANS, Pair
from rounddiag.schema.tables import TableSchema
from rounddiag.stats import FEW_SAMPLES, few_rows, means_by
from rounddiag.stats.place_means import X
from rounddiag.text.role_tagging import Tagger
from rounddiag.wording import pluralize

_STANDARD = Pair()
HOVER = "<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>"
# Height of a plot of means in pixels, with the panels of counts and without.
HEIGHT, HEIGHT_WITHOUT_COUNTS = 348, 228
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


def add_means(  # noqa: PLR0913 all but the first three are keywords
    figure: go.Figure,
    series: RoundLine,
    inputs: PlotInputs,
    *,
    values: Array,
    floor: float,
    has_intervals: bool = True,
    stroke: str | None = None,
    colors: str | Sequence[str] | None = None,
    is_horizontal: bool = False,
    mode: str = "lines+markers",
    **trace: Any,  # noqa: ANN401 what plotly takes
) -> list[list[str]]:
    """Draw a series of means as points with intervals; return their hover texts.

    Its rows have the `place` of each mean, the `head` of its hover text and, if any,
    the `details` there. `values` are on the axis of the means, where one that is
    undefined is a cross at `floor`. `stroke` is the colour of the line and of
    intervals, `colors` are those of the points: its own where they are left out.
    """
    means, theme, stroke = series.rows, inputs.theme, stroke or series.color
    hover = hover_texts(means, inputs.metric, inputs.pair)
    places = means["place"].to_numpy() + series.shift
    across, along = ("x", "y") if is_horizontal else ("y", "x")
    color = colors or series.color
    marker = {
        "color": fill_colors(means, color, theme.paper),
        "line": {"color": color, "width": 1.5},
        "symbol": series.symbol,
        "size": 8,
        **trace.pop("marker", {}),
    }
    if "lines" in mode:
        trace = {"line": {"color": stroke, "width": 1, "dash": series.dash}, **trace}
    figure.add_scatter(
        **{along: places, across: values},
        **{f"error_{across}": interval_bars(means, stroke) if has_intervals else None},
        mode=mode,
        marker=marker,
        customdata=hover,
        hovertemplate=HOVER,
        cliponaxis=False,
        **trace,
    )
    rows = np.flatnonzero(means["mean"].isna())
    figure.add_scatter(
        **{along: places[rows], across: np.full(len(rows), floor)},
        mode="markers",
        marker=cross(theme),
        customdata=[hover[row] for row in rows],
        hovertemplate=HOVER,
        cliponaxis=False,
    )
    return hover


def read_means(
    inputs: PlotInputs, x: X, by: str | None, tagger: Tagger | None = None
) -> pd.DataFrame:
    """Return the means that were passed as a frame, or compute them."""
    frame = inputs.means
    if frame is None:
        return means_by(inputs.data, x, by=by, metric=inputs.metric, tagger=tagger)
    names = [*PLACE_MEANS.dtypes, *(["overlaps"] if x == "role" else [])]
    PLACE_MEANS.require(frame.columns, *names, *([] if by is None else [by]))
    return frame


def add_lines(
    figure: go.Figure,
    lines: Sequence[RoundLine],
    inputs: PlotInputs,
    axis: MeanAxis,
    *,
    num_places: int,
    spread: float = 1.0,
    kind: str = "",
    panels: Mapping[str, str] = MappingProxyType({}),
    **style: Any,  # noqa: ANN401 what `add_means` takes
) -> None:
    """Draw each line of means, and its counts in the panels.

    The rows are those of `add_means`; a mean that `is_marked`, if any, has a colour of
    its own. `kind` is what the values are that lines are named after.
    """
    theme = inputs.theme
    size = min(8, max(4, NARROW_PLOT / num_places))
    for line in lines:
        rows, name = line.rows, f", {kind}{line.name}" if line.name else ""
        points, bars = line.color, line.color if name else theme.quiet
        if "is_marked" in rows:
            points, bars = (
                np.where(rows["is_marked"], theme.mark, usual).tolist()
                for usual in (points, bars)
            )
        named = rows.assign(head=rows["head"] + name)
        hover = add_means(
            figure,
            replace(line, rows=named, shift=spread * line.shift),
            inputs,
            values=axis.place(rows["mean"]).to_numpy(),
            floor=axis.low,
            stroke=line.color if name else theme.muted,
            colors=points,
            **{"marker": {"size": size}, **style},
        )
        add_counts(figure, rows, hover, num_places, bars, panels)


def hover_texts(means: pd.DataFrame, metric: str, pair: Pair) -> list[list[str]]:
    """Return the two strings that `HOVER` shows, for each mean."""
    unit = unit_suffix(metric, pair)
    details = means["details"] if "details" in means else [()] * len(means)
    rows = means[[*_HOVER_COLUMNS]].assign(is_few=few_rows(means))
    return [
        [head, _hover_text(row, unit, pair, more)]
        for head, row, more in zip(
            means["head"], rows.itertuples(index=False), details, strict=True
        )
    ]


def _hover_text(row: Any, unit: str, pair: Pair, details: Sequence[str]) -> str:  # noqa: ANN401 a row of `itertuples` has no type
    samples = pluralize(row.num_samples, "sample")
    lines = [
        f"mean {format_number(row.mean)}{unit if math.isfinite(row.mean) else ''}",
        describe_interval(row.ci_low, row.ci_high),
        *details,
        f"{samples}, {pluralize(row.num_tokens, pair.token)}",
        *note_left_out(row.num_nonfinite),
    ]
    if row.is_few:
        lines.append(caution_few(row.num_samples))
    return "<br>".join(lines)


def unit_suffix(metric: str, pair: Pair = _STANDARD) -> str:
    """Return what follows a number of this metric.

    Examples
    --------
    >>> unit_suffix("abs_diff"), unit_suffix("prob_diff")
    (' nat', '')
    """
    unit = pair.unit(METRICS[metric])
    return f" {unit}" if unit else ""


def axis_title(
    metric: str, pair: Pair, *, note: str = "", width: int = _TITLE_WIDTH
) -> str:
    """Write the title of the axis of means.

    The `note` follows the label of the metric; lines have up to `width` characters.

    Examples
    --------
    >>> from rounddiag.schema import Pair
    >>> axis_title("abs_diff", Pair("current", "rollout"))
    'mean |current − rollout|<br>log-prob [nat]'
    """
    return wrap(pair.label(METRICS[metric]) + note, width)


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
    >>> caution_few(4)
    'fewer than 5 samples: interpret with caution'
    >>> caution_few(64)
    'fewer than 5 independent samples: interpret with caution'
    """
    return f"{_few(num_samples)}: interpret with caution"


def _few(num_samples: int) -> str:
    kind = "samples" if num_samples < FEW_SAMPLES else "independent samples"
    return f"fewer than {FEW_SAMPLES} {kind}"


def explain_marks(
    means: pd.DataFrame, *, num_nonfinite: int | None = None
) -> list[str]:
    """Explain hollow points and crosses, and count what is left out, a line each.

    `num_nonfinite` is the sum over all means by default.
    """
    lines = []
    is_few = few_rows(means)
    if is_few.any():
        largest = means["num_samples"].to_numpy()[is_few].max()
        lines.append(f"○ {_few(largest)}")
    if means["mean"].isna().any():
        lines.append(f"{CROSS} no finite value")
    if num_nonfinite is None:
        num_nonfinite = int(means["num_nonfinite"].sum())
    return lines + note_left_out(num_nonfinite)


def note_left_out(num_nonfinite: int) -> list[str]:
    """State how many tokens have no finite diff, if any."""
    return [f"left out: {count_nonfinite(num_nonfinite)}"] if num_nonfinite else []


def interval_bars(
    means: pd.DataFrame, color: str, column: str = "mean"
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
    return np.where(few_rows(means), paper, colors).tolist()


def add_counts(
    figure: go.Figure,
    means: pd.DataFrame,
    hover: list[list[str]],
    num_places: int,
    color: str | Sequence[str],
    panels: Mapping[str, str] = COUNT_PANELS,
) -> None:
    """Draw the samples and tokens of each mean as bars in the panels; lines stack."""
    for axis, name in panels.items():
        figure.add_bar(
            x=means["place"],
            y=means[name],
            yaxis=axis,
            width=0.6 * min(1, num_places / 15),  # thin also where they are few
            marker={"color": color},
            marker_line_width=0,
            customdata=hover,
            hovertemplate=HOVER,
        )


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


def set_panels(
    figure: go.Figure, means: pd.DataFrame, table: TableSchema, inputs: PlotInputs
) -> None:
    """Divide the plot into panels of means, samples and tokens, with their headings."""
    figure.update_layout(
        barmode="stack", xaxis={"anchor": "y3"}, yaxis={"domain": _MEANS}
    )
    counts = means.groupby("place", dropna=False)[[*COUNT_PANELS.values()]].sum()
    for axis, column in COUNT_PANELS.items():
        ticks = count_ticks(int(counts[column].max()))
        figure.layout[f"yaxis{axis[1:]}"] = {"domain": _COUNTS[axis], **ticks}
        add_heading(figure, axis, inputs.pair.label(table[column]), inputs.theme)


def count_ticks(highest: int) -> dict[str, Any]:
    """Return a plotly axis of counts with two ticks: zero and the highest count."""
    return {"range": [0, highest], "tickvals": [0, highest], "tickformat": ",d"}
