"""The figure of a finding: its evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import (
    Theme,
    ThemeName,
    colorize,
)
from rounddiag.figures._parts.data import PlotInputs, prepare
from rounddiag.figures._parts.labels import hover_text, tick_step, wrap
from rounddiag.figures._parts.lines import RoundLine
from rounddiag.figures._parts.means import (
    HEIGHT,
    add_counts,
    add_means,
    axis_title,
    explain_marks,
    set_panels,
)
from rounddiag.findings.causes import CAUSES, NO_CAUSE
from rounddiag.findings.finding import Axis, Exhibit, Finding, exhibit
from rounddiag.schema import DIFF, POSITION, ROUND, SAMPLE, SUMMARY, TOKENS, Pair
from rounddiag.wording import capitalize

_HEIGHT = 248
# Width of a line of the caption, and of the title, in small letters: bold ones take 9.2
# pixels, and a page of 500 has room for 48.
_LINE, _TITLE = 60, 48


def plot_finding(finding: Finding, *, theme: ThemeName | None = None) -> go.Figure:
    """Plot the evidence of a finding.

    Parameters
    ----------
    finding : Finding
        An item of a `Diagnosis`.
    theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: diamonds are rounds, samples, positions or tokens of the finding,
    grey circles are all others. The title says what differs and where, and the lines
    below it name the cause, if it is known. The axis depends on its place. Over rounds,
    samples or positions, the points are mean |diff|, and a dotted line marks the round
    from which on the batch differs; in a healthy batch diamonds would be as low as
    circles. Means of rounds and positions have intervals, hollow ones fewer than 5
    independent samples, and bars count the samples and tokens of rounds, as in
    `plot_rounds`. Otherwise each point is a token: its diff over the log-prob of the
    sampling engine. A healthy batch is a narrow band around 0 that widens to the left.
    A different temperature tilts or bends the band, a truncated distribution shifts it
    below 0, and a filled value is a vertical line.

    Of more than 4,000 tokens, evenly spaced ones are drawn.

    Examples
    --------
    >>> import rounddiag as rd
    >>> diagnosis = rd.diagnose(rd.load("sample_data/image_window.parquet"))
    >>> plot_finding(diagnosis[0]).layout.xaxis.title.text
    'round'
    """
    if not isinstance(finding, Finding):
        raise FrameError.build(
            expected="a Finding",
            found=f"a {type(finding).__name__}",
            advice="Pass an item of `rounddiag.diagnose(batch)`, such as its first.",
        )
    view, evidence = finding.view, exhibit(finding)
    inputs = prepare(view.batch, view.a, view.b, theme=theme)
    pair, colors = inputs.pair, inputs.theme
    rows = evidence.frame.assign(place=evidence.frame["x"])
    has_means = "mean" in rows
    lines = _caption(finding, evidence.axis, colors)
    lines += explain_marks(rows) if has_means else []
    has_counts = evidence.axis == "round"
    plot = HEIGHT if has_counts else _HEIGHT
    title = wrap(_safe(capitalize(finding.location)), _TITLE)
    figure = inputs.new_figure(title, lines, plot=plot)
    if has_means:
        _add_means(figure, rows, evidence.axis, inputs)
    else:
        figure.add_traces(_traces(evidence, colors, pair))
    if has_counts:
        first, last = rows["place"].min(), rows["place"].max()
        figure.update_xaxes(range=[first - 0.6, last + 0.6], dtick=tick_step(last + 1))
        set_panels(figure, rows, SUMMARY, inputs)
    figure.update_xaxes(title_text=_x_title(evidence.axis, pair))
    if evidence.axis == "log_prob":
        figure.layout.yaxis.title.text = pair.label(DIFF)
    else:
        title = axis_title("abs_diff", pair)
        figure.update_layout(yaxis={"title": {"text": title}, "rangemode": "tozero"})
    if evidence.onset is not None:
        line = {"dash": "dot", "color": colors.muted, "width": 1}
        at = evidence.onset - 0.5
        figure.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line=line)
    return figure


# What a point of each axis is.
_POINTS: dict[Axis, str] = {"round": "rounds", "sample": "samples", "step": "positions"}


def _caption(finding: Finding, axis: Axis, theme: Theme) -> list[str]:
    """Return the cause, the explanation, which may quote the file, and the key."""
    row = CAUSES.get(finding.cause)
    cause = f"{row.meaning} ({finding.cause})" if row else finding.cause
    if finding.cause == NO_CAUSE:
        cause = "cause not known"
    named = wrap(_safe(f"{finding.kind}: {cause}"), _LINE)
    words = wrap(_safe(finding.shown), _LINE)
    mark, quiet = colorize("◆", theme.mark), colorize("●", theme.quiet)
    points = _POINTS.get(axis, "tokens")
    key = f"{mark} {points} of the finding {quiet} all other {points}"
    return [named, *filter(None, [words]), key]


def _safe(text: str) -> str:
    return " ".join(map(hover_text, text.split()))


def _styles(theme: Theme) -> tuple[tuple[bool, str, str, str], ...]:
    """Return how other tokens are drawn, and over them those of the finding."""
    return (
        (False, "others", theme.quiet, "circle"),
        (True, "finding", theme.mark, "diamond"),
    )


def _add_means(
    figure: go.Figure, rows: pd.DataFrame, axis: Axis, inputs: PlotInputs
) -> None:
    unit = "position" if axis == "step" else axis
    for inside, name, color, symbol in _styles(inputs.theme):
        points = rows[rows["inside"] == inside]
        if points.empty:
            continue
        heads = [f"{name}, {unit} {place:,.0f}" for place in points["place"]]
        points = points.assign(head=heads)
        hover = add_means(
            figure,
            RoundLine(name=name, rows=points, color=color, symbol=symbol),
            inputs,
            values=points["mean"].to_numpy(),
            floor=0,
            mode="lines+markers" if axis == "step" else "markers",
            name=name,
        )
        if axis == "round":
            add_counts(figure, points, hover, len(rows), color)


def _x_title(axis: Axis, pair: Pair) -> str:
    columns = {
        "round": ROUND,
        "sample": SAMPLE,
        "step": POSITION,
        "log_prob": TOKENS["rollout_log_prob"],
    }
    return pair.label(columns[axis])


def _traces(evidence: Exhibit, theme: Theme, pair: Pair) -> list[Any]:
    is_cloud = evidence.axis == "log_prob"
    dtype = np.float32 if is_cloud else np.float64  # half the size of a notebook
    return [
        go.Scatter(
            x=points["x"].to_numpy(dtype),
            y=points["y"].to_numpy(dtype),
            mode="markers",
            name=name,
            marker={"color": color, "size": 4 if is_cloud else 8, "symbol": symbol},
            cliponaxis=is_cloud,  # a mean of 0 is drawn whole
            customdata=None if is_cloud else points[["num_tokens"]],
            hovertemplate=_hover(evidence.axis, name, pair),
        )
        for inside, name, color, symbol in _styles(theme)
        if len(points := evidence.frame[evidence.frame["inside"] == inside])
    ]


def _hover(axis: Axis, name: str, pair: Pair) -> str:
    if axis == "log_prob":
        rows = f"{pair.b} log-prob %{{x:.4g}} nat<br>diff %{{y:.4g}} nat"
    else:
        mean = "mean |diff| %{y:.4g} nat"
        rows = f"{axis} %{{x}}<br>{mean}<br>%{{customdata[0]:,}} tokens"
    return f"<b>{name}</b><br>{rows}<extra></extra>"
