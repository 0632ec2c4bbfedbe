"""How heavy the tail is: the share of tokens at or beyond each size of |diff|."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.words import count
from rounddiag.figures.canvas import TOP, empty_figure, new_figure
from rounddiag.figures.labels import CROSS, number
from rounddiag.figures.layers import layers_of
from rounddiag.figures.log_axis import LogAxis
from rounddiag.figures.picked import left_out
from rounddiag.figures.round_groups import split_lines
from rounddiag.figures.round_lines import key_lines
from rounddiag.figures.sources import of_pair
from rounddiag.figures.tail_lines import (
    PLOT_HEIGHT,
    add_ends,
    add_lines,
    add_names,
    add_ratios,
)
from rounddiag.figures.theme import theme_of
from rounddiag.schema import ABS_DIFF, SHARE
from rounddiag.stats import tails
from rounddiag.stats.tails import RATIOS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.round_lines import RoundLine
    from rounddiag.figures.theme import ThemeName
    from rounddiag.schema import Pair

_BOTTOM = 52
# Room for the names of the lines, right of the plot, in pixels.
_RIGHT = 84
# The axis begins where this share of a line's tokens is left at least.
_NEARLY_ALL = 0.9
# The axes end this far beyond the largest diff and share, in decades.
_BEYOND, _ABOVE = 0.3, 0.05
# As many decades of x and of y have a tick each.
_DECADES = (6, 8)


def plot_tail(
    data: Batch | pd.DataFrame,
    *,
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the share of tokens whose |old - rollout| log-prob is at least x.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with the columns round and diff.
    by : str, optional
        A column of samples or rounds, `status` say: a line for each of its values, at
        most 8, in place of groups of rounds.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        What to leave out: `{"ratios": False, "names": False}`.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If a frame lacks a column or has another pair, a layer is unknown, or `by` has
        more than 8 values.
    BatchError
        If the batch has no such score.

    Notes
    -----
    How to read it: a line is a group of rounds, and both axes are logarithmic. In a
    healthy batch the lines lie on each other and fall steeply long before the shaded
    ratios: arithmetic noise has no tokens whose probabilities differ by a factor of 2.
    A line that lies right of the others by the same factor at all heights is a round
    with more noise; one that leaves them in the lower half only, with a shelf or a slow
    decay, has a few tokens that are computed from another context. Read at the shaded
    edges, the lines are the shares that clipping at a ratio of 2 or 5 would touch.
    The end of a line is one token, and says little. With `by`, a fault of one rank,
    replica or kind of sample is a line that leaves the others.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_tail(batch).layout.xaxis.title.text
    '|old - rollout| log-prob [nat]'
    """
    look, drawn = theme_of(theme), layers_of(layers, "ratios", "names")
    data, pair = of_pair(data, a, b)
    found = tails(data, by=by)
    known = found[(found["abs_diff"] > 0) & (found["num_tokens"] > 0)]
    title = "Tail of the mismatch"
    if known.empty:
        return empty_figure(title, _why_empty(found), look)
    lines = split_lines(known, by, look)
    words = key_lines(by, lines) if by and drawn["names"] else []
    words += _explanation(found, lines, has_ratios=drawn["ratios"]) + left_out(data)
    height = TOP + PLOT_HEIGHT + _BOTTOM
    figure = new_figure(title, words, look, height=height, bottom=_BOTTOM)
    _set_axes(figure, lines, pair)
    if drawn["ratios"]:
        add_ratios(figure, look)
    add_lines(figure, lines, by or "round")
    if by is None and drawn["names"]:
        figure.layout.margin.r = _RIGHT
        add_names(figure, lines, look)
    else:
        add_ends(figure, lines)
    return figure


def _why_empty(found: pd.DataFrame) -> str:
    num, undefined = _of_all(found)
    if undefined:
        size = f"{count(undefined, 'token')} whose diff is not finite"
        return f"{CROSS} {size}, and {num:,} of exactly 0: no tail"
    if num:
        return f"the diff of {count(num, 'token')} is exactly 0: no tail"
    return "no generated tokens: the response mask is 0"


def _of_all(found: pd.DataFrame) -> tuple[int, int]:
    """Return how many tokens there are with a finite diff, and without."""
    starts = found[found["abs_diff"] == 0]
    return int(starts["num_tokens"].sum()), int(starts["num_nonfinite"].sum())


def _explanation(
    found: pd.DataFrame, drawn: Sequence[RoundLine], *, has_ratios: bool
) -> list[str]:
    num, undefined = _of_all(found)
    shaded = "shaded: probabilities differ by a factor of 2, of 5"
    lines = [shaded] if has_ratios else []
    # Lines begin at the same size, above 0.
    zeros = num - sum(int(line.rows["num_tokens"].iloc[0]) for line in drawn)
    if zeros:
        share = f"{number(100 * zeros / num)} %"
        lines.append(f"exactly 0, so not on the axis: {share} of tokens")
    if undefined:
        lines.append(f"left out: {count(undefined, 'token')} whose diff is not finite")
    return lines


def _set_axes(figure: go.Figure, lines: Sequence[RoundLine], pair: Pair) -> None:
    left = min(_level_until(line.rows) for line in lines)
    right = max(line.rows["abs_diff"].max() for line in lines)
    low, high = np.floor(np.log10(left)), np.log10(max(right, np.log(RATIOS[-1])))
    high += _BEYOND
    bottom = np.log10(min(line.rows["share"].min() for line in lines)) - 0.1
    figure.update_layout(
        xaxis={
            "title": {"text": pair.label(ABS_DIFF)},
            "tickangle": 0,
            **LogAxis(low=10**low, high=10**high).layout(_DECADES[0]),
        },
        yaxis={
            "title": {"text": SHARE.label},
            **LogAxis(low=10**bottom, high=10**_ABOVE).layout(_DECADES[1]),
        },
    )


def _level_until(rows: pd.DataFrame) -> float:
    """Return the largest size that nearly all tokens of a line reach."""
    is_level = rows["share"] >= _NEARLY_ALL * rows["share"].iloc[0]
    return float(rows["abs_diff"][is_level].max())
