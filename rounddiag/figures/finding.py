"""The one figure that shows the evidence of a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from rounddiag.errors import FrameError
from rounddiag.figures.canvas import new_figure
from rounddiag.figures.theme import theme_of
from rounddiag.findings.causes import CAUSES
from rounddiag.findings.exhibit import Axis, Exhibit, exhibit
from rounddiag.findings.finding import Finding

if TYPE_CHECKING:
    from rounddiag.figures.theme import Theme, ThemeName

_HEIGHT = 360
_X_TITLES: dict[Axis, str] = {
    "round": "round",
    "sample": "sample",
    "step": "position in the response",
    "log_prob": "rollout log-prob [nat]",
}
_WIDTH = 60  # characters of a line of explanation


def plot_finding(finding: Finding, *, theme: ThemeName | None = None) -> go.Figure:
    """Plot what a finding rests on.

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
        If it is no Finding.

    Notes
    -----
    How to read it: orange is what the finding goes with, grey all else. Findings about
    rounds show mean |diff| per round, with a dotted line at the onset; about samples,
    mean |diff| per sample; about positions, mean |diff| along the response, in the
    finding's samples and elsewhere. All others show each token's diff over its rollout
    log-prob: a healthy batch is a narrow band around 0 that widens to the left, a
    temperature a tilted or bent one, a truncated distribution lies below 0, a filled
    value is a vertical line. Of more than 4,000 tokens, evenly spaced ones are drawn.

    Examples
    --------
    >>> import rounddiag as rd
    >>> diagnosis = rd.diagnose(rd.load("sample_data/image_window.parquet"))
    >>> rd.plot_finding(diagnosis[0]).layout.xaxis.title.text
    'round'
    """
    if not isinstance(finding, Finding):
        raise FrameError.build(
            expected="a Finding",
            found=f"a {type(finding).__name__}",
            advice="Pass an item of `rounddiag.diagnose(batch)`, such as its first.",
        )
    look = theme_of(theme)
    shown = exhibit(finding)
    meaning = CAUSES.get(finding.cause, "")
    title = f"{finding.cause}: {meaning}" if meaning else finding.cause
    lines = _wrapped(finding.explanation)
    figure = new_figure(title, lines, look, height=_HEIGHT)
    figure.add_traces(_traces(shown, look))
    is_cloud = shown.axis == "log_prob"
    figure.update_xaxes(title_text=_X_TITLES[shown.axis])
    figure.update_yaxes(
        title_text="old - rollout [nat]" if is_cloud else "mean |diff| [nat]"
    )
    if not is_cloud:
        figure.update_yaxes(rangemode="tozero")
    if shown.onset is not None:
        figure.add_vline(
            x=shown.onset - 0.5, line={"dash": "dot", "color": look.muted, "width": 1}
        )
    return figure


def _traces(shown: Exhibit, theme: Theme) -> list[Any]:
    traces = []
    for inside, color, name in (
        (False, theme.quiet, "others"),
        (True, theme.less, "finding"),
    ):
        part = shown.frame[shown.frame["inside"] == inside]
        if len(part) == 0:
            continue
        mode = "lines+markers" if shown.axis == "step" else "markers"
        is_cloud = shown.axis == "log_prob"
        kind = go.Scattergl if is_cloud else go.Scatter
        traces.append(
            kind(
                x=part["x"],
                y=part["y"],
                mode=mode,
                name=name,
                marker={
                    "color": color,
                    "size": 4 if is_cloud else 8,
                    "symbol": "diamond" if inside else "circle",
                },
                line={"color": color, "width": 1.5},
                customdata=part[["num_tokens"]],
                hovertemplate=_hover(shown.axis, name),
            )
        )
    return traces


def _hover(axis: Axis, name: str) -> str:
    if axis == "log_prob":
        return f"{name}<br>rollout %{{x:.4g}}<br>diff %{{y:.4g}} nat<extra></extra>"
    return (
        f"{name}<br>{_X_TITLES[axis]} %{{x}}<br>mean |diff| %{{y:.4g}} nat"
        "<br>%{customdata[0]:,} tokens<extra></extra>"
    )


def _wrapped(text: str) -> list[str]:
    from html import escape
    from textwrap import wrap

    return [escape(line, quote=False) for line in wrap(text, _WIDTH)]
