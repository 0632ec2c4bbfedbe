"""Mismatch by how likely tokens were, and rounds as if they sampled alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import FrameError
from rounddiag.figures._parts import means
from rounddiag.figures._parts.axes import mean_axis, raised_words
from rounddiag.figures._parts.canvas import (
    TOP,
    colored,
    empty_figure,
    new_figure,
    theme_of,
)
from rounddiag.figures._parts.data import layers_of, left_out, of_pair
from rounddiag.figures._parts.labels import CROSS, number, tick_step, wrapped
from rounddiag.figures._parts.lines import key_lines, shortened, split_lines
from rounddiag.figures._parts.round_layers import unit_of
from rounddiag.schema import METRICS, NUM_TOKENS, ROLLOUT_PROB, ROUND, metric_name
from rounddiag.stats import conditional, few_rows, standardised
from rounddiag.stats.conditional import ENVELOPED, PROB_EDGES
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.figures._parts.axes import MeanAxis
    from rounddiag.figures._parts.canvas import Theme, ThemeName
    from rounddiag.figures._parts.lines import RoundLine


# Bottom and top of the panels, as shares of the plot.
_MEANS, _COUNTS, _ROUNDS = (0.49, 1.0), (0.365, 0.45), (0.0, 0.17)
# So many labels have room over each other.
_MAX_TICKS = 10


def set_axes(
    figure: go.Figure, known: pd.DataFrame, rounds: pd.DataFrame, axis: MeanAxis
) -> None:
    """Mark the edges of the bins and the rounds, and share the plot."""
    highest = int(known.groupby("prob_low")["num_tokens"].sum().max())
    last = int(rounds["round"].max())
    figure.update_layout(
        barmode="stack",
        xaxis={
            "range": [0, len(PROB_EDGES) - 1],
            "tickvals": list(range(len(PROB_EDGES))),
            # In two lines: side by side they touch in a figure of 400 pixels.
            "ticktext": [f"{'<br>' * (i % 2)}{p:g}" for i, p in enumerate(PROB_EDGES)],
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
        yaxis2={"domain": _COUNTS, **means.ends(highest)},
        yaxis3={"domain": _ROUNDS, "rangemode": "tozero", "nticks": 4},
    )


# Points of 60 rounds must not touch in a figure of 400 pixels.
_PLOT_WIDTH = 300
# Groups stand side by side within this share of what lines have in other figures.
_SPREAD = 0.6


def _bins(known: pd.DataFrame) -> Array:
    """Return the bin of each row, whose edges are integers on the axis."""
    places = np.searchsorted(PROB_EDGES, known["prob_low"])
    return places + 0.5


def add_envelope(figure: go.Figure, known: pd.DataFrame, look: Theme) -> None:
    """Draw what is expected, dotted, from the first group that has each bin."""
    first = known.drop_duplicates("prob_low").sort_values("prob_low")
    figure.add_scatter(
        x=_bins(first),
        y=first["envelope"],
        mode="lines",
        line={"color": look.muted, "width": 2, "dash": "dot"},
        hoverinfo="skip",
    )


def add_groups(
    figure: go.Figure,
    lines: Sequence[RoundLine],
    axis: MeanAxis,
    unit: str,
    by: str | None,
    look: Theme,
) -> None:
    """Draw each group's means side by side, and its tokens in stacked bars."""
    for line in lines:
        part, x = line.rows, _bins(line.rows) + _SPREAD * line.shift
        hover = means.hover_texts(part, _names(line, by), unit)
        figure.add_scatter(x=x, customdata=hover, **_means(line, axis, look))
        without = np.flatnonzero(part["mean"].isna())
        texts = [hover[place] for place in without]
        floor = np.full(len(without), axis.low)
        means.add_undefined(figure, x[without], floor, texts, look)
        figure.add_bar(
            x=_bins(part),
            y=part["num_tokens"],
            yaxis="y2",
            width=0.7,
            marker={"color": line.color},
            customdata=hover,
            hovertemplate=means.HOVER,
        )


def _means(line: RoundLine, axis: MeanAxis, look: Theme) -> dict[str, Any]:
    return {
        "y": axis.raised(line.rows["mean"]),
        "mode": "lines+markers",
        "line": {"color": line.color, "width": 1},
        "marker": {
            "size": 8,
            "symbol": line.symbol,
            "color": means.fills(line.rows, line.color, look.paper),
            "line": {"color": line.color, "width": 1.5},
        },
        "error_y": means.intervals(line.rows, line.color),
        "hovertemplate": means.HOVER,
    }


def _names(line: RoundLine, by: str | None) -> list[str]:
    group = f"{shortened(by or 'round')} {line.name}"
    return [
        f"{group}, probability {low:g} to {high:g}"
        for low, high in zip(line.rows["prob_low"], line.rows["prob_high"], strict=True)
    ]


def add_rounds(figure: go.Figure, rounds: pd.DataFrame, unit: str, look: Theme) -> None:
    """Draw the means of rounds below, as they are and made alike."""
    is_few = few_rows(rounds)
    hover = [[_round_text(row, unit)] for row in rounds.itertuples()]
    for name, symbol, dash, color, hollow in (
        ("mean", "diamond", "dot", look.quiet, is_few | True),
        ("standardised", "circle", "solid", look.text, is_few),
    ):
        figure.add_scatter(
            x=rounds["round"],
            y=rounds[name],
            xaxis="x2",
            yaxis="y3",
            mode="lines+markers",
            line={"color": color, "width": 1, "dash": dash},
            marker={
                "size": min(7, max(4, _PLOT_WIDTH / len(rounds))),
                "symbol": symbol,
                "color": np.where(hollow, look.paper, color),
                "line": {"color": color, "width": 1.5},
            },
            customdata=hover,
            hovertemplate="%{customdata[0]}<extra></extra>",
            cliponaxis=False,
        )


