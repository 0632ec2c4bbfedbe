"""The figure of one sample, token by token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.core.divergence import get_measure
from rounddiag.core.measured import Measured
from rounddiag.figures._parts.canvas import (
    CHARACTER,
    NARROW_PLOT,
    Theme,
    ThemeName,
    colorize,
    cross,
)
from rounddiag.figures._parts.data import find_sample, get_sample_tokens, prepare
from rounddiag.figures._parts.labels import (
    BESIDE_TICKS,
    CROSS,
    count_nonfinite,
    hover_text,
    wrap,
)
from rounddiag.schema import DIFF, METRICS, POSITION, ROUND, TOKENS, ColumnSchema, Pair
from rounddiag.stats.inputs import Data
from rounddiag.wording import pluralize

# The height of the plot, with one panel, and room under it, in pixels.
_HEIGHT, _HEIGHT_OF_ONE, _BOTTOM = 372, 192, 68
# Bottom and top of both panels, as shares of the plot.
_DIFF, _LOG_PROBS_PANEL, _ALONE = (0.49, 1.0), (0.0, 0.4), (0.0, 1.0)
# What both rows of numbers under the plot are, left of them.
_ROW_NAMES = f"<b>{ROUND.name}</b><br>{POSITION.name}"
# Characters of an axis title that a panel has room for.
_AXIS = 34
_GAP = 8  # pixels between the labels of ticks
# All stems together fit a figure of 400 pixels; the widest stem.
_STEMS_WIDTH, _MAX_STEM = 250, 6
# How far a line reaches beyond the first and the last token of a round.
_REACH = 0.4
# The width of an observation, and of all of them, as shares of all tokens.
_OBSERVATION, _ALL_OBSERVATIONS = 0.012, 0.5
# With this many tokens the JSON of a figure stays under 500 kB, and two tokens share a
# pixel of the widest figure.
_MAX_TOKENS = 4_000
# Two or three tokens of each stretch are kept, and more at the start of a round.
_STRETCHES = 1_300
_MAX_BANDS = 1_000
_LOG_PROBS = ["old_log_prob", "rollout_log_prob"]
_KEYS = ["round", "token", "position"]


@dataclass(frozen=True, kw_only=True)
class TokenScene:
    """One sample's tokens, and how they are drawn.

    Attributes
    ----------
    tokens: As `get_sample_tokens` gives them; at least one.
    values: What the upper panel shows of each token.
    metric: The metric that they are of.
    has_log_probs: Whether they are drawn, in a panel of their own.
    pair: The scores, as labels name them.
    """

    tokens: pd.DataFrame
    values: Array
    metric: str
    has_log_probs: bool
    pair: Pair
    theme: Theme

    @cached_property
    def starts(self) -> Array:
        """The index of the first token of each round."""
        return np.flatnonzero(np.diff(self.tokens["round"], prepend=-1))

    @cached_property
    def place(self) -> Array:
        """Where tokens are on the x axis: side by side, with a gap between rounds."""
        share = min(_OBSERVATION, _ALL_OBSERVATIONS / len(self.starts))
        gap = max(1, round(share * len(self.tokens)))
        size = np.diff(self.starts, append=len(self.tokens))
        gaps = gap * np.repeat(np.arange(len(size)), size)
        return np.arange(len(self.tokens)) + gaps

    @cached_property
    def drawn_tokens(self) -> pd.DataFrame:
        """The tokens that are drawn: all, or the extremes of many."""
        return self.tokens.iloc[_thin(self.tokens, self.values)]

    @property
    def drawn_values(self) -> Array:
        """The values of the drawn tokens."""
        return self.values[self.drawn_tokens.index]

    @property
    def column(self) -> ColumnSchema:
        """What the upper panel shows, of one token."""
        source = METRICS[self.metric].source_column
        return (
            TOKENS[source]
            if METRICS[self.metric].of != "pair"
            else (DIFF if self.metric == "diff" else METRICS[self.metric])
        )

    @property
    def x(self) -> Array:
        """Where the drawn tokens are on the x axis."""
        return self.place[self.drawn_tokens.index]


def plot_trajectory(
    data: Data,
    *,
    sample: int | str,
    metric: str = "diff",
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the diff and both log-probs of one sample over its generated tokens.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame with the columns sample, round, token, diff,
        position and, unless left out, rollout_log_prob and old_log_prob; its text is
        shown if it has one.
    sample : int or str
        Which sample: its number, from 0, or its id.
    metric : str
        What the upper panel shows, as of `round_summary`. The log-probs of an engine
        that the batch lacks are left out of the lower one.
    layers : mapping, optional
        `{"log_probs": False}` leaves out the lower panel.
    a, b, theme : as everywhere, see `help(rounddiag)`

    Returns
    -------
    plotly.graph_objects.Figure
        `layout.meta` says where on the x axis the first token of each round is:
        `rounds` and `starts`; the others of the round follow, one apart.

    Notes
    -----
    How to read it: in a healthy sample the upper panel has short stems, blue and orange
    alike, in every shaded round, and the two lines of the lower panel lie on each
    other. One colour throughout is an offset (a temperature applied by one engine
    only); stems that grow from one round on, a context that differs from there;
    single tall stems, tokens that one engine finds nearly impossible, often where the
    lower lines dip; a stem at the start of each round, a template. Observations
    between rounds are collapsed to a gap; ticks give round and real position. Of more
    than 4,000 tokens those with the extremes of diff are drawn, and the figure says how
    many; a token frame of some rounds has them all.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_trajectory(batch, sample=5).layout.yaxis.title.text
    'old − rollout log-prob [nat]'
    """
    known = ("log_probs",)
    inputs = prepare(data, a, b, metric=metric, layers=layers, known=known, theme=theme)
    wants_log_probs = inputs.layers["log_probs"]
    sample, measure = find_sample(inputs.data, sample), get_measure(inputs.metric)
    tokens = get_sample_tokens(inputs.data, sample, measure, log_probs=wants_log_probs)
    has_log_probs = wants_log_probs and not {*_LOG_PROBS}.isdisjoint(tokens)
    title = f"Sample {sample}, token by token"
    if tokens.empty:
        return inputs.empty_figure(title)
    scene = TokenScene(
        tokens=tokens,
        values=tokens["diff"].to_numpy()
        if inputs.metric == "diff"  # which may be infinite
        else Measured.of(tokens).values(measure),
        metric=inputs.metric,
        has_log_probs=has_log_probs,
        pair=inputs.pair,
        theme=inputs.theme,
    )
    plot = _HEIGHT if has_log_probs else _HEIGHT_OF_ONE
    figure = inputs.new_figure(title, [*_explanation(scene)], plot=plot, bottom=_BOTTOM)
    _add_bands(figure, scene)
    _add_diffs(figure, scene)
    if has_log_probs:
        _add_log_probs(figure, scene)
    _add_hover(figure, scene)
    _set_axes(figure, scene)
    figure.add_annotation(text=_ROW_NAMES, align="right", **BESIDE_TICKS)
    rounds = tokens["round"].iloc[scene.starts].tolist()
    starts = scene.place[scene.starts].tolist()
    figure.layout.meta = {"rounds": rounds, "starts": starts}
    return figure


