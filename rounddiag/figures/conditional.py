"""The figure of means by the probability that tokens were sampled with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.figures._parts.axes import MeanAxis, choose_axis, note_zeros
from rounddiag.figures._parts.canvas import NARROW_PLOT, Theme, ThemeName, colorize
from rounddiag.figures._parts.data import PlotInputs, prepare, without_layers
from rounddiag.figures._parts.labels import (
    CROSS,
    NO_TOKENS,
    format_number,
    shorten_value,
    tick_step,
    wrap,
)
from rounddiag.figures._parts.lines import (
    format_key,
    split_by_round,
    thin_rounds,
)
from rounddiag.figures._parts.means import (
    add_heading,
    add_lines,
    axis_title,
    count_ticks,
    explain_marks,
    unit_suffix,
)
from rounddiag.schema import METRICS, NUM_TOKENS, ROLLOUT_PROB, ROUND
from rounddiag.stats import few_rows, means_by, standardise
from rounddiag.stats.inputs import Data
from rounddiag.stats.place_means import ENVELOPED
from rounddiag.stats.standardisation import PROB_EDGES
from rounddiag.wording import pluralize

_TITLE = "Mismatch by {b} probability"
_ENVELOPE = "···· rounding errors, (1 − p), scaled to the first round"
_PLOT_HEIGHT, _BOTTOM = 580, 48
# Bottom and top of the panels, as shares of the plot.
_MEANS, _COUNTS, _ROUNDS = (0.49, 1.0), (0.365, 0.45), (0.0, 0.17)
# Tick labels that fit on the axis of the means.
_MAX_TICKS = 10
# Groups stand side by side within this share of what lines have in other figures.
_SPREAD = 0.6
# Characters per line of the axis title and of a heading.
_AXIS, _HEADING = 46, 50


@without_layers
def plot_conditional(
    data: Data,
    *,
    metric: str = ENVELOPED,
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot mean |old − rollout| log-prob by the probability tokens were sampled with.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame with the columns sample, round, diff and
        rollout_log_prob.
    by : str, optional
        A column of samples or rounds, such as `status`: a line for each of its values,
        at most 8, in place of groups of rounds.
    metric, a, b, theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: a line is a group of rounds, and each x position is a bin of the
    rollout probability. In a healthy batch the lines fall to the right, lie on each
    other, and follow the dotted one, which is what rounding errors of logits do to a
    token of probability p: they scale with 1 - p. Lines that coincide show that later
    rounds are no worse at equally likely tokens, whatever their means: they sample less
    likely ones. Lines that separate show that later rounds are computed differently:
    other context, other screenshots, other weights. A line above the dotted one at its
    right end has an error that does not depend on how certain the model is. The lowest
    panel sums that up: the diamonds are the means per round, the points are the same
    means as if each round had sampled what all rounds together did. If the diamonds
    rise and the points do not, only the choice of tokens changed.

    With `by`, lines that separate show that one rank, replica or kind of sample is
    computed differently at equally likely tokens. A metric with a sign, such as `diff`,
    has a linear axis: noise lies on both sides of zero, a fault on one.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_conditional(batch).layout.yaxis.title.text
    'mean |old − rollout| log-prob [nat]'
    """
    inputs = prepare(data, a, b, metric=metric, theme=theme)
    metric, theme_ = inputs.metric, inputs.theme
    means = means_by(inputs.data, "probability", by=by, metric=metric)
    known = means[means["place"].notna()]
    title = inputs.pair.fill(_TITLE)
    if not known["mean"].notna().any():
        count = int(means["num_tokens"].sum())
        why = f"{CROSS} {pluralize(count, 'token')}, none with a finite diff"
        return inputs.empty_figure(title, why if count else NO_TOKENS)
    # The middle of each bin; edges are integers on the axis.
    known = known.assign(
        place=np.searchsorted(PROB_EDGES, known["place"]) + 0.5,
        head=[f"probability {label}" for label in known["label"]],
    )
    rounds, note = thin_rounds(standardise(inputs.data, metric=metric))
    lines = split_by_round(known, by, theme_)
    axis = choose_axis(known, metric)
    kind = "round" if by is None else by
    captions = format_key(kind, lines)
    captions += [_ENVELOPE] if "envelope" in known else []
    captions += _explanation(means, known, axis) + note
    figure = inputs.new_figure(title, captions, plot=_PLOT_HEIGHT, bottom=_BOTTOM)
    if "envelope" in known:
        _add_envelope(figure, known, theme_)
    add_lines(
        figure,
        lines,
        inputs,
        axis,
        num_places=len(PROB_EDGES) - 1,
        spread=_SPREAD,
        kind=f"{shorten_value(kind)} ",
        panels={"y2": "num_tokens"},
    )
    add_heading(figure, "y2", NUM_TOKENS.label, theme_)
    _add_rounds(figure, rounds, inputs)
    _set_axes(figure, known, rounds, axis)
    figure.layout.xaxis.title.text = inputs.pair.label(ROLLOUT_PROB)
    figure.layout.yaxis.title.text = axis_title(metric, inputs.pair, width=_AXIS)
    return figure


