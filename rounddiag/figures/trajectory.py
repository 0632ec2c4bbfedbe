"""One sample, token by token: where in its rounds the engines disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.words import count
from rounddiag.errors import FrameError
from rounddiag.figures.canvas import colored, empty_figure, new_figure
from rounddiag.figures.labels import CROSS
from rounddiag.figures.layers import layers_of
from rounddiag.figures.sources import of_pair, trajectory_of
from rounddiag.figures.theme import theme_of
from rounddiag.figures.token_axes import set_axes
from rounddiag.figures.token_scene import TokenScene
from rounddiag.figures.token_traces import LAYERS, add_words
from rounddiag.schema import TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import ThemeName

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
        yield f"{more} {pair.named('training likes the token more')} {less} less"
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
        yield f"{CROSS} {count(undefined, 'token')} whose diff is not finite"
    if len(scene.drawn) < len(tokens):
        share = f"{len(scene.drawn):,} of {count(len(tokens), 'token')}"
        yield f"drawn: {share}, extremes of diff kept"
