"""What a comparison draws, and where its panels are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures.labels import short_name
from rounddiag.figures.round_lines import line_of
from rounddiag.schema import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from rounddiag.figures.round_lines import RoundLine
    from rounddiag.figures.theme import Theme
    from rounddiag.schema import Column, Pair

# How much of the room between two rounds the batches share.
_SPREAD = 0.6
# Markers of all batches and rounds must not touch in a figure of 400 pixels.
_PLOT_WIDTH = 300
# Pixels between panels, and a row of the strip.
_GAP, _ROW = 26, 18
_HEIGHTS = {"means": 230, "difference": 170}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Batches beside each other.

    Attributes
    ----------
    names : list of str
        As the user gave them; those of the lines are cut and escaped.
    lines : list of RoundLine
        Of each batch, with its summary as `stats.round_summary` gives it.
    differences : DataFrame
        As `stats.differences` gives them.
    metric : str
    pair : Pair
    layers : dict of str to bool
    look : Theme
    """

    names: Sequence[str]
    lines: Sequence[RoundLine]
    differences: pd.DataFrame
    metric: str
    pair: Pair
    layers: dict[str, bool]
    look: Theme

    @property
    def num_rounds(self) -> int:
        """One more than the last round of any batch."""
        lasts = [line.rows["round"].max() for line in self.lines if len(line.rows)]
        return int(max(lasts, default=-1)) + 1

    @property
    def size(self) -> float:
        """How large markers are, in pixels."""
        room = _PLOT_WIDTH / (self.num_rounds * len(self.lines))
        return min(8.0, max(3.0, room))

    @property
    def column(self) -> Column:
        """What is averaged."""
        return METRICS[self.metric]

    def shift(self, place: int) -> float:
        """Say how far beside its round a batch stands."""
        num = len(self.lines)
        return (place - (num - 1) / 2) * min(_SPREAD / num, 0.2)

    def heights(self) -> dict[str, int]:
        """Say how high each panel is, top first, in pixels."""
        heights = {**_HEIGHTS, "strip": _ROW * len(self.lines)}
        return {
            name: height
            for name, height in heights.items()
            if self.layers.get(name, True)
        }

    def domains(self) -> tuple[int, dict[str, list[float]]]:
        """Return the height of the plot, and the share of each panel."""
        heights = self.heights()
        plot = sum(heights.values()) + _GAP * (len(heights) - 1)
        tops = plot - np.cumsum([0, *(height + _GAP for height in heights.values())])
        shares = {
            name: [(top - height) / plot, top / plot]
            for (name, height), top in zip(heights.items(), tops[:-1], strict=True)
        }
        return plot, shares


def batch_lines(summaries: Mapping[str, pd.DataFrame], look: Theme) -> list[RoundLine]:
    """Give each batch a look of its own: colours that stand for no magnitude."""
    colors = (look.text, look.more, look.less, look.muted)
    return [
        replace(
            line_of(index, len(summaries), name, summary, look),
            name=short_name(name),
            color=colors[index % len(colors)],
        )
        for index, (name, summary) in enumerate(summaries.items())
    ]