def _explanation(bins: pd.DataFrame, known: pd.DataFrame, axis: MeanAxis) -> list[str]:
    lines = explain_marks(known) + note_zeros(known, axis, "lower")
    without = int(bins["num_tokens"].sum() - known["num_tokens"].sum())
    if without:
        lines.append(f"left out: {pluralize(without, 'token')} without a probability")
    return lines


def _add_envelope(figure: go.Figure, known: pd.DataFrame, theme: Theme) -> None:
    """Draw what is expected, dotted, from the first group that has each bin."""
    first = known.drop_duplicates("place").sort_values("place")
    figure.add_scatter(
        x=first["place"],
        y=first["envelope"],
        mode="lines",
        line={"color": theme.muted, "width": 2, "dash": "dot"},
        hoverinfo="skip",
    )


def _add_rounds(figure: go.Figure, rounds: pd.DataFrame, inputs: PlotInputs) -> None:
    theme, is_few = inputs.theme, few_rows(rounds)
    unit = unit_suffix(inputs.metric)
    hover = [[_describe_round(row, unit)] for row in rounds.itertuples()]
    for name, symbol, dash, color, hollow in (
        ("mean", "diamond", "dot", theme.quiet, is_few | True),
        ("standardised", "circle", "solid", theme.text, is_few),
    ):
        figure.add_scatter(
            x=rounds["round"],
            y=rounds[name],
            xaxis="x2",
            yaxis="y3",
            mode="lines+markers",
            line={"color": color, "width": 1, "dash": dash},
            marker={
                "size": min(7, max(4, NARROW_PLOT / len(rounds))),
                "symbol": symbol,
                "color": np.where(hollow, theme.paper, color),
                "line": {"color": color, "width": 1.5},
            },
            customdata=hover,
            hovertemplate="%{customdata[0]}<extra></extra>",
            cliponaxis=False,
        )
    label = wrap(inputs.pair.label(METRICS[inputs.metric]), _HEADING)
    key = f"{colorize('◇', theme.quiet)} observed  ● standardised"
    add_heading(figure, "y3", f"{label}<br>{key}", theme)


def _describe_round(row: Any, unit: str) -> str:  # noqa: ANN401 a row of `itertuples` has no type
    lines = (
        f"<b>round {row.round}</b>",
        f"observed mean {format_number(row.mean)}{unit}",
        f"standardised mean {format_number(row.standardised)}{unit}",
        f"based on {100 * row.covered:.0f} % of the tokens",
        f"{pluralize(row.num_samples, 'sample')}, {pluralize(row.num_tokens, 'token')}",
    )
    return "<br>".join(lines)


def _set_axes(
    figure: go.Figure, known: pd.DataFrame, rounds: pd.DataFrame, axis: MeanAxis
) -> None:
    highest = int(known.groupby("place")["num_tokens"].sum().max())
    last = int(rounds["round"].max())
    figure.update_layout(
        barmode="stack",
        xaxis={
            "range": [0, len(PROB_EDGES) - 1],
            "tickvals": list(range(len(PROB_EDGES))),
            # In two lines: side by side they touch in a figure of 400 pixels.
            "ticktext": [
                f"{'<br>' if i % 2 else ''}{p:g}" for i, p in enumerate(PROB_EDGES)
            ],
            "tickangle": 0,
            "anchor": "y2",
        },
        xaxis2={
            "title": {"text": ROUND.label},
            "range": [-0.6, last + 0.6],
            "dtick": tick_step(last + 1),
            "anchor": "y3",
        },
        yaxis={"domain": _MEANS, **axis.layout(_MAX_TICKS)},
        yaxis2={"domain": _COUNTS, **count_ticks(highest)},
        yaxis3={"domain": _ROUNDS, "rangemode": "tozero", "nticks": 4},
    )