def _explanation(scene: TokenScene) -> Iterator[str]:
    tokens, theme, pair = scene.tokens, scene.theme, scene.pair
    if scene.metric == "diff":
        more, less = colorize("▲", theme.more), colorize("▼", theme.less)
        yield f"{more} {pair.fill('token more likely in {training}')} {less} less"
    if scene.has_log_probs:
        for sign, color, name in (
            ("▬", theme.quiet, "rollout_log_prob"),
            ("─", theme.text, "old_log_prob"),
        ):
            if name not in tokens:
                continue
            is_none = not np.isfinite(tokens[name]).any()
            note = ": none is finite" if is_none else ""
            yield f"{colorize(sign, color)} {pair.fill(TOKENS[name].meaning)}{note}"
    undefined = int((~np.isfinite(scene.values)).sum())
    if undefined:
        yield f"{CROSS} {count_nonfinite(undefined)}"
    if len(scene.drawn_tokens) < len(tokens):
        share = f"{len(scene.drawn_tokens):,} of {pluralize(len(tokens), 'token')}"
        yield f"drawn: {share}, extremes of {scene.metric} kept"
    if len(scene.starts) > _MAX_BANDS:
        yield f"{pluralize(len(scene.starts), 'round')}: too many to shade"


def _thin(tokens: pd.DataFrame, diff: Array) -> Array:
    """Choose which rows of a long trajectory are drawn.

    Above 4,000 tokens, 1,300 stretches keep their highest, lowest and first non-finite
    diff; every round of up to 1,000 keeps its first and last token.
    """
    if len(tokens) <= _MAX_TOKENS:
        return np.arange(len(tokens))
    undefined = ~np.isfinite(diff)
    stretch = np.arange(len(diff)) * _STRETCHES // len(diff)
    last = np.flatnonzero(np.diff(stretch, append=_STRETCHES))
    changes = np.flatnonzero(np.diff(tokens["round"])) + 1
    chosen = [
        np.lexsort((np.where(undefined, -np.inf, diff), stretch))[last],
        np.lexsort((np.where(undefined, -np.inf, -diff), stretch))[last],
        np.flatnonzero(undefined)[np.unique(stretch[undefined], return_index=True)[1]],
        np.array([0, len(diff) - 1]),
    ]
    if len(changes) < _MAX_BANDS:
        chosen += [changes, changes - 1]
    return np.unique(np.concatenate(chosen))


