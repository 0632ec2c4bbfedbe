"""Token probabilities of both engines, the first round beside later rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.words import count
from rounddiag.errors import FrameError
from rounddiag.figures.canvas import TOP, colored, empty_figure, new_figure
from rounddiag.figures.clouds import NUM_WORST, Clouds
from rounddiag.figures.color_bar import BOTTOM
from rounddiag.figures.labels import number
from rounddiag.figures.panel_words import cautions, heads, why_empty
from rounddiag.figures.panels import add_guide, add_heads, set_panels
from rounddiag.figures.sources import num_picked_of, pairs_of
from rounddiag.figures.theme import theme_of
from rounddiag.figures.token_marks import HOVER, NUMBERS, token_marks
from rounddiag.schema import DIFF, OLD_PROB, ROLLOUT_PROB, TOKENS
from rounddiag.stats.agreement import agreement
from rounddiag.stats.densities import densities, num_beyond
from rounddiag.stats.token_pairs import signed_log, token_bins, token_pairs

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import Theme, ThemeName
    from rounddiag.stats.densities import Bins
    from rounddiag.stats.token_pairs import Axes

# Labels of the x axis and of the y axis.
_LABELS = {
    "probability": (ROLLOUT_PROB.label, OLD_PROB.label),
    "log_prob": (TOKENS["rollout_log_prob"].label, TOKENS["old_log_prob"].label),
    "diff": (ROLLOUT_PROB.label, DIFF.label),
}
_HEIGHT = TOP + 340 + BOTTOM
# Ticks of a signed logarithm, and how many may stand on either side of zero.
_DECADES = 10.0 ** np.arange(-2, 39)
_MAX_DECADES = 5


def plot_probabilities(
    data: Batch | pd.DataFrame,
    *,
    axes: Axes = "probability",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot each token's probability by both engines, first round and later rounds.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with the columns sample, round, token,
        rollout_log_prob and old_log_prob; its text is shown if it has one.
    axes : {"probability", "log_prob", "diff"}
        Old against rollout probability; the same of log-probs, from -20 nat on; or
        old - rollout log-prob, on a scale that is logarithmic on both sides of zero,
        against rollout probability.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure
        The `customdata` of its points begins with sample, round and token.

    Raises
    ------
    FrameError
        If there are no such axes, or a frame lacks a column.

    Notes
    -----
    How to read it: the colour counts tokens, on a logarithmic scale. In a healthy batch
    both panels are the same thin band along the dotted line, which is widest at
    probabilities in the middle, and the 30 worst points lie close to it. A panel of
    later rounds that is wider, with a lower r, speaks of the context: an image that one
    engine drops, say. A band that is bent over its whole length is a temperature or a
    logit processor that one engine applies; points along the lower edge are tokens that
    training finds nearly impossible: another tokenization, a wrong mask, another
    model. With `axes="diff"` noise is a trumpet that opens towards probability 0, and a
    fault lies on one side of zero.

    References
    ----------
    Liu and Li, "When Speed Kills Stability", 2025, section 3.4.1 and figure 4.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_probabilities(batch).layout.yaxis.title.text
    'probability by the training engine'
    """
    if axes not in _LABELS:
        raise FrameError.build(
            key="axes",
            expected=f"one of {list(_LABELS)}",
            found=repr(axes),
            advice='Leave it out for "probability".',
        )
    look = theme_of(theme)
    tokens = pairs_of(data)
    pairs = token_pairs(tokens, axes)
    agreed = agreement(*(pairs[n].to_numpy() for n in ("rollout", "old", "is_later")))
    title = "Token probabilities"
    if not agreed["num"].any():
        return empty_figure(title, why_empty(agreed, "token"), look)
    ends = token_bins(pairs, axes)
    lines = _explanation(pairs, ends, look)
    lines += cautions(agreed, "token", num_picked_of(data))
    figure = new_figure(title, lines, look, height=_HEIGHT, bottom=BOTTOM)
    add_heads(figure, heads(agreed, "token", signed=axes == "diff"))
    _set_axes(figure, ends, axes, look)
    Clouds(
        cells=densities(pairs, *ends),
        marks=token_marks(data, tokens, pairs, look),
        ends=ends,
        noun="token",
        numbers=NUMBERS,
        hover=HOVER,
    ).add_to(figure, look)
    return figure


def _explanation(
    pairs: pd.DataFrame, ends: tuple[Bins, Bins], look: Theme
) -> list[str]:
    more, less = colored("▲", look.more), colored("▼", look.less)
    lines = [
        f"points: up to {NUM_WORST} tokens of each panel that differ most",
        f"{more} training likes the token more {less} less",
    ]
    num = num_beyond(pairs, *ends)
    if num:
        lines.append(f"{count(num, 'token')} beyond the axes, drawn at their edge")
    return lines


def _set_axes(
    figure: go.Figure, ends: tuple[Bins, Bins], axes: Axes, look: Theme
) -> None:
    x, y = ends
    set_panels(figure, ends, _LABELS[axes], look)
    if axes != "diff":
        add_guide(figure, (x.low, y.low), (x.high, y.high), look)
        return
    add_guide(figure, (x.low, 0), (x.high, 0), look)
    decades = _DECADES[signed_log(_DECADES) <= y.high]
    decades = decades[:: -(-len(decades) // _MAX_DECADES)]
    values = np.concatenate([-decades[::-1], [0], decades])
    figure.layout.yaxis.tickvals = signed_log(values)
    figure.layout.yaxis.ticktext = [number(value) for value in values]
