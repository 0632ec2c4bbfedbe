"""Log-perplexities of samples by both engines: `plot_probabilities(axes="log_ppl")`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.core.measured import number_values
from rounddiag.figures._parts.canvas import Theme, colorize, empty_figure
from rounddiag.figures._parts.clouds import (
    NUM_BINS,
    NUM_WORST,
    Clouds,
    build_panels,
    explain_left_out,
    name_panels,
    why_empty,
)
from rounddiag.figures._parts.data import PlotInputs, note_unknown_rounds
from rounddiag.figures._parts.labels import NOT_FINITE
from rounddiag.schema import OLD_LOG_PPL, ROLLOUT_LOG_PPL
from rounddiag.stats import perplexities
from rounddiag.stats.agreement import Bins, agreement, densities, farthest

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


def draw_log_ppl(inputs: PlotInputs, by: str | None) -> go.Figure:
    """Draw each sample's mean -log-prob by both engines, a panel for each part."""
    points, names = _place_points(perplexities(inputs.data, by=by), by)
    values = (points[name].to_numpy() for name in ("x", "y", "panel"))
    agreed = agreement(*values, num_panels=len(names))
    if not agreed["num"].any():
        return empty_figure(_TITLE, why_empty(agreed, "sample"), inputs.theme)
    panels = build_panels(agreed, names, "sample")
    x = Bins.around(*(points[n].to_numpy() for n in ("x", "y")), num=NUM_BINS)
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
    captions += explain_left_out(agreed, "sample")
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
