"""The layers of a trajectory: bands, stems, lines, and what a token says on hover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.canvas import cross
from rounddiag.figures.labels import hover_text

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.theme import Theme

    Array = np.ndarray[Any, Any]

# Stems are as wide as a figure of 400 pixels has room for.
_PLOT_WIDTH, _MAX_STEM = 250, 6
# How far a line reaches past the first and the last token of a round.
_REACH = 0.4

_NUMBERS = ["diff", "old_log_prob", "rollout_log_prob", "round", "token", "position"]
_HOVER = (
    "diff %{customdata[0]:.3g} nat<br>"
    "old %{customdata[1]:.3g}, rollout %{customdata[2]:.3g}<br>"
    "round %{customdata[3]}, token %{customdata[4]}, position %{customdata[5]}"
    "<extra></extra>"
)


def add_bands(figure: go.Figure, place: Array, starts: Array, look: Theme) -> None:
    """Shade every round; what stays white between two is an observation."""
    stops = np.append(starts[1:], len(place))
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
            "fillcolor": look.shade,
            "line": {"width": 0},
        }
        for first, last in zip(place[starts], place[stops - 1], strict=True)
    ]


def add_tokens(figure: go.Figure, tokens: pd.DataFrame, x: Array, look: Theme) -> None:
    """Draw the diffs above, both log-probs below, and lay the words over them."""
    diff = tokens["diff"].to_numpy()
    finite = np.isfinite(diff)
    width = min(_MAX_STEM, max(1, _PLOT_WIDTH / len(x)))
    for shown, color in ((diff > 0, look.more), (diff < 0, look.less)):
        drawn = shown & finite
        _add_stems(figure, x[drawn], diff[drawn], {"color": color, "width": width})
    figure.add_scatter(
        x=x[~finite],
        y=np.zeros((~finite).sum(), dtype=np.float32),
        mode="markers",
        marker=cross(look),
        hoverinfo="skip",
    )
    _add_log_prob(figure, tokens, "rollout_log_prob", x, (look.quiet, 5))
    _add_log_prob(figure, tokens, "old_log_prob", x, (look.text, 1))
    _add_words(figure, tokens, x, np.where(finite, diff, 0))


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
    figure: go.Figure, tokens: pd.DataFrame, name: str, x: Array, pen: tuple[str, int]
) -> None:
    values = tokens[name].to_numpy()
    finite = np.flatnonzero(np.isfinite(values))
    rounds = tokens["round"].to_numpy()[finite]
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


def _add_words(figure: go.Figure, tokens: pd.DataFrame, x: Array, y: Array) -> None:
    has_text = "text" in tokens
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"width": 0},
        text=[hover_text(text) for text in tokens["text"]] if has_text else None,
        customdata=tokens[_NUMBERS].to_numpy(np.float32),
        hovertemplate=("<b>%{text}</b><br>" if has_text else "") + _HOVER,
    )