def _add_bands(figure: go.Figure, scene: TokenScene) -> None:
    """Shade every round; the white gaps between them are observations.

    Bands of more than 1,000 rounds would be thinner than a pixel.
    """
    if len(scene.starts) > _MAX_BANDS:
        return
    stops = np.append(scene.starts[1:], len(scene.place))
    ends = zip(scene.place[scene.starts], scene.place[stops - 1], strict=True)
    # At once: plotly copies all shapes whenever one is added.
    figure.layout.shapes += tuple(
        {
            "type": "rect",
            "layer": "below",
            "x0": first - 0.5,
            "x1": last + 0.5,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "fillcolor": scene.theme.shade,
            "line": {"width": 0},
        }
        for first, last in ends
    )


def _add_diffs(figure: go.Figure, scene: TokenScene) -> None:
    """Draw a stem for each value, and a cross for each that is not finite."""
    x, diff = scene.x, scene.drawn_values
    finite = np.isfinite(diff)
    width = min(_MAX_STEM, max(1, _STEMS_WIDTH / len(x)))
    theme, is_diff = scene.theme, scene.metric == "diff"
    colors = (theme.more, theme.less) if is_diff else (theme.text, theme.text)
    for is_sign, color in zip((diff > 0, diff < 0), colors, strict=True):
        drawn = is_sign & finite
        _add_stems(figure, x[drawn], diff[drawn], {"color": color, "width": width})
    figure.add_scatter(
        x=x[~finite],
        y=np.zeros((~finite).sum(), dtype=np.float32),
        mode="markers",
        marker=cross(scene.theme),
        hoverinfo="skip",
    )


def _add_stems(figure: go.Figure, x: Array, diff: Array, line: dict[str, Any]) -> None:
    """Draw lines from zero as one path: a bar for each would be slow."""
    ends = np.zeros((len(diff), 3), dtype=np.float32)
    ends[:, 1] = diff
    ends[:, 2] = np.nan
    figure.add_scatter(
        x=np.repeat(x, 3), y=ends.ravel(), mode="lines", line=line, hoverinfo="skip"
    )


def _add_log_probs(figure: go.Figure, scene: TokenScene) -> None:
    pens = (scene.theme.text, 1), (scene.theme.quiet, 5)
    for name, pen in reversed([*zip(_LOG_PROBS, pens, strict=True)]):
        if name in scene.drawn_tokens:
            _add_log_prob(figure, scene, name, pen)


def _add_log_prob(
    figure: go.Figure, scene: TokenScene, name: str, pen: tuple[str, int]
) -> None:
    x, values = scene.x, scene.drawn_tokens[name].to_numpy()
    finite = np.flatnonzero(np.isfinite(values))
    rounds = scene.drawn_tokens["round"].to_numpy()[finite]
    breaks = np.flatnonzero((np.diff(finite) > 1) | (np.diff(rounds) != 0)) + 1
    starts = np.append(0, breaks) if len(finite) else breaks
    ends = list(zip(starts, np.append(starts[1:], len(finite)), strict=False))
    figure.add_scatter(
        x=_strokes(x[finite].astype(np.float32), ends, reach=_REACH),
        y=_strokes(values[finite], ends, reach=0),
        yaxis="y2",
        mode="lines",
        line=dict(zip(("color", "width"), pen, strict=True)),
        hoverinfo="skip",
    )


