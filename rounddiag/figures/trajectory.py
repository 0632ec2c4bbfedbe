"""One sample, token by token: where in its rounds the engines disagree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import (
    colored,
    cross,
    empty_figure,
    new_figure,
    theme_of,
)
from rounddiag.figures._parts.data import layers_of, of_pair, trajectory_of
from rounddiag.figures._parts.labels import CROSS, hover_text, wrapped
from rounddiag.schema import DIFF, POSITION, ROUND, TOKENS
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.figures._parts.canvas import Theme, ThemeName
    from rounddiag.schema import Pair


# With so many the JSON of a trajectory stays under 500 kB, and two tokens share a pixel
# of the widest figure.
_MAX_TOKENS = 4_000
# Two or three tokens are kept of each, and some where rounds begin.
_STRETCHES = 1_300


def thinned(tokens: pd.DataFrame) -> Array:
    """Choose which rows of a long trajectory are drawn.

    Up to 4,000 tokens all are. Above, the trajectory is divided into 1,300 stretches
    and the tokens with the highest, the lowest and a non-finite diff of each are kept,
    with the first and the last token of every round.

    Parameters
    ----------
    tokens : DataFrame
        With the columns round and diff, in order of position.

    Returns
    -------
    array of int
        Indices of rows, ascending.
    """
    if len(tokens) <= _MAX_TOKENS:
        return np.arange(len(tokens))
    diff = tokens["diff"].to_numpy()
    undefined = ~np.isfinite(diff)
    stretch = np.arange(len(diff)) * _STRETCHES // len(diff)
    last = np.flatnonzero(np.diff(stretch, append=_STRETCHES))
    changes = np.flatnonzero(np.diff(tokens["round"])) + 1
    chosen = [
        np.lexsort((np.where(undefined, -np.inf, diff), stretch))[last],
        np.lexsort((np.where(undefined, -np.inf, -diff), stretch))[last],
        np.flatnonzero(undefined)[_firsts(stretch[undefined])],
        np.array([0, *changes, *(changes - 1), len(diff) - 1]),
    ]
    return np.unique(np.concatenate(chosen))


def _firsts(ascending: Array) -> Array:
    """Return where each value is first found."""
    return np.unique(ascending, return_index=True)[1]


# Width of the gap that stands for an observation, and of all, as shares of all tokens.
_GAP, _ALL_GAPS = 0.012, 0.5


@dataclass(frozen=True, kw_only=True)
class TokenScene:
    """One sample's tokens, the parts that are drawn of them, and how.

    Attributes
    ----------
    tokens : DataFrame
        As `sources.trajectory_of` gives them; at least one.
    layers : mapping of str to bool
        Which of `diff`, `log_probs` and `bands` are drawn.
    pair : Pair
        The scores, as labels name them.
    look : Theme
    """

    tokens: pd.DataFrame
    layers: Mapping[str, bool]
    pair: Pair
    look: Theme

    @cached_property
    def starts(self) -> Array:
        """The index of the first token of each round."""
        return np.flatnonzero(np.diff(self.tokens["round"], prepend=-1))

    @cached_property
    def place(self) -> Array:
        """Where tokens stand: side by side, with a gap between rounds."""
        share = min(_GAP, _ALL_GAPS / len(self.starts))
        gap = max(1, round(share * len(self.tokens)))
        size = np.diff(self.starts, append=len(self.tokens))
        gaps = gap * np.repeat(np.arange(len(size)), size)
        found: Array = np.arange(len(self.tokens)) + gaps
        return found

    @cached_property
    def drawn(self) -> pd.DataFrame:
        """The tokens that are drawn: all of few, those that stand out of many."""
        return self.tokens.iloc[thinned(self.tokens)]

    @property
    def x(self) -> Array:
        """Where those stand."""
        found: Array = self.place[self.drawn.index]
        return found


# Bottom and top of both panels, as shares of the plot.
_DIFF, _LOG_PROBS_TOKEN_AXES, _ALONE = (0.49, 1.0), (0.0, 0.4), (0.0, 1.0)
# Characters of an axis title that a panel has room for.
_AXIS = 34
# Ticks must not touch in a figure of 400 pixels.
_PLOT_WIDTH_TOKEN_AXES = 300
# Pixels per character of a tick label, and between labels.
_CHARACTER, _BETWEEN = 6.5, 8


def set_axes(figure: go.Figure, scene: TokenScene) -> None:
    """Name the axes, mark rounds, and share the plot between the panels drawn."""
    has_diff, has_log_probs = scene.layers["diff"], scene.layers["log_probs"]
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
            "anchor": "y2" if has_log_probs else "y",
        },
    )
    if has_diff:
        figure.layout.yaxis = {
            "title": {"text": wrapped(scene.pair.label(DIFF), _AXIS)},
            "domain": _DIFF if has_log_probs else _ALONE,
            "zeroline": True,
        }
    if has_log_probs:
        figure.layout.yaxis2 = {
            "title": {"text": "log-prob [nat]"},
            "domain": _LOG_PROBS_TOKEN_AXES if has_diff else _ALONE,
        }


def _ticks(scene: TokenScene) -> tuple[list[int], list[str]]:
    """Label the start of as many rounds as fit without touching."""
    longest = len(str(scene.tokens["position"].max()))
    share = (longest * _CHARACTER + _BETWEEN) / _PLOT_WIDTH_TOKEN_AXES
    place = scene.place
    apart = share * (place[-1] - place[0] + 2)
    chosen: list[int] = []
    for start in scene.starts:
        if not chosen or place[start] - place[chosen[-1]] >= apart:
            chosen.append(start)
    rows = scene.tokens.iloc[chosen]
    pairs = zip(rows["round"], rows["position"], strict=True)
    return place[chosen].tolist(), [f"<b>{round_}</b><br>{at}" for round_, at in pairs]


# Stems are as wide as a figure of 400 pixels has room for.
_PLOT_WIDTH_TOKEN_TRACES, _MAX_STEM = 250, 6
# How far a line reaches past the first and the last token of a round.
_REACH = 0.4

_LOG_PROBS_TOKEN_TRACES = ["old_log_prob", "rollout_log_prob"]
_KEYS = ["round", "token", "position"]


def add_bands(figure: go.Figure, scene: TokenScene) -> None:
    """Shade every round; what stays white between two is an observation."""
    stops = np.append(scene.starts[1:], len(scene.place))
    ends = zip(scene.place[scene.starts], scene.place[stops - 1], strict=True)
    # At once: each shape that is added alone costs plotly a copy of all before.
    figure.layout.shapes = [
        {
            "type": "rect",
            "layer": "below",
            "x0": first - 0.5,
            "x1": last + 0.5,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "fillcolor": scene.look.shade,
            "line": {"width": 0},
        }
        for first, last in ends
    ]


def add_diffs(figure: go.Figure, scene: TokenScene) -> None:
    """Draw a stem for each diff, and a cross for those that are not finite."""
    x, diff = scene.x, scene.drawn["diff"].to_numpy()
    finite = np.isfinite(diff)
    width = min(_MAX_STEM, max(1, _PLOT_WIDTH_TOKEN_TRACES / len(x)))
    for shown, color in ((diff > 0, scene.look.more), (diff < 0, scene.look.less)):
        drawn = shown & finite
        _add_stems(figure, x[drawn], diff[drawn], {"color": color, "width": width})
    figure.add_scatter(
        x=x[~finite],
        y=np.zeros((~finite).sum(), dtype=np.float32),
        mode="markers",
        marker=cross(scene.look),
        hoverinfo="skip",
    )


def add_log_probs(figure: go.Figure, scene: TokenScene) -> None:
    """Draw the log-probs by either score, the sampler's as a broad line below."""
    pens = (scene.look.text, 1), (scene.look.quiet, 5)
    for name, pen in reversed([*zip(_LOG_PROBS_TOKEN_TRACES, pens, strict=True)]):
        _add_log_prob(figure, scene, name, pen)


