"""Token probabilities of both engines, the first round beside later rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.batch import Batch
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import colored, empty_figure, theme_of
from rounddiag.figures._parts.data import layers_of, num_picked_of, of_pair, pairs_of
from rounddiag.figures._parts.density import LAYERS, NUM_WORST, Clouds
from rounddiag.figures._parts.labels import hover_text, number
from rounddiag.figures._parts.panels import cautions, panel_names, panels_of, why_empty
from rounddiag.schema import DIFF, OLD_PROB, ROLLOUT_PROB, TOKENS
from rounddiag.stats.agreement import (
    agreement,
    densities,
    farthest,
    num_beyond,
    signed_log,
    token_bins,
    token_pairs,
)
from rounddiag.stats.grouping import split_by, split_first
from rounddiag.text import pieces
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag._typing import Array
    from rounddiag.figures._parts.canvas import Theme, ThemeName
    from rounddiag.schema import Pair
    from rounddiag.stats.agreement import Axes, Bins


NUMBERS = ["sample", "round", "token", "old", "rollout", "difference"]
HOVER = (
    "sample %{{customdata[0]}}, round %{{customdata[1]}}, token %{{customdata[2]}}"
    "<br>{a} %{{customdata[3]:.3g}}, {b} %{{customdata[4]:.3g}}"
    "<br>difference %{{customdata[5]:.3g}}<extra></extra>"
)
# Tokens on either side with which one may share a character.
_NEIGHBOURS = 8


def token_marks(
    data: Batch | pd.DataFrame, tokens: pd.DataFrame, pairs: pd.DataFrame, look: Theme
) -> pd.DataFrame:
    """Choose the worst tokens of each panel.

    Parameters
    ----------
    data : Batch or DataFrame
        Where their text is, if there is any.
    tokens, pairs : DataFrame
        As `sources.pairs_of` and `stats.token_pairs` give them, and each one's
        `panel`.
    look : Theme

    Returns
    -------
    DataFrame
        With `panel`, `x`, `y`, `color`, the columns `NUMBERS`, and `text` if there
        is any.
    """
    difference = (pairs["old"] - pairs["rollout"]).to_numpy()
    rows = farthest(np.abs(difference), pairs["panel"].to_numpy(), NUM_WORST)
    keys = tokens[["sample", "round", "token"]].iloc[rows].reset_index(drop=True)
    marks = pairs.iloc[rows].reset_index(drop=True).join(keys)
    marks["difference"] = difference[rows]
    marks["color"] = np.where(difference[rows] > 0, look.more, look.less)
    if isinstance(data, Batch) and data.is_redacted:
        return marks
    if isinstance(data, Batch):
        texts = _decoded(data.tokenizer, tokens, rows)
    elif "text" in data:
        texts = data["text"].iloc[rows].tolist()
    else:
        return marks
    return marks.assign(text=[hover_text(text) for text in texts])


def _decoded(tokenizer: object, tokens: pd.DataFrame, rows: Array) -> list[str]:
    """Decode a few tokens, each among its neighbours in the round."""
    token, ids = tokens["token"].to_numpy(), tokens["token_id"].to_numpy()
    texts = []
    for row in rows.tolist():
        first = row - min(int(token[row]), _NEIGHBOURS)
        around = slice(first, row + _NEIGHBOURS)
        starts = np.flatnonzero(token[around] == 0)
        texts.append(pieces(ids[around], tokenizer, starts=starts)[row - first])
    return texts


# Labels of the x axis and of the y axis.
_LABELS = {
    "probability": (ROLLOUT_PROB, OLD_PROB),
    "log_prob": (TOKENS["rollout_log_prob"], TOKENS["old_log_prob"]),
    "diff": (ROLLOUT_PROB, DIFF),
}
# Ticks of a signed logarithm, and how many may stand on either side of zero.
_DECADES = 10.0 ** np.arange(-2, 39)
_MAX_DECADES = 5


def plot_probabilities(
    data: Batch | pd.DataFrame,
    *,
    axes: Axes = "probability",
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
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
        The `customdata` of its points begins with sample, round and token.

    Raises
    ------
    FrameError
        If there are no such axes, a frame lacks a column or has another pair, a layer
        is unknown, or `by` has more than 8 values.
    BatchError
        If the batch has no such score.

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
    fault lies on one side of zero. With `by`, the panels are those of one rank,
    replica or number of screenshots each (`num_images`).

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
    _check(axes)
    look, drawn = theme_of(theme), layers_of(layers, *LAYERS)
    data, pair = of_pair(data, a, b)
    tokens = pairs_of(data)
    split = split_first(tokens) if by is None else split_by(data, tokens, by)
    names = panel_names(by, split.values)
    pairs = token_pairs(tokens, axes).assign(panel=split.codes)
    values = (pairs[name].to_numpy() for name in ("rollout", "old", "panel"))
    agreed = agreement(*values, num_panels=len(names))
    title = "Token probabilities"
    if not agreed["num"].any():
        return empty_figure(title, why_empty(agreed, "token"), look)
    panels = panels_of(agreed, names, "token", signed=axes == "diff")
    ends = token_bins(pairs, axes, panels.num_bins)
    lines = _explanation(pairs, ends, drawn, pair, look)
    lines += cautions(agreed, "token", num_picked_of(data))
    clouds = Clouds(
        panels=panels,
        cells=densities(pairs, *ends),
        marks=token_marks(data, tokens, pairs, look),
        ends=ends,
        guide=(0, 0) if axes == "diff" else (ends[1].low, ends[1].high),
        noun="token",
        numbers=NUMBERS,
        hover=pair.named(HOVER),
        layers=drawn,
    )
    x, y = _LABELS[axes]
    figure = clouds.figure(title, lines, (pair.label(x), pair.label(y)), look)
    if axes == "diff":
        _set_ticks(figure, ends[1])
    return figure


def _check(axes: str) -> None:
    if axes not in _LABELS:
        raise FrameError.build(
            key="axes",
            expected=f"one of {list(_LABELS)}",
            found=repr(axes),
            advice='Leave it out for "probability".',
        )


def _explanation(
    pairs: pd.DataFrame,
    ends: tuple[Bins, Bins],
    drawn: Mapping[str, bool],
    pair: Pair,
    look: Theme,
) -> list[str]:
    more, less = colored("▲", look.more), colored("▼", look.less)
    lines = [
        f"points: up to {NUM_WORST} tokens of each panel that differ most",
        f"{more} {pair.named('{training} likes')} the token more {less} less",
    ]
    lines = lines if drawn["points"] else []
    num = num_beyond(pairs, *ends)
    if num:
        lines.append(f"{pluralize(num, 'token')} beyond the axes, drawn at their edge")
    return lines


def _set_ticks(figure: go.Figure, y: Bins) -> None:
    """Mark powers of ten on the signed logarithm of every panel."""
    decades = _DECADES[signed_log(_DECADES) <= y.high]
    decades = decades[:: -(-len(decades) // _MAX_DECADES)]
    values = np.concatenate([-decades[::-1], [0], decades])
    figure.update_yaxes(
        tickvals=signed_log(values), ticktext=[number(value) for value in values]
    )
