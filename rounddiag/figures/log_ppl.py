"""Log-perplexity of each sample by both engines, first round beside later rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures._parts.canvas import colored, empty_figure, theme_of
from rounddiag.figures._parts.data import layers_of, num_picked_of, of_pair
from rounddiag.figures._parts.density import LAYERS, NUM_WORST, Clouds
from rounddiag.figures._parts.panels import cautions, panel_names, panels_of, why_empty
from rounddiag.schema import OLD_LOG_PPL, ROLLOUT_LOG_PPL
from rounddiag.stats import perplexities
from rounddiag.stats.agreement import Bins, agreement, densities, farthest
from rounddiag.stats.grouping import numbered

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures._parts.canvas import Theme, ThemeName
    from rounddiag.schema import Pair


# More points of both panels are drawn as a density, with the worst of each on top.
_MAX_MARKS = 5_000
_NUMBERS = ["sample", "num_tokens", "num_nonfinite", "y", "x", "difference"]
_HOVER = (
    "sample %{{customdata[0]}}<br>%{{customdata[1]:,}} tokens"
    "<br>%{{customdata[2]:,}} of them left out: not finite"
    "<br>log-perplexity: {a} %{{customdata[3]:.3g}}, {b} %{{customdata[4]:.3g}}"
    "<br>difference %{{customdata[5]:.3g}} nat<extra></extra>"
)


def plot_log_ppl(
    data: Batch | pd.DataFrame,
    *,
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot each sample's log-perplexity by both engines, first and later rounds.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with the columns sample, round, rollout_log_prob and
        old_log_prob.
    by : str, optional
        A column of samples or rounds, `status` say: a panel for each of its values, at
        most 8, in place of first and later rounds.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        What to leave out: `{"density": False, "points": False, "diagonal": False}`.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure
        The `customdata` of its points begins with the sample.

    Raises
    ------
    FrameError
        If a frame lacks a column or has another pair, a layer is unknown, or `by` has
        more than 8 values.
    BatchError
        If the batch has no such score.

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
    with the 30 worst on top. With `by`, a panel that lifts off alone is the rank,
    replica or kind of sample that is at fault.

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
    look, drawn = theme_of(theme), layers_of(layers, *LAYERS)
    data, pair = of_pair(data, a, b)
    points, names = _points(perplexities(data, by=by), by)
    values = (points[name].to_numpy() for name in ("x", "y", "panel"))
    agreed = agreement(*values, num_panels=len(names))
    title = "Log-perplexity of samples"
    if not agreed["num"].any():
        return empty_figure(title, why_empty(agreed, "sample"), look)
    panels = panels_of(agreed, names, "sample")
    x = Bins.around(*(points[n].to_numpy() for n in ("x", "y")), num=panels.num_bins)
    cells, marks = _divided(points, x, look)
    lines = _explanation(cells, drawn, pair, look)
    lines += cautions(agreed, "sample", num_picked_of(data))
    clouds = Clouds(
        panels=panels,
        cells=cells,
        marks=marks,
        ends=(x, x),
        guide=(x.low, x.high),
        noun="sample",
        numbers=_NUMBERS,
        hover=pair.named(_HOVER),
        layers=drawn,
    )
    labels = pair.label(ROLLOUT_LOG_PPL), pair.label(OLD_LOG_PPL)
    return clouds.figure(title, lines, labels, look)


def _points(samples: pd.DataFrame, by: str | None) -> tuple[pd.DataFrame, list[str]]:
    """Return the points of samples with their panels, and what those are called."""
    part = samples[by or "is_later"].to_numpy()
    panel, values = (part, ()) if by is None else numbered(by, part)
    x, y = samples["rollout_log_ppl"], samples["old_log_ppl"]
    points = samples.assign(x=x, y=y, difference=y - x, panel=panel)
    return points, panel_names(by, values)


def _divided(
    points: pd.DataFrame, ends: Bins, look: Theme
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what is drawn as a density, and what is drawn one by one."""
    color = np.where(points["difference"] > 0, look.less, look.more)
    marks = points.assign(color=color).dropna(subset=["x", "y"])
    if len(marks) <= _MAX_MARKS:
        return densities(points[:0], ends, ends), marks
    size, panel = marks["difference"].abs().to_numpy(), marks["panel"].to_numpy()
    worst = marks.iloc[farthest(size, panel, NUM_WORST)]
    return densities(points, ends, ends), worst


def _explanation(
    cells: pd.DataFrame, drawn: Mapping[str, bool], pair: Pair, look: Theme
) -> list[str]:
    if not drawn["points"]:
        return []
    less, more = colored("▲", look.less), colored("▼", look.more)
    who = pair.named("{training} finds")
    lines = [f"{less} {who} the sample more surprising {more} less"]
    if len(cells):
        lines.append(f"points: up to {NUM_WORST} samples that differ most")
    return lines
