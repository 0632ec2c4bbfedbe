"""The lines of a figure: one of all samples, or one for each value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from plotly.colors import sample_colorscale

from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import colorize

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from rounddiag.figures._parts.canvas import Theme


# Plotly's markers, how they theme in text, and the dashes that go with them: grey
# pictures tell lines apart by both.
_SIGNS = (
    ("circle", "●", "solid"),
    ("square", "■", "dash"),
    ("diamond", "◆", "dot"),
    ("triangle-up", "▲", "dashdot"),
    ("triangle-down", "▼", "solid"),
    ("star", "★", "dash"),
    ("cross", "✚", "dot"),
    ("x", "✖", "dashdot"),
)
# From Okabe and Ito's palette, with the contrast on paper that text needs. Lighter and
# darker ones take turns: bars of neighbours touch.
_COLORS_ROUND_LINES = {
    "light": (
        *("#0072b2", "#7a3300", "#00805c", "#6d2552"),
        *("#5b6268", "#0b3c6e", "#8a6d00", "#4b2580"),
    ),
    "dark": (
        *("#56b4e9", "#c9742a", "#2fc79a", "#b8709a"),
        *("#e8eaed", "#4f94d4", "#e6d44a", "#9880d0"),
    ),
}
MAX_LINES = len(_SIGNS)
# Intervals of one round stand beside each other, in this share of its place.
_SPREAD = 0.5
# Characters of a line of the key in a figure of 400 pixels.
_KEY = 44


@dataclass(frozen=True, kw_only=True)
class RoundLine:
    """One line of means.

    Attributes
    ----------
    name : str
        Safe to be shown; empty where there is one line of all samples.
    rows : DataFrame
        What it shows: its rounds, as `stats.round_summary` gives them, say.
    color, symbol, sign, dash : str
        Its looks; the sign is the symbol in text.
    shift : float
        How far right of the round it is drawn.
    """

    name: str
    rows: pd.DataFrame
    color: str
    symbol: str = "circle"
    sign: str = "●"
    dash: str = "solid"
    shift: float = 0.0


def split_by_column(
    summary: pd.DataFrame, by: str | None, theme: Theme
) -> list[RoundLine]:
    """Divide a summary into lines.

    Raises
    ------
    FrameError
        If there are more than 8 values.
    """
    if by is None:
        return [RoundLine(name="", rows=summary, color=theme.text)]
    groups = list(summary.groupby(by, sort=True, dropna=False, observed=True))
    check_num_lines(by, len(groups))
    return [style_line(i, len(groups), *group, theme) for i, group in enumerate(groups)]


def check_num_lines(by: str, num: int) -> None:
    """Raise a FrameError for more than 8 values: they could not be told apart."""
    if num > MAX_LINES:
        raise FrameError.build(
            key="by",
            expected=f"a column of at most {MAX_LINES} values, a line each",
            found=f"{by!r} with {num} values",
            advice="Put values into bins in a column of your own, and name that one.",
        )


def style_line(
    index: int, num_lines: int, value: object, rows: pd.DataFrame, theme: Theme
) -> RoundLine:
    """Give one of several lines its looks; those of the ninth are of the first."""
    looks = index % MAX_LINES
    symbol, sign, dash = _SIGNS[looks]
    return RoundLine(
        name=shorten(value),
        rows=rows,
        color=_COLORS_ROUND_LINES[theme.name][looks],
        symbol=symbol,
        sign=sign,
        dash=dash,
        shift=_SPREAD * ((index + 0.5) / num_lines - 0.5),
    )


def shorten(value: object, longest: int = 24) -> str:
    """Write a value, which may be untrusted text, in so many characters.

    Examples
    --------
    >>> shorten("<b>"), shorten("a name that goes on and on")
    ('&lt;b&gt;', 'a name that go…on and on')
    """
    text = " ".join(str(value).split())
    if len(text) > longest:
        # What tells names apart is often at their end.
        start = longest * 7 // 12
        text = f"{text[:start]}…{text[start + 1 - longest :]}"
    return escape(text, quote=False)  # plotly shows &quot; as it is


def format_key(by: str, lines: Sequence[RoundLine]) -> list[str]:
    """Name the lines, as many in a line of text as fit."""
    parts, room = [shorten(by)], _KEY - len(by)
    for line in lines:
        size = len(line.name) + 3
        if size > room:
            parts.append("")
            room = _KEY
        parts[-1] += f"  {colorize(line.sign, line.color)} {line.name}"
        room -= size
    return [part.strip() for part in parts]


# The parts of the colour scale that stand out from the paper, the first round first.
_COLORS_ROUND_GROUPS = {"light": (0.0, 0.75), "dark": (1.0, 0.45)}


def split_lines(found: pd.DataFrame, by: str | None, theme: Theme) -> list[RoundLine]:
    """Give each group of rounds, or value of a column, a line of its own.

    Parameters
    ----------
    found : DataFrame
        With the column `rounds`, or `by`.
    by : str, optional
    theme : Theme

    Raises
    ------
    FrameError
        If `by` has more than 8 values.
    """
    if by is not None:
        return split_by_column(found, by, theme)
    groups = list(found.groupby("rounds", sort=False))
    places = np.linspace(*_COLORS_ROUND_GROUPS[theme.name], max(len(groups), 2))[
        : len(groups)
    ]
    colors = sample_colorscale("cividis", places)
    return [
        replace(
            style_line(i, len(groups), *groups[i], theme), color=color, dash="solid"
        )
        for i, color in enumerate(colors)
    ]
