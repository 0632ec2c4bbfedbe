"""Lines of groups of rounds, whose colours darken or brighten in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from plotly.colors import sample_colorscale

from rounddiag.figures.round_lines import line_of, lines_of

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.figures.round_lines import RoundLine
    from rounddiag.figures.theme import Theme

# The parts of the colour scale that stand out from the paper, the first round first.
_COLORS = {"light": (0.0, 0.75), "dark": (1.0, 0.45)}


def split_lines(found: pd.DataFrame, by: str | None, look: Theme) -> list[RoundLine]:
    """Give each group of rounds, or value of a column, a line of its own.

    Parameters
    ----------
    found : DataFrame
        With the column `rounds`, or `by`.
    by : str, optional
    look : Theme

    Raises
    ------
    FrameError
        If `by` has more than 8 values.
    """
    if by is not None:
        return lines_of(found, by, look)
    groups = list(found.groupby("rounds", sort=False))
    places = np.linspace(*_COLORS[look.name], max(len(groups), 2))[: len(groups)]
    colors = sample_colorscale("cividis", places)
    return [
        replace(line_of(i, len(groups), *groups[i], look), color=color, dash="solid")
        for i, color in enumerate(colors)
    ]
