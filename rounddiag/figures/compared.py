"""What a comparison draws, and where its panels are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures.labels import short_name
from rounddiag.figures.round_groups import RoundGroup, group_styles

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from rounddiag.figures.theme import Theme

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
        As the user gave them; those of the styles are cut and escaped.
    summaries : list of DataFrame
        Of each batch, as `stats.round_summary` gives them.
    differences : DataFrame
        As `stats.differences` gives them.
    styles : list of RoundGroup
        Of each batch: its name, colour and symbol.
    layers : dict of str to bool
    look : Theme
    """

    names: Sequence[str]
    summaries: Sequence[pd.DataFrame]
    differences: pd.DataFrame
    styles: Sequence[RoundGroup]
    layers: dict[str, bool]
    look: Theme

    @property
    def num_rounds(self) -> int:
        """One more than the last round of any batch."""
        lasts = [summary["round"].max() for summary in self.summaries if len(summary)]
        return int(max(lasts, default=-1)) + 1

    @property
    def size(self) -> float:
        """How large markers are, in pixels."""
        room = _PLOT_WIDTH / (self.num_rounds * len(self.styles))
        return min(8.0, max(3.0, room))

    def shift(self, place: int) -> float:
        """Say how far beside its round a batch stands."""
        num = len(self.styles)
        return (place - (num - 1) / 2) * min(_SPREAD / num, 0.2)

    def heights(self) -> dict[str, int]:
        """Say how high each panel is, top first, in pixels."""
        heights = {**_HEIGHTS, "strip": _ROW * len(self.styles)}
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


def batch_styles(names: Sequence[str], look: Theme) -> list[RoundGroup]:
    """Give each batch a look of its own: colours that stand for no magnitude."""
    colors = (look.text, look.more, look.less, look.muted)
    return [
        replace(style, name=short_name(style.name), color=colors[i % len(colors)])
        for i, style in enumerate(group_styles(names, look))
    ]
