"""The lines of a figure: one of all samples, or one per value or group of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import Theme, colorize, scale_colors
from rounddiag.figures._parts.labels import shorten_value

# Plotly's markers, how they look in text, and their dashes: both distinguish lines in
# greyscale pictures.
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
MAX_LINES = len(_SIGNS)
# Intervals of one round share this part of its place.
_SPREAD = 0.5
# Characters of a line of the key in a figure of 400 pixels.
_KEY = 44


# A plot has no more pixels, and plotly takes 0.1 ms for each point.
_MAX_ROUNDS = 2000


def thin_rounds(
    rows: pd.DataFrame, keep: float | Sequence[float] = ()
) -> tuple[pd.DataFrame, list[str]]:
    """Choose which rows are drawn: all up to 2,000 rounds, else evenly spaced ones.

    Examples
    --------
    >>> import pandas as pd
    >>> drawn, note = thin_rounds(pd.DataFrame({"round": range(4001)}), 5)
    >>> drawn["round"].tolist()[:5], note
    ([0, 3, 5, 6, 9], ['drawn: one round in 3'])
    """
    index = rows["round"].to_numpy()
    stride = -(-(int(np.ptp(index)) + 1) // _MAX_ROUNDS) if len(index) else 1
    if stride == 1:
        return rows, []
    is_drawn = (index % stride == 0) | np.isin(index, keep)
    return rows[is_drawn], [f"drawn: one round in {stride}"]


@dataclass(frozen=True, kw_only=True)
class RoundLine:
    """One line of means.

    Attributes
    ----------
    name: Safe in plotly's pseudo HTML; empty for a single line of all samples.
    rows: Its means or shares, such as its `stats.round_summary`.
    color, symbol, sign, dash: Its style; the sign is the symbol in text. Means may have
        a symbol each.
    shift: How far to the right of the round it is drawn.
    """

    name: str
    rows: pd.DataFrame
    color: str
    symbol: str | Sequence[str] = "circle"
    sign: str = "●"
    dash: str = "solid"
    shift: float = 0  # whole places stay whole numbers


def split_by_column(
    summary: pd.DataFrame, by: str | None, theme: Theme
) -> list[RoundLine]:
    """Make a line of all rows, or of each value of a column."""
    if by is None:
        return [RoundLine(name="", rows=summary, color=theme.text)]
    groups = list(summary.groupby(by, sort=True, dropna=False, observed=True))
    check_num_lines(by, len(groups))
    return [style_line(i, len(groups), *group, theme) for i, group in enumerate(groups)]


def check_num_lines(by: str, num: int) -> None:
    """Raise a FrameError for more than 8 values, which cannot be distinguished."""
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
    """Style one of several lines; the ninth looks like the first."""
    style = index % MAX_LINES
    symbol, sign, dash = _SIGNS[style]
    return RoundLine(
        name=shorten_value(value),
        rows=rows,
        color=theme.lines[style],
        symbol=symbol,
        sign=sign,
        dash=dash,
        shift=_SPREAD * ((index + 0.5) / num_lines - 0.5),
    )


def format_key(by: str | None, lines: Sequence[RoundLine]) -> list[str]:
    """Name the lines of a column, as many per line of text as fit."""
    if by is None:
        return []
    parts, room = [shorten_value(by)], _KEY - len(by)
    for line in lines:
        size = len(line.name) + 3
        if size > room:
            parts.append("")
            room = _KEY
        parts[-1] += f"  {colorize(line.sign, line.color)} {line.name}"
        room -= size
    return [part.strip() for part in parts]


def split_by_round(
    shares: pd.DataFrame, by: str | None, theme: Theme
) -> list[RoundLine]:
    """Make a line of each group of rounds (`rounds`), or of each value of a column."""
    if by is not None:
        return split_by_column(shares, by, theme)
    groups = list(shares.groupby("rounds", sort=False))
    return [
        replace(
            style_line(i, len(groups), *groups[i], theme), color=color, dash="solid"
        )
        for i, color in enumerate(scale_colors(theme, len(groups)))
    ]
