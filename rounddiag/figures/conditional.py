"""Mismatch by how likely tokens were, and rounds as if they sampled alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.checks.words import count
from rounddiag.errors import FrameError
from rounddiag.figures import means
from rounddiag.figures.canvas import TOP, colored, empty_figure, new_figure
from rounddiag.figures.conditional_axes import set_axes
from rounddiag.figures.conditional_traces import add_envelope, add_groups, add_rounds
from rounddiag.figures.labels import CROSS, wrapped
from rounddiag.figures.layers import layers_of
from rounddiag.figures.mean_axis import mean_axis, raised_words
from rounddiag.figures.picked import left_out
from rounddiag.figures.round_groups import split_lines
from rounddiag.figures.round_lines import key_lines
from rounddiag.figures.round_words import unit_of
from rounddiag.figures.sources import of_pair
from rounddiag.figures.theme import theme_of
from rounddiag.schema import METRICS, NUM_TOKENS, ROLLOUT_PROB, metric_name
from rounddiag.stats import conditional, standardised
from rounddiag.stats.conditional import ENVELOPED

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.mean_axis import MeanAxis
    from rounddiag.figures.theme import Theme, ThemeName

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
    title = "Mismatch by rollout probability"
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
    figure = new_figure(pair.named(title), words, look, height=height, bottom=_BOTTOM)
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
        return f"{CROSS} {count(num, 'token')}, none with a finite diff"
    return "no generated tokens: the response mask is 0"


def _notes(found: pd.DataFrame, known: pd.DataFrame, axis: MeanAxis) -> list[str]:
    lines = means.notes(known, int(known["num_nonfinite"].sum()))
    lines += raised_words(known, axis, "lower")
    without = int(found["num_tokens"].sum() - known["num_tokens"].sum())
    if without:
        lines.append(f"left out: {count(without, 'token')} without a probability")
    return lines


def _round_head(label: str, look: Theme) -> str:
    key = f"{colored('◇', look.quiet)} as it is  ● as if all sampled alike"
    return f"{wrapped(label, _HEAD)}<br>{key}"
