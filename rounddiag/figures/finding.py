"""The figure of a finding: its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from rounddiag.core.measured import Measured
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import new_figure, theme_of
from rounddiag.figures._parts.data import note_unknown_rounds
from rounddiag.figures._parts.labels import hover_text, wrap
from rounddiag.figures._parts.means import axis_title
from rounddiag.findings.causes import CAUSES
from rounddiag.findings.finding import Axis, Exhibit, Finding, exhibit
from rounddiag.schema import DIFF, POSITION, ROUND, SAMPLE, TOKENS, Pair

if TYPE_CHECKING:
    from rounddiag.figures._parts.canvas import Theme, ThemeName

_HEIGHT = 360
# Width of a line of the caption, in small letters.
_LINE = 60
_KEY = "orange diamonds: the finding; grey circles: all other tokens"


def plot_finding(finding: Finding, *, theme: ThemeName | None = None) -> go.Figure:
    """Plot the evidence of a finding.

    Parameters
    ----------
    finding : Finding
        An item of a `Diagnosis`.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If it is no Finding, or there is no such theme.

    Notes
    -----
    How to read it: orange diamonds belong to the finding, grey circles do not. The axis
    depends on the cause. Over rounds, samples or positions, the points are mean |diff|,
    and a dotted line marks the round from which on the batch differs; in a healthy
    batch orange would be as low as grey. Otherwise each point is a token: its diff over
    the log-prob of the sampling engine. A healthy batch is a narrow band around 0 that
    widens to the left. A different temperature tilts or bends the band, a truncated
    distribution shifts it below 0, and a filled value is a vertical line.

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
    colors = theme_of(theme)
    pair = Pair(finding.view.a, finding.view.b)
    evidence = exhibit(finding)
    figure = new_figure(_safe(finding.cause), _caption(finding), colors, height=_HEIGHT)
    figure.add_traces(_traces(evidence, colors, pair))
    figure.update_xaxes(title_text=_x_title(evidence.axis, pair))
    if evidence.axis == "log_prob":
        figure.update_yaxes(title_text=pair.label(DIFF))
    else:
        title = axis_title("abs_diff", pair)
        figure.update_yaxes(title_text=title, rangemode="tozero")
    if evidence.onset is not None:
        line = {"dash": "dot", "color": colors.muted, "width": 1}
        figure.add_vline(x=evidence.onset - 0.5, line=line)
    return figure


def _caption(finding: Finding) -> list[str]:
    """Return the cause, the explanation, which may quote the file, and the key."""
    texts = filter(None, (CAUSES.get(finding.cause), finding.explanation))
    lines = [line for text in texts for line in wrap(_safe(text), _LINE).split("<br>")]
    return [*note_unknown_rounds(Measured.of(finding.view.batch)), *lines, _KEY]


def _safe(text: str) -> str:
    return " ".join(map(hover_text, text.split()))


def _x_title(axis: Axis, pair: Pair) -> str:
    columns = {
        "round": ROUND,
        "sample": SAMPLE,
        "step": POSITION,
        "log_prob": TOKENS["rollout_log_prob"],
    }
    return pair.label(columns[axis])


def _traces(evidence: Exhibit, theme: Theme, pair: Pair) -> list[Any]:
    """Return the points of all other tokens, and over them those of the finding."""
    is_cloud = evidence.axis == "log_prob"
    dtype = np.float32 if is_cloud else np.float64  # half the size of a notebook
    styles = (
        (False, "others", theme.quiet, "circle"),
        (True, "finding", theme.mark, "diamond"),
    )
    return [
        go.Scatter(
            x=points["x"].to_numpy(dtype),
            y=points["y"].to_numpy(dtype),
            mode="lines+markers" if evidence.axis == "step" else "markers",
            name=name,
            marker={"color": color, "size": 4 if is_cloud else 8, "symbol": symbol},
            line={"color": color, "width": 1.5},
            cliponaxis=is_cloud,  # a mean of 0 is drawn whole
            customdata=None if is_cloud else points[["num_tokens"]],
            hovertemplate=_hover(evidence.axis, name, pair),
        )
        for inside, name, color, symbol in styles
        if len(points := evidence.frame[evidence.frame["inside"] == inside])
    ]


def _hover(axis: Axis, name: str, pair: Pair) -> str:
    if axis == "log_prob":
        rows = f"{pair.b} log-prob %{{x:.4g}} nat<br>diff %{{y:.4g}} nat"
    else:
        place = "position" if axis == "step" else axis
        rows = (
            f"{place} %{{x}}<br>mean |diff| %{{y:.4g}} nat"
            "<br>%{customdata[0]:,} tokens"
        )
    return f"<b>{name}</b><br>{rows}<extra></extra>"