def _round_text(row: Any, unit: str) -> str:  # noqa: ANN401 a row of `itertuples` has no type
    lines = (
        f"<b>round {row.round}</b>",
        f"as it is {number(row.mean)}{unit}",
        f"as if alike {number(row.standardised)}{unit}",
        f"which {row.covered:.0%} of the tokens say",
        f"{pluralize(row.num_samples, 'sample')}, {pluralize(row.num_tokens, 'token')}",
    )
    return "<br>".join(lines)


_PLOT_HEIGHT, _BOTTOM = 580, 48
# Characters of an axis title, which the panel has room for, and of a line of a head.
_AXIS, _HEAD = 46, 50
_ENVELOPE = "···· what rounding errors do, (1 - p), scaled to the first round"


def plot_conditional(
    data: Batch | pd.DataFrame,
    *,
    metric: str = ENVELOPED,
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot mean |old - rollout| log-prob by the probability tokens were sampled with.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with the columns sample, round, diff and
        rollout_log_prob.
    metric : str
        What is averaged, as in `round_summary`.
    by : str, optional
        A column of samples or rounds, `status` say: a line for each of its values, at
        most 8, in place of groups of rounds.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        What to leave out: `{"ci": False, "envelope": False}`. The envelope is that of
        |old - rollout|: other metrics have none.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If a frame lacks a column or has another pair, a metric or layer is unknown,
        the envelope is asked for and the metric has none, or `by` has more than 8
        values.
    BatchError
        If the batch has no such score.

    Notes
    -----
    How to read it: a line is a group of rounds, a place on its axis a bin of the
    rollout probability. In a healthy batch the lines fall to the right, lie on each
    other, and follow the dotted one, which is what rounding errors of logits do to a
    token of probability p: they scale with 1 - p. Lines that lie on each other say
    that later rounds are no worse at equally likely tokens, whatever their means are:
    they sample less likely ones. Lines that separate say that later rounds are
    computed differently: other context, other screenshots, other weights. A line above
    the dotted one at its right end has an error that does not care how sure the model
    is. The lowest panel sums that up: the diamonds are the means per round, the points
    are the same means as if each round had sampled what all rounds together did. Where
    the diamonds rise and the points do not, it was only the tokens.

    With `by`, lines that separate say that one rank, replica or kind of sample is
    computed differently at equally likely tokens. A metric with a sign, `diff` say,
    has a linear axis: noise lies on both sides of zero, a fault on one.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_conditional(batch).layout.yaxis.title.text
    'mean |old - rollout| log-prob [nat]'
    """
    metric = metric_name(metric)
    look, drawn = theme_of(theme), _layers(layers, metric)
    data, pair = of_pair(data, a, b)
    found = conditional(data, metric=metric, by=by)
    rounds = standardised(data, metric=metric)
    known = found[found["prob_low"].notna()]
    title = pair.named("Mismatch by {b} probability")
    if not known["mean"].notna().any():
        return empty_figure(title, _why_empty(found), look)
    lines, axis = split_lines(known, by, look), mean_axis(known, metric)
    words = [
        *key_lines(by or "round", lines),
        *([_ENVELOPE] if drawn["envelope"] else []),
        *_notes(found, known, axis),
        *left_out(data),
    ]
    height = TOP + _PLOT_HEIGHT + _BOTTOM
    figure = new_figure(title, words, look, height=height, bottom=_BOTTOM)
    if drawn["envelope"]:
        add_envelope(figure, known, look)
    add_groups(figure, lines, axis, unit_of(metric), by, look)
    means.show_intervals(figure, visible=drawn["ci"])
    add_rounds(figure, rounds, unit_of(metric), look)
    set_axes(figure, known, rounds, axis)
    label = pair.label(METRICS[metric])
    figure.layout.xaxis.title.text = pair.label(ROLLOUT_PROB)
    figure.layout.yaxis.title.text = wrapped(label, _AXIS)
    means.add_head(figure, "y2", NUM_TOKENS.label, look)
    means.add_head(figure, "y3", _round_head(label, look), look)
    return figure


def _layers(chosen: Mapping[str, bool] | None, metric: str) -> dict[str, bool]:
    """Say of each layer whether it is drawn."""
    drawn = layers_of(chosen, "ci", "envelope")
    if metric == ENVELOPED:
        return drawn
    if (chosen or {}).get("envelope"):
        raise FrameError.build(
            key="envelope",
            expected=f"metric={ENVELOPED!r}, whose noise scales with 1 - p",
            found=repr(metric),
            advice="Leave the layer out, or the metric.",
        )
    return {**drawn, "envelope": False}


def _why_empty(found: pd.DataFrame) -> str:
    num = int(found["num_tokens"].sum())
    if num:
        return f"{CROSS} {pluralize(num, 'token')}, none with a finite diff"
    return "no generated tokens: the response mask is 0"


def _notes(found: pd.DataFrame, known: pd.DataFrame, axis: MeanAxis) -> list[str]:
    lines = means.notes(known, int(known["num_nonfinite"].sum()))
    lines += raised_words(known, axis, "lower")
    without = int(found["num_tokens"].sum() - known["num_tokens"].sum())
    if without:
        lines.append(f"left out: {pluralize(without, 'token')} without a probability")
    return lines


def _round_head(label: str, look: Theme) -> str:
    key = f"{colored('◇', look.quiet)} as it is  ● as if all sampled alike"
    return f"{wrapped(label, _HEAD)}<br>{key}"
