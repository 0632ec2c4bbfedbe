"""Mismatch per round, and on how much data each number stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures.canvas import cross, empty_figure, new_figure
from rounddiag.figures.labels import tick_step
from rounddiag.figures.round_words import HOVER, explanation, hover_data
from rounddiag.figures.sources import summary_of
from rounddiag.figures.theme import theme_of
from rounddiag.schema import NUM_SAMPLES, NUM_TOKENS, ROUND, SUMMARY
from rounddiag.stats import FEW_SAMPLES, worst_round

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import Theme, ThemeName

# Bottom and top of the three panels, as shares of the plot.
_MEAN, _SAMPLES, _TOKENS = (0.46, 1.0), (0.23, 0.34), (0.0, 0.11)

# Points of 60 rounds must not touch in a figure of 400 pixels.
_PLOT_WIDTH = 300

_MEASURE = SUMMARY["mean_abs_diff"]


def plot_rounds(
    data: Batch | pd.DataFrame, *, theme: ThemeName | None = None
) -> go.Figure:
    """Plot mean |old - rollout| log-prob per round, with intervals and counts.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, its token frame (sample, round, diff), or its round summary.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If a frame lacks a column.

    Notes
    -----
    How to read it: in a healthy batch the points lie on a level line near the noise
    of the two engines' arithmetic, and the intervals overlap. A step at one round, or
    a rise from round to round, says that the engines see different contexts from
    there on. The interval (a vertical line) is clustered by sample, or by group where
    there are groups; where two of them do not overlap, the rounds differ by more than
    the choice of samples explains. Look at the bars before you believe a rise at the
    end: few samples get that far, and they may differ from the others in all rounds.
    A hollow point stands on fewer than 10 samples, and is the worst round only where
    no round has more.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_rounds(batch).layout.yaxis.title.text
    'mean |old - rollout| log-prob [nat]'
    """
    look = theme_of(theme)
    summary = summary_of(data).sort_values("round")
    title = "Mismatch per round"
    if summary.empty:
        return empty_figure(title, "no generated tokens, so no rounds", look)
    worst = worst_round(summary)
    lines = explanation(summary, worst, look)
    figure = new_figure(title, lines, look, height=460)
    _add_guide(figure, worst, look)
    _add_means(figure, summary, worst, look)
    _add_undefined(figure, summary, look)
    _add_counts(figure, summary, worst, look)
    _set_axes(figure, summary)
    return figure


def _add_guide(figure: go.Figure, worst: pd.Series | None, look: Theme) -> None:
    """Lead the eye from the worst round's mean down to its counts."""
    if worst is not None:
        figure.add_shape(
            type="line",
            layer="below",
            x0=worst["round"],
            x1=worst["round"],
            y0=0,
            y1=1,
            yref="paper",
            line={"color": look.less, "width": 1, "dash": "dot"},
        )


def _add_means(
    figure: go.Figure, summary: pd.DataFrame, worst: pd.Series | None, look: Theme
) -> None:
    means = summary["mean_abs_diff"]
    color = _highlighted(summary, worst, look.text, look.less)
    hollow = summary["num_samples"] < FEW_SAMPLES
    figure.add_scatter(
        x=summary["round"],
        y=means,
        mode="lines+markers",
        line={"color": look.muted, "width": 1},
        marker={
            "size": min(8, max(4, _PLOT_WIDTH / len(summary))),
            "color": np.where(hollow, look.paper, color),
            "line": {"color": color, "width": 1.5},
        },
        error_y={
            "type": "data",
            "symmetric": False,
            "array": summary["ci_high"] - means,
            "arrayminus": means - summary["ci_low"],
            "color": look.muted,
            "thickness": 2,
            "width": 0,
        },
        customdata=hover_data(summary),
        hovertemplate=HOVER,
        cliponaxis=False,
    )


def _add_undefined(figure: go.Figure, summary: pd.DataFrame, look: Theme) -> None:
    """Put a cross where a round has no mean: a gap alone would look like no round."""
    without = summary[summary["mean_abs_diff"].isna()]
    figure.add_scatter(
        x=without["round"],
        y=np.zeros(len(without)),
        mode="markers",
        marker=cross(look),
        cliponaxis=False,
        customdata=hover_data(without),
        hovertemplate=HOVER,
    )


def _highlighted(
    summary: pd.DataFrame, worst: pd.Series | None, usual: str, special: str
) -> list[str]:
    marked = None if worst is None else worst["round"]
    return [special if index == marked else usual for index in summary["round"]]


def _add_counts(
    figure: go.Figure, summary: pd.DataFrame, worst: pd.Series | None, look: Theme
) -> None:
    for axis, column in (("y2", NUM_SAMPLES), ("y3", NUM_TOKENS)):
        figure.add_bar(
            x=summary["round"],
            y=summary[column.name],
            yaxis=axis,
            width=0.6 * min(1, len(summary) / 15),  # thin also when they are few
            marker={"color": _highlighted(summary, worst, look.quiet, look.less)},
            customdata=hover_data(summary),
            hovertemplate=HOVER,
        )
        figure.add_annotation(
            text=column.label,
            x=0,
            y=1,
            xref="x domain",
            yref=f"{axis} domain",
            yanchor="bottom",
            showarrow=False,
            font={"color": look.muted},
            bgcolor=look.paper,
        )


def _set_axes(figure: go.Figure, summary: pd.DataFrame) -> None:
    last = int(summary["round"].max())
    figure.update_layout(
        xaxis={
            "title": {"text": ROUND.label},
            "range": [-0.6, last + 0.6],
            "dtick": tick_step(last + 1),
            "anchor": "y3",
        },
        yaxis={
            "title": {"text": _MEASURE.label},
            "domain": _MEAN,
            "rangemode": "tozero",
        },
        yaxis2={"domain": _SAMPLES, **_ends(summary["num_samples"])},
        yaxis3={"domain": _TOKENS, **_ends(summary["num_tokens"])},
    )


def _ends(counts: pd.Series) -> dict[str, object]:
    """Mark nothing but zero and the highest count on an axis."""
    highest = int(counts.max())
    return {"range": [0, highest], "tickvals": [0, highest], "tickformat": ",d"}