# In the order in which they are drawn.
LAYERS = {"bands": add_bands, "diff": add_diffs, "log_probs": add_log_probs}


def _add_stems(figure: go.Figure, x: Array, diff: Array, line: dict[str, Any]) -> None:
    """Draw lines from zero as one path: bars would be one each, and slow."""
    ends = np.zeros((len(diff), 3), dtype=np.float32)
    ends[:, 1] = diff
    ends[:, 2] = np.nan
    figure.add_scatter(
        x=np.repeat(x, 3),
        y=ends.ravel(),
        mode="lines",
        line=line,
        hoverinfo="skip",
    )


def _add_log_prob(
    figure: go.Figure, scene: TokenScene, name: str, pen: tuple[str, int]
) -> None:
    x, values = scene.x, scene.drawn[name].to_numpy()
    finite = np.flatnonzero(np.isfinite(values))
    rounds = scene.drawn["round"].to_numpy()[finite]
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
    """Lift the pen between strokes, which reach out so that a lone token shows.

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


def add_words(figure: go.Figure, scene: TokenScene) -> None:
    """Lay what each token says on hover over the upper panel."""
    tokens = scene.drawn
    upper = "diff" if scene.layers["diff"] else "rollout_log_prob"
    y = tokens[upper].to_numpy()
    shown = [name for name in _LOG_PROBS_TOKEN_TRACES if name in tokens]
    has_text = "text" in tokens
    figure.add_scatter(
        x=scene.x,
        y=np.where(np.isfinite(y), y, 0),
        yaxis="y" if scene.layers["diff"] else "y2",
        mode="lines",
        line={"width": 0},
        text=[hover_text(text) for text in tokens["text"]] if has_text else None,
        customdata=tokens[["diff", *shown, *_KEYS]].to_numpy(np.float32),
        hovertemplate=_hover(scene.pair, shown, has_text=has_text),
    )


def _hover(pair: Pair, shown: list[str], *, has_text: bool) -> str:
    scores = dict(zip(_LOG_PROBS_TOKEN_TRACES, (pair.a, pair.b), strict=True))
    log_probs, keys = (
        ", ".join(
            f"{scores.get(name, name)} %{{customdata[{place}]{digits}}}"
            for place, name in enumerate(names, start)
        )
        for names, start, digits in ((shown, 1, ":.3g"), (_KEYS, len(shown) + 1, ""))
    )
    head = ["<b>%{text}</b>"] if has_text else []
    lines = [*head, "diff %{customdata[0]:.3g} nat", log_probs, keys]
    return "<br>".join(filter(None, lines)) + "<extra></extra>"


_HEIGHT, _HEIGHT_OF_ONE, _BOTTOM = 500, 320, 68


def plot_trajectory(
    data: Batch | pd.DataFrame,
    *,
    sample: int,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the diff and both log-probs of one sample over its generated tokens.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with the columns sample, round, token, diff, position
        and, unless that layer is left out, rollout_log_prob and old_log_prob; its text
        is shown if it has one.
    sample : int
        Which sample, from 0.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        What to leave out: `diff`, the upper panel; `log_probs`, the lower one; `bands`,
        which shade the rounds.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure
        `layout.meta` says where on the x axis the first token of each round stands:
        `rounds` and `starts`; the others of the round follow, one apart.

    Raises
    ------
    FrameError
        If there is no such sample, the frame lacks a column or has another pair, or no
        panel is left.
    BatchError
        If the batch has no such score.

    Notes
    -----
    How to read it: in a healthy sample the upper panel is a low lawn, blue and orange
    alike, in every shaded round, and the two lines of the lower panel lie on each
    other. One colour throughout is an offset (a temperature applied by one engine
    only); a lawn that grows from one round on, a context that differs from there;
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
    'old - rollout log-prob [nat]'
    """
    look, drawn = theme_of(theme), _layers(layers)
    data, pair = of_pair(data, a, b)
    tokens = trajectory_of(data, sample, log_probs=drawn["log_probs"])
    title = f"Sample {sample}, token by token"
    if tokens.empty:
        return empty_figure(title, "no generated tokens: the response mask is 0", look)
    scene = TokenScene(tokens=tokens, layers=drawn, pair=pair, look=look)
    height = _HEIGHT if drawn["diff"] and drawn["log_probs"] else _HEIGHT_OF_ONE
    lines = [*_explanation(scene)]
    figure = new_figure(title, lines, look, height=height, bottom=_BOTTOM)
    for name, add in LAYERS.items():
        if drawn[name]:
            add(figure, scene)
    add_words(figure, scene)
    set_axes(figure, scene)
    rounds = tokens["round"].iloc[scene.starts].tolist()
    starts = scene.place[scene.starts].tolist()
    figure.layout.meta = {"rounds": rounds, "starts": starts}
    return figure


