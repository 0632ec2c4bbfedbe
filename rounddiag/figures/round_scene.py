"""What all layers of a figure per round share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from rounddiag.figures.round_axis import RoundAxis
    from rounddiag.figures.round_lines import RoundLine
    from rounddiag.figures.theme import Theme


@dataclass(frozen=True, kw_only=True)
class RoundScene:
    """Lines, scales and colours of one figure.

    Attributes
    ----------
    lines : sequence of RoundLine
    num_rounds : int
        How many rounds the x axis has room for.
    worst : Series, optional
        The row of the round that is marked.
    axis : RoundAxis
    unit : str
    look : Theme
    """

    lines: Sequence[RoundLine]
    num_rounds: int
    worst: pd.Series[Any] | None
    axis: RoundAxis
    unit: str
    look: Theme

    def marked(self, line: RoundLine, usual: str) -> list[str]:
        """Return the colour of each round: the worst one's differs."""
        marked = None if self.worst is None else self.worst["round"]
        special = self.look.less
        return [special if index == marked else usual for index in line.rows["round"]]

    @property
    def bar(self) -> float:
        """Width of a bar, thin also where there are few."""
        return 0.6 * min(1, self.num_rounds / 15)
