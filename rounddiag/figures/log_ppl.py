"""The figure of log-perplexities of samples by both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.core.measured import number_values
from rounddiag.figures._parts.canvas import colorize, empty_figure
from rounddiag.figures._parts.clouds import (
    LAYERS,
    NUM_WORST,
    Clouds,
    build_panels,
    explain_left_out,
    name_panels,
    why_empty,
)
from rounddiag.figures._parts.data import note_unknown_rounds, prepare
from rounddiag.figures._parts.labels import NOT_FINITE
from rounddiag.schema import OLD_LOG_PPL, ROLLOUT_LOG_PPL
from rounddiag.stats import perplexities
from rounddiag.stats.agreement import Bins, agreement, densities, farthest

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures._parts.canvas import Theme, ThemeName
    from rounddiag.figures._parts.data import PlotInputs
    from rounddiag.stats.inputs import Data


_TITLE = "Log-perplexity of samples"
# More points of both panels are drawn as a density, with the worst of each on top.
_MAX_MARKS = 5_000
_NUMBERS = ["sample", "num_tokens", "num_nonfinite", "y", "x", "difference"]
_HOVER = (
    "sample %{{customdata[0]}}<br>%{{customdata[1]:,}} tokens"
    f"<br>left out: %{{{{customdata[2]:,}}}} {NOT_FINITE}"
    "<br>log-perplexity: {a} %{{customdata[3]:.3g}}, {b} %{{customdata[4]:.3g}}"
    "<br>difference %{{customdata[5]:.3g}} nat<extra></extra>"
)


def plot_log_ppl(
    data: Data,
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
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame with the columns sample, round,
        rollout_log_prob and old_log_prob.
    by : str, optional
        A column of samples or rounds, such as `status`: a panel for each of its values,
        at most 8, in place of first and later rounds.
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
    How to read it: a point is a sample, in the left panel by its first round and in the
    right one by all later rounds together; the log-perplexity is its mean -log-prob. In
    a healthy batch the points of both panels lie along the dotted line, with r near 1.
    Points above it (orange) are samples that training finds more surprising than
    sampling did. Where the right panel alone lifts off, what came after the first round
    differs: the observation, its images, the context; a cloud with the same offset in
    both panels is a temperature, or another model; a few points far above, single
    samples with a broken context. Above 5,000 points the panels are images of their
    density with the 30 worst on top. With `by`, a panel that lifts off alone is the
    rank, replica or kind of sample that is at fault.

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
    inputs = prepare(data, a, b, layers=layers, known=LAYERS, theme=theme)
    points, names = _place_points(perplexities(inputs.data, by=by), by)
    values = (points[name].to_numpy() for name in ("x", "y", "panel"))
    agreed = agreement(*values, num_panels=len(names))
    if not agreed["num"].any():
        return empty_figure(_TITLE, why_empty(agreed, "sample"), inputs.theme)
    panels = build_panels(agreed, names, "sample")
    x = Bins.around(*(points[n].to_numpy() for n in ("x", "y")), num=panels.num_bins)
    cells, marks = _divide(points, x, inputs.theme)
    clouds = Clouds(
        panels=panels,
        cells=cells,
        marks=marks,
        ends=(x, x),
        guide=(x.low, x.high),
        noun="sample",
        numbers=_NUMBERS,
        hover=inputs.pair.fill(_HOVER),
        layers=inputs.layers,
    )
    captions = note_unknown_rounds(inputs.data) + _explanation(cells, inputs)
    captions += explain_left_out(agreed, "sample", inputs.data.num_picked)
    labels = inputs.pair.label(ROLLOUT_LOG_PPL), inputs.pair.label(OLD_LOG_PPL)
    return clouds.draw(_TITLE, captions, labels, inputs.theme)


def _place_points(
    samples: pd.DataFrame, by: str | None
) -> tuple[pd.DataFrame, list[str]]:
    """Return the points of samples with their panels, and the names of panels."""
    part = samples["is_later" if by is None else by].to_numpy()
    panel, values = (part, ()) if by is None else number_values(by, part)
    x, y = samples["rollout_log_ppl"], samples["old_log_ppl"]
    points = samples.assign(x=x, y=y, difference=y - x, panel=panel)
    return points, name_panels(by, values)


def _divide(
    points: pd.DataFrame, ends: Bins, theme: Theme
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the bins of a density, and the points that are drawn one by one."""
    color = np.where(points["difference"] > 0, theme.less, theme.more)
    marks = points.assign(color=color).dropna(subset=["x", "y"])
    if len(marks) <= _MAX_MARKS:
        return densities(points[:0], ends, ends), marks
    size, panel = marks["difference"].abs().to_numpy(), marks["panel"].to_numpy()
    worst = marks.iloc[farthest(size, panel, NUM_WORST)]
    return densities(points, ends, ends), worst


def _explanation(cells: pd.DataFrame, inputs: PlotInputs) -> list[str]:
    if not inputs.layers["points"]:
        return []
    less, more = colorize("▲", inputs.theme.less), colorize("▼", inputs.theme.more)
    subject = inputs.pair.fill("{training} finds")
    lines = [f"{less} {subject} the sample more surprising {more} less"]
    if len(cells):
        lines.append(f"points: up to {NUM_WORST} samples that differ most")
    return lines