def _layers(chosen: Mapping[str, bool] | None) -> dict[str, bool]:
    drawn = layers_of(chosen, *LAYERS)
    if not drawn["diff"] and not drawn["log_probs"]:
        raise FrameError.build(
            key="layers",
            expected="`diff` or `log_probs` among the layers drawn",
            found="neither",
            advice="Leave out one of them at most.",
        )
    return drawn


def _explanation(scene: TokenScene) -> Iterator[str]:
    tokens, look, pair = scene.tokens, scene.look, scene.pair
    if scene.layers["diff"]:
        more, less = colored("▲", look.more), colored("▼", look.less)
        yield f"{more} {pair.named('{training} likes the token more')} {less} less"
    if scene.layers["log_probs"]:
        for sign, color, name in (
            ("▬", look.quiet, "rollout_log_prob"),
            ("─", look.text, "old_log_prob"),
        ):
            is_none = not np.isfinite(tokens[name]).any()
            note = ": none is finite" if is_none else ""
            yield f"{colored(sign, color)} {pair.named(TOKENS[name].meaning)}{note}"
    undefined = int((~np.isfinite(tokens["diff"])).sum())
    if undefined:
        yield f"{CROSS} {pluralize(undefined, 'token')} whose diff is not finite"
    if len(scene.drawn) < len(tokens):
        share = f"{len(scene.drawn):,} of {pluralize(len(tokens), 'token')}"
        yield f"drawn: {share}, extremes of diff kept"