def _strokes(values: Array, ends: list[tuple[int, int]], *, reach: float) -> Array:
    """Separate strokes by NaN, and lengthen them so that a lone token shows.

    Examples
    --------
    >>> _strokes(np.array([1.0, 2.0, 5.0]), [(0, 2), (2, 3)], reach=0.5)
    array([0.5, 1. , 2. , 2.5, nan, 4.5, 5. , 5.5, nan])
    """
    parts = [values[:0]]
    for start, stop in ends:
        parts.append(values[start : start + 1] - reach)
        parts.append(values[start:stop])
        parts.append(values[stop - 1 : stop] + reach)
        parts.append(np.full(1, np.nan, dtype=values.dtype))
    return np.concatenate(parts)


def _add_hover(figure: go.Figure, scene: TokenScene) -> None:
    tokens = scene.drawn_tokens
    scores = [name for name in _LOG_PROBS if name in tokens]
    y = scene.drawn_values
    has_text = "text" in tokens
    figure.add_scatter(
        x=scene.x,
        y=np.where(np.isfinite(y), y, 0),
        yaxis="y",
        mode="lines",
        line={"width": 0},
        text=[hover_text(text) for text in tokens["text"]] if has_text else None,
        customdata=np.column_stack(
            [scene.drawn_values, tokens[[*scores, *_KEYS]]]
        ).astype(np.float32),
        hovertemplate=_hover(scene, scores, has_text=has_text),
    )


def _hover(scene: TokenScene, columns: list[str], *, has_text: bool) -> str:
    pair, unit = scene.pair, METRICS[scene.metric].unit
    scores = dict(zip(_LOG_PROBS, (pair.a, pair.b), strict=True))
    log_probs, keys = (
        ", ".join(
            f"{scores.get(name, name)} %{{customdata[{place}]{digits}}}"
            for place, name in enumerate(names, start)
        )
        for names, start, digits in (
            (columns, 1, ":.3~g"),
            (_KEYS, len(columns) + 1, ""),
        )
    )
    head = ["<b>%{text}</b>"] if has_text else []
    value = f"{scene.metric} %{{customdata[0]:.3~g}} {unit}".rstrip()
    lines = [*head, value, log_probs, keys]
    return "<br>".join(filter(None, lines)) + "<extra></extra>"


def _set_axes(figure: go.Figure, scene: TokenScene) -> None:
    ticks, labels = _ticks(scene)
    figure.update_layout(
        hovermode="x",
        hoversubplots="axis",
        hoverdistance=-1,
        xaxis={
            "title": {"text": f"{ROUND.label}, and {POSITION.label}"},
            "range": [scene.place[0] - 1, scene.place[-1] + 1],
            "tickvals": ticks,
            "ticktext": labels,
            "tickangle": 0,
            "anchor": "y2" if scene.has_log_probs else "y",
        },
    )
    figure.layout.yaxis = {
        "title": {"text": wrap(scene.pair.label(scene.column), _AXIS)},
        "domain": _DIFF if scene.has_log_probs else _ALONE,
        "zeroline": True,
    }
    if scene.has_log_probs:
        title = {"text": "log-prob [nat]"}
        figure.layout.yaxis2 = {"title": title, "domain": _LOG_PROBS_PANEL}


def _ticks(scene: TokenScene) -> tuple[list[int], list[str]]:
    """Label as many rounds as fit without touching, with their positions if these do.

    A position takes more room than the number of its round, which stands without it
    where rounds are short.
    """
    numbered = _far_apart(scene, scene.starts, "round")
    located = {*_far_apart(scene, numbered, "position")}
    labels = [
        f"<b>{scene.tokens['round'].iloc[start]}</b>"
        + (f"<br>{scene.tokens['position'].iloc[start]}" if start in located else "")
        for start in numbered
    ]
    return scene.place[numbered].tolist(), labels


def _far_apart(scene: TokenScene, starts: Iterable[int], name: str) -> list[int]:
    """Choose starts of rounds between which the values of a column fit as labels."""
    place, longest = scene.place, len(str(scene.tokens[name].max()))
    share = (longest * CHARACTER + _GAP) / NARROW_PLOT
    apart = share * (place[-1] - place[0] + 2)
    chosen: list[int] = []
    for start in starts:
        if not chosen or place[start] - place[chosen[-1]] >= apart:
            chosen.append(start)
    return chosen
