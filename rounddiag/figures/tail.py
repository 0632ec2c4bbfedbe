"""How heavy the tail is: the share of tokens at or beyond each size of |diff|."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.words import count
from rounddiag.figures.canvas import TOP, empty_figure, new_figure
from rounddiag.figures.labels import CROSS, number
from rounddiag.figures.log_axis import LogAxis
from rounddiag.figures.sources import num_picked_of, of_pair, tails_of
from rounddiag.figures.tail_lines import PLOT_HEIGHT, add_lines, add_ratios
from rounddiag.figures.theme import theme_of
from rounddiag.schema import ABS_DIFF, SHARE
from rounddiag.stats.tails import RATIOS

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
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
    a: str = "old",
    b: str = "rollout",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the share of tokens whose |old - rollout| log-prob is at least x.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with the columns round and diff.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If a frame lacks a column, or has another pair.
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
    The end of a line is one token, and says little.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_tail(batch).layout.xaxis.title.text
    '|old - rollout| log-prob [nat]'
    """
    look = theme_of(theme)
    data, pair = of_pair(data, a, b)
    found = tails_of(data)
    drawn = found[(found["abs_diff"] > 0) & (found["num_tokens"] > 0)]
    title = "Tail of the mismatch"
    if drawn.empty:
        return empty_figure(title, _why_empty(found), look)
    height = TOP + PLOT_HEIGHT + _BOTTOM
    lines = _explanation(found, drawn, num_picked_of(data))
    figure = new_figure(title, lines, look, height=height, bottom=_BOTTOM)
    figure.layout.margin.r = _RIGHT
    _set_axes(figure, drawn, pair)
    add_ratios(figure, look)
    add_lines(figure, drawn, look)
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
    found: pd.DataFrame, drawn: pd.DataFrame, num_picked: int
) -> list[str]:
    num, undefined = _of_all(found)
    lines = ["shaded: probabilities differ by a factor of 2, of 5"]
    zeros = num - int(_starts(drawn)["num_tokens"].sum())
    if zeros:
        share = f"{number(100 * zeros / num)} %"
        lines.append(f"exactly 0, so not on the axis: {share} of tokens")
    if undefined:
        lines.append(f"left out: {count(undefined, 'token')} whose diff is not finite")
    if num_picked:
        lines.append(f"left out: {count(num_picked, 'sample')} picked as the worst")
    return lines


def _starts(drawn: pd.DataFrame) -> pd.DataFrame:
    """Return the first point of each line: they all begin at the same size."""
    return drawn.drop_duplicates("rounds")


def _set_axes(figure: go.Figure, drawn: pd.DataFrame, pair: Pair) -> None:
    start = _starts(drawn).set_index("rounds")["share"]
    is_level = drawn["share"] >= _NEARLY_ALL * drawn["rounds"].map(start)
    left = drawn[is_level].groupby("rounds")["abs_diff"].max()
    right = max(drawn["abs_diff"].max(), np.log(RATIOS[-1]))
    low, high = np.floor(np.log10(left.min())), np.log10(right) + _BEYOND
    bottom = np.log10(drawn["share"].min()) - 0.1
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
