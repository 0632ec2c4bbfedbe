"""Log-perplexity of each sample by both engines, first round beside later rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures.canvas import TOP, colored, empty_figure, new_figure
from rounddiag.figures.clouds import NUM_WORST, Clouds
from rounddiag.figures.color_bar import BOTTOM
from rounddiag.figures.panel_words import cautions, heads, why_empty
from rounddiag.figures.panels import add_guide, add_heads, set_panels
from rounddiag.figures.sources import num_picked_of, perplexities_of
from rounddiag.figures.theme import theme_of
from rounddiag.schema import OLD_LOG_PPL, ROLLOUT_LOG_PPL
from rounddiag.stats.agreement import agreement, farthest
from rounddiag.stats.densities import Bins, densities

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import Theme, ThemeName

# More points of both panels are drawn as a density, with the worst of each on top.
_MAX_MARKS = 5_000
_HEIGHT = TOP + 340
_BOTTOM = 52
_NUMBERS = ["sample", "num_tokens", "num_nonfinite", "y", "x", "difference"]
_HOVER = (
    "sample %{customdata[0]}<br>%{customdata[1]:,} tokens"
    "<br>%{customdata[2]:,} of them left out: not finite"
    "<br>log-perplexity: old %{customdata[3]:.3g}, rollout %{customdata[4]:.3g}"
    "<br>difference %{customdata[5]:.3g} nat<extra></extra>"
)


def plot_log_ppl(
    data: Batch | pd.DataFrame, *, theme: ThemeName | None = None
) -> go.Figure:
    """Plot each sample's log-perplexity by both engines, first and later rounds.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with the columns sample, round, rollout_log_prob and
        old_log_prob.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure
        The `customdata` of its points begins with the sample.

    Raises
    ------
    FrameError
        If a frame lacks a column.

    Notes
    -----
    How to read it: a point is a sample, in the left panel by its first round and in
    the right one by all later rounds together; the log-perplexity is its mean
    -log-prob. In a healthy batch both panels hug the dotted line with r near 1. Points
    above it (orange) are samples that training finds more surprising than sampling
    did. Where the right panel alone lifts off, what came after the first round differs:
    the observation, its images, the context; a cloud that is off by the same in both
    panels is a temperature, or another model; a few points far above, single samples
    with a broken context. Above 5,000 points the panels are images of their density
    with the 30 worst on top.

    References
    ----------
    Liu and Li, "When Speed Kills Stability", 2025, section 3.4.1.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_log_ppl(batch).layout.yaxis.title.text
    'log-perplexity by the training engine [nat]'
    """
    look = theme_of(theme)
    points = _points(perplexities_of(data))
    agreed = agreement(*(points[n].to_numpy() for n in ("x", "y", "is_later")))
    title = "Log-perplexity of samples"
    if not agreed["num"].any():
        return empty_figure(title, why_empty(agreed, "sample"), look)
    x = Bins.around(points["x"].to_numpy(), points["y"].to_numpy())
    cells, marks = _divided(points, x, look)
    bottom = BOTTOM if len(cells) else _BOTTOM
    lines = _explanation(cells, look)
    lines += cautions(agreed, "sample", num_picked_of(data))
    figure = new_figure(title, lines, look, height=_HEIGHT + bottom, bottom=bottom)
    add_heads(figure, heads(agreed, "sample"))
    set_panels(figure, (x, x), (ROLLOUT_LOG_PPL.label, OLD_LOG_PPL.label), look)
    add_guide(figure, (x.low, x.low), (x.high, x.high), look)
    Clouds(
        cells=cells,
        marks=marks,
        ends=(x, x),
        noun="sample",
        numbers=_NUMBERS,
        hover=_HOVER,
    ).add_to(figure, look)
    return figure


def _points(samples: pd.DataFrame) -> pd.DataFrame:
    names = {"rollout_log_ppl": "x", "old_log_ppl": "y"}
    points = samples.rename(columns=names)
    return points.assign(difference=points["y"] - points["x"])


def _divided(
    points: pd.DataFrame, ends: Bins, look: Theme
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what is drawn as a density, and what is drawn one by one."""
    color = np.where(points["difference"] > 0, look.less, look.more)
    marks = points.assign(color=color).dropna(subset=["x", "y"])
    if len(marks) <= _MAX_MARKS:
        return densities(points[:0], ends, ends), marks
    size, is_later = marks["difference"].abs().to_numpy(), marks["is_later"].to_numpy()
    worst = marks.iloc[farthest(size, is_later, NUM_WORST)]
    return densities(points, ends, ends), worst


def _explanation(cells: pd.DataFrame, look: Theme) -> list[str]:
    less, more = colored("▲", look.less), colored("▼", look.more)
    lines = [f"{less} training finds the sample more surprising {more} less"]
    if len(cells):
        lines.append(f"points: up to {NUM_WORST} samples that differ most")
    return lines
