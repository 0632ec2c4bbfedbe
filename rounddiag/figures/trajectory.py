"""One sample, token by token: where in its rounds the engines disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.checks.words import count
from rounddiag.figures.canvas import colored, empty_figure, new_figure
from rounddiag.figures.labels import CROSS
from rounddiag.figures.sources import trajectory_of
from rounddiag.figures.theme import theme_of
from rounddiag.figures.thinning import thinned
from rounddiag.figures.token_traces import add_bands, add_tokens
from rounddiag.schema import DIFF, POSITION, ROUND, TOKENS

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import Theme, ThemeName

    Array = np.ndarray[Any, Any]

_DIFF, _LOG_PROBS = (0.49, 1.0), (0.0, 0.4)
# Width of the gap that stands for an observation, as a share of all tokens.
_GAP = 0.012
# Ticks must not touch in a figure of 400 pixels.
_PLOT_WIDTH = 300
# Pixels per character of a tick label, and between labels.
_CHARACTER, _BETWEEN = 6.5, 8


def plot_trajectory(
    data: Batch | pd.DataFrame, *, sample: int, theme: ThemeName | None = None
) -> go.Figure:
    """Plot the diff and both log-probs of one sample over its generated tokens.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with the columns sample, round, token, diff,
        position, rollout_log_prob and old_log_prob; its text is shown if it has one.
    sample : int
        Which sample, from 0.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure
        `layout.meta` says where on the x axis the first token of each round stands:
        `rounds` and `starts`; the others of the round follow, one apart.

    Raises
    ------
    FrameError
        If there is no such sample, or the frame lacks a column.

    Notes
    -----
    How to read it: in a healthy sample the upper panel is a low lawn, blue and orange
    alike, in every shaded round, and the two lines of the lower panel lie on each
    other. One colour throughout is an offset (a temperature applied by one engine
    only); a lawn that grows from one round on, a context that differs from there;
    single tall stems, tokens that one engine finds nearly impossible, often where the
    lower lines dip; a stem at the start of each round, a template. Observations
    between rounds are collapsed to a gap; ticks give round and real position.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_trajectory(batch, sample=5).layout.yaxis.title.text
    'old - rollout log-prob [nat]'
    """
    look = theme_of(theme)
    tokens = trajectory_of(data, sample)
    title = f"Sample {sample}, token by token"
    if tokens.empty:
        return empty_figure(title, "no generated tokens: the response mask is 0", look)
    kept = tokens.iloc[thinned(tokens)]
    lines = _explanation(tokens, len(kept), look)
    figure = new_figure(title, lines, look, height=500, bottom=68)
    place = _places(tokens)
    starts = np.flatnonzero(np.diff(tokens["round"], prepend=-1))
    add_bands(figure, place, starts, look)
    add_tokens(figure, kept, place[kept.index], look)
    _set_axes(figure, place, *_ticks(tokens, place, starts))
    rounds = tokens["round"].iloc[starts].tolist()
    figure.layout.meta = {"rounds": rounds, "starts": place[starts].tolist()}
    return figure


def _explanation(tokens: pd.DataFrame, num_drawn: int, look: Theme) -> list[str]:
    more, less = colored("▲", look.more), colored("▼", look.less)
    lines = [
        f"{more} training likes the token more {less} less",
        f"{colored('▬', look.quiet)} {TOKENS['rollout_log_prob'].meaning}",
        f"{colored('─', look.text)} {TOKENS['old_log_prob'].meaning}",
    ]
    undefined = int((~np.isfinite(tokens["diff"])).sum())
    if undefined:
        lines.append(f"{CROSS} {count(undefined, 'token')} whose diff is not finite")
    if num_drawn < len(tokens):
        share = f"{num_drawn:,} of {count(len(tokens), 'token')}"
        lines.append(f"drawn: {share}, extremes of diff kept")
    return lines


def _places(tokens: pd.DataFrame) -> Array:
    """Put tokens side by side, with a gap between rounds."""
    gap = max(1, round(_GAP * len(tokens)))
    first = tokens["round"].iloc[:1]
    changes = np.diff(tokens["round"], prepend=first) != 0
    places: Array = np.arange(len(tokens)) + gap * np.cumsum(changes)
    return places


def _ticks(
    tokens: pd.DataFrame, place: Array, starts: Array
) -> tuple[list[int], list[str]]:
    """Label the start of as many rounds as fit without touching."""
    longest = len(str(tokens["position"].max()))
    share = (longest * _CHARACTER + _BETWEEN) / _PLOT_WIDTH
    apart = share * (place[-1] - place[0] + 2)
    chosen: list[int] = []
    for start in starts:
        if not chosen or place[start] - place[chosen[-1]] >= apart:
            chosen.append(start)
    rows = tokens.iloc[chosen]
    pairs = zip(rows["round"], rows["position"], strict=True)
    return place[chosen].tolist(), [f"<b>{round_}</b><br>{at}" for round_, at in pairs]


def _set_axes(
    figure: go.Figure, place: Array, ticks: list[int], labels: list[str]
) -> None:
    figure.update_layout(
        hovermode="x",
        hoversubplots="axis",
        hoverdistance=-1,
        xaxis={
            "title": {"text": f"{ROUND.label}, and {POSITION.label}"},
            "range": [place[0] - 1, place[-1] + 1],
            "tickvals": ticks,
            "ticktext": labels,
            "tickangle": 0,
            "anchor": "y2",
        },
        yaxis={"title": {"text": DIFF.label}, "domain": _DIFF, "zeroline": True},
        yaxis2={"title": {"text": "log-prob [nat]"}, "domain": _LOG_PROBS},
    )
