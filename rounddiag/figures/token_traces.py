"""The layers of a trajectory: bands, stems, lines, and what a token says on hover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.canvas import cross
from rounddiag.figures.labels import hover_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rounddiag.figures.token_scene import TokenScene
    from rounddiag.schema import Pair

    Array = np.ndarray[Any, Any]

# Stems are as wide as a figure of 400 pixels has room for.
_PLOT_WIDTH, _MAX_STEM = 250, 6
# How far a line reaches past the first and the last token of a round.
_REACH = 0.4

_LOG_PROBS = ["old_log_prob", "rollout_log_prob"]
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
    width = min(_MAX_STEM, max(1, _PLOT_WIDTH / len(x)))
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
    for name, pen in reversed([*zip(_LOG_PROBS, pens, strict=True)]):
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
    shown = [name for name in _LOG_PROBS if name in tokens]
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
    scores = dict(zip(_LOG_PROBS, (pair.a, pair.b), strict=True))
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
