"""Mismatch of every sample in every round, missing rounds set apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from rounddiag.errors import FrameError
from rounddiag.figures.canvas import TOP, empty_figure, new_figure
from rounddiag.figures.color_bar import BOTTOM, add_color_bar
from rounddiag.figures.gaps import CELL_HOVER, add_missing, add_undefined
from rounddiag.figures.grid import Grid, grid_of
from rounddiag.figures.labels import CROSS, count, tick_step
from rounddiag.figures.scale import LogScale
from rounddiag.figures.sources import rounds_of
from rounddiag.figures.theme import theme_of
from rounddiag.schema import ROUND, ROUNDS, SAMPLE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import ThemeName

Metric: TypeAlias = Literal["mean_abs_diff", "max_abs_diff", "k3"]

_METRICS = ("mean_abs_diff", "max_abs_diff", "k3")
_ROW_HEIGHT, _MIN_ROWS, _MAX_ROWS = 12, 14, 46
_SHOWN = ("mean_abs_diff", "max_abs_diff")
# Up to this many samples the cells are divided by thin lines.
_FEW_ROWS = 64


def plot_heatmap(
    data: Batch | pd.DataFrame,
    *,
    metric: Metric = "mean_abs_diff",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the mismatch of every sample in every round.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or its round frame with the columns sample, round, num_tokens,
        mean_abs_diff, max_abs_diff and the metric.
    metric : {"mean_abs_diff", "max_abs_diff", "k3"}
        What the colour shows.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If the metric is unknown or a frame lacks a column.

    Notes
    -----
    How to read it: a healthy batch is an even field, with no row or column that
    stands out. Columns that turn bright from some round on speak of the context (an
    image that one engine drops, say); single bright rows of one sample, a tokenizer
    or a template; bright bands of neighbouring rows, of a replica or a rank. The
    colour is logarithmic and its range is printed; arrows at its ends say that values
    lie beyond. Hatched: the sample has no such round. A cross: the round is there,
    without any finite value.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_heatmap(batch, metric="k3").layout.xaxis.title.text
    'round'
    """
    if metric not in _METRICS:
        raise FrameError.build(
            key="metric",
            expected=f"one of {list(_METRICS)}",
            found=repr(metric),
            advice="Choose a magnitude per sample and round.",
        )
    look = theme_of(theme)
    rounds, num_samples = rounds_of(data, "num_tokens", *_SHOWN, metric)
    grid = grid_of(rounds, num_samples, *{metric, *_SHOWN})
    title, lines = "Mismatch per sample and round", _explanation(grid, metric)
    if rounds.empty:
        return empty_figure(title, "no generated tokens, so no rounds", look)
    height = _height(num_samples)
    figure = new_figure(title, lines, look, height=height, bottom=BOTTOM)
    scale = LogScale.around(grid.columns[metric])
    _add_cells(figure, grid, scale, metric)
    add_missing(figure, grid, look)
    add_undefined(figure, grid, metric, look)
    add_color_bar(figure, scale, grid.columns[metric], ROUNDS[metric].label)
    _set_axes(figure, grid.there.shape)
    return figure


def _height(num_samples: int) -> int:
    rows = _ROW_HEIGHT * min(max(num_samples, _MIN_ROWS), _MAX_ROWS)
    return rows + BOTTOM + TOP


def _explanation(grid: Grid, metric: Metric) -> list[str]:
    lines = []
    if not grid.there.all():
        lines.append("▨ the sample has no such round")
    zeros = int((grid.columns[metric] == 0).sum())
    if zeros:
        lines.append(f"{count(zeros, 'cell')} exactly 0, shown at the low end")
    undefined = int(grid.undefined(metric).sum())
    if undefined:
        lines.append(f"{CROSS} {count(undefined, 'cell')} without a finite value")
    return lines


def _add_cells(figure: go.Figure, grid: Grid, scale: LogScale, metric: Metric) -> None:
    gap = 1 if len(grid.there) <= _FEW_ROWS else 0
    others = [name for name in _SHOWN if name != metric]
    values = {metric: "z"} | {n: f"customdata[{i}]" for i, n in enumerate(others)}
    lines = [f"{ROUNDS[n].meaning} %{{{v}:.3g}}" for n, v in values.items()]
    figure.add_heatmap(
        z=grid.columns[metric],
        text=grid.num_tokens,
        customdata=np.stack([grid.columns[name] for name in others], axis=-1),
        hovertemplate="<br>".join([*CELL_HOVER, *lines]) + "<extra></extra>",
        hoverongaps=False,
        zmin=scale.low,
        zmax=scale.high,
        colorscale=scale.linear_colors(),
        showscale=False,
        xgap=gap,
        ygap=gap,
    )


def _set_axes(figure: go.Figure, shape: tuple[int, ...]) -> None:
    num_samples, num_rounds = shape
    figure.update_layout(
        xaxis={
            "title": {"text": ROUND.label},
            "range": [-0.5, num_rounds - 0.5],
            "dtick": tick_step(num_rounds),
        },
        yaxis={
            "title": {"text": SAMPLE.label},
            "range": [num_samples - 0.5, -0.5],
            "dtick": tick_step(num_samples),
            "showgrid": False,
        },
    )
