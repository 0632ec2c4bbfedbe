"""The figure of token probabilities by both engines, first and later rounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.core.measured import Measured
from rounddiag.errors import require_one_of
from rounddiag.figures._parts.canvas import Theme, ThemeName, colorize
from rounddiag.figures._parts.clouds import (
    NUM_BINS,
    NUM_WORST,
    Clouds,
    build_panels,
    explain_left_out,
    name_panels,
    why_empty,
)
from rounddiag.figures._parts.data import (
    PlotInputs,
    note_unknown_rounds,
    prepare,
    without_layers,
)
from rounddiag.figures._parts.labels import hover_text
from rounddiag.schema import OLD_PROB, ROLLOUT_PROB, TOKENS
from rounddiag.stats.agreement import (
    Axes,
    Bins,
    agreement,
    densities,
    farthest,
    num_beyond,
    token_bins,
    token_pairs,
)
from rounddiag.stats.grouping import split_by, split_first
from rounddiag.stats.inputs import Data
from rounddiag.text import pieces
from rounddiag.wording import pluralize

_LOG_PROBS = ("rollout_log_prob", "old_log_prob")
_NUMBERS = ["sample", "round", "token", "y", "x", "difference"]
_HOVER = (
    "sample %{{customdata[0]}}, round %{{customdata[1]}}, token %{{customdata[2]}}"
    "<br>{a} %{{customdata[3]:.3g}}, {b} %{{customdata[4]:.3g}}"
    "<br>difference %{{customdata[5]:.3g}}<extra></extra>"
)
# Tokens on either side with which one may share a character.
_NEIGHBOURS = 8
_TITLE = "Token probabilities"
# Labels of the x axis and of the y axis.
_LABELS = {
    "probability": (ROLLOUT_PROB, OLD_PROB),
    "log_prob": (TOKENS["rollout_log_prob"], TOKENS["old_log_prob"]),
}


@without_layers
def plot_probabilities(
    data: Data,
    *,
    axes: Axes = "probability",
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot each token's probability by both engines, first round and later rounds.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame with the columns sample, round, token,
        rollout_log_prob and old_log_prob; its text is shown if it has one.
    axes : {"probability", "log_prob"}
        Old against rollout probability, or log-prob, from -20 nat on.
    by : str, optional
        A column of samples or rounds, such as `status`: a panel for each of its values,
        at most 8, in place of first and later rounds.
    a, b, theme : as everywhere, see `help(rounddiag)`

    Returns
    -------
    plotly.graph_objects.Figure
        The `customdata` of its points begins with sample, round and token.

    Notes
    -----
    How to read it: the colour counts tokens, on a logarithmic scale. In a healthy batch
    both panels are the same thin band along the dotted line, which is widest at
    probabilities in the middle, and the 30 worst points lie close to it. A panel of
    later rounds that is wider, with a lower r, points to the context: an image that one
    engine drops, for example. A band that is bent over its whole length is a
    temperature or a logit processor that one engine applies; points along the lower
    edge are tokens that training finds nearly impossible: another tokenization, a wrong
    mask, another model. With `by`, the panels are those
    of one rank, replica or number of screenshots each (`num_images`).

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
    require_one_of(axes, _LABELS, key="axes", advice='Leave it out for "probability".')
    inputs = prepare(data, a, b, theme=theme)
    tokens = _get_tokens(inputs.data)
    split = split_first(tokens) if by is None else split_by(inputs.data, by)
    names = name_panels(by, split.values)
    pairs = token_pairs(tokens, axes).assign(panel=split.codes)
    values = (pairs[name].to_numpy() for name in ("x", "y", "panel"))
    agreed = agreement(*values, num_panels=len(names))
    if not agreed["num"].any():
        return inputs.empty_figure(_TITLE, why_empty(agreed))
    panels = build_panels(agreed, names)
    bins = token_bins(pairs, axes, NUM_BINS)
    clouds = Clouds(
        panels=panels,
        cells=densities(pairs, bins),
        marks=_mark_worst(inputs.data, tokens, pairs, inputs.theme),
        bins=bins,
        numbers=_NUMBERS,
        hover=inputs.pair.fill(_HOVER),
    )
    captions = note_unknown_rounds(inputs.data) + _explanation(pairs, bins, inputs)
    captions += explain_left_out(agreed)
    x, y = (inputs.pair.label(column) for column in _LABELS[axes])
    return clouds.draw(_TITLE, captions, (x, y), inputs.theme)


def _get_tokens(data: Measured) -> pd.DataFrame:
    has_ids = data.batch is not None and not data.batch.lacks("ids")
    token_id = ("token_id",) if has_ids else ()
    return data.tokens(*TOKENS.keys, *_LOG_PROBS, *token_id)


def _mark_worst(
    data: Measured, tokens: pd.DataFrame, pairs: pd.DataFrame, theme: Theme
) -> pd.DataFrame:
    difference = (pairs["y"] - pairs["x"]).to_numpy()
    rows = farthest(np.abs(difference), pairs["panel"].to_numpy(), NUM_WORST)
    keys = tokens[["sample", "round", "token"]].iloc[rows].reset_index(drop=True)
    marks = pairs.iloc[rows].reset_index(drop=True).join(keys)
    marks["difference"] = difference[rows]
    marks["color"] = np.where(difference[rows] > 0, theme.more, theme.less)
    if data.batch is not None and data.batch.lacks("ids"):
        return marks
    if data.batch is not None:
        texts = _decode(data.batch.tokenizer, tokens, rows)
    elif "text" in tokens:
        texts = tokens["text"].iloc[rows].tolist()
    else:
        return marks
    return marks.assign(text=[hover_text(text) for text in texts])


def _decode(tokenizer: object, tokens: pd.DataFrame, rows: Array) -> list[str]:
    """Decode a few tokens, each among its neighbours in the round."""
    token, ids = tokens["token"].to_numpy(), tokens["token_id"].to_numpy()
    texts = []
    for row in rows.tolist():
        first = row - min(int(token[row]), _NEIGHBOURS)
        around = slice(first, row + _NEIGHBOURS)
        starts = np.flatnonzero(token[around] == 0)
        texts.append(pieces(ids[around], tokenizer, starts=starts)[row - first])
    return texts


def _explanation(pairs: pd.DataFrame, bins: Bins, inputs: PlotInputs) -> list[str]:
    more, less = colorize("▲", inputs.theme.more), colorize("▼", inputs.theme.less)
    lines = [
        f"points: up to {NUM_WORST} tokens of each panel that differ most",
        f"{more} {inputs.pair.fill('token more likely in {training}')} {less} less",
    ]
    count = num_beyond(pairs, bins)
    if count:
        size = pluralize(count, "token")
        lines.append(f"{size} beyond the axes, drawn at their edge")
    return lines
