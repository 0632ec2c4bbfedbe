"""What a heatmap draws, and what it calls its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.figures.labels import number, short_name
from rounddiag.figures.signed_scale import scale_of

if TYPE_CHECKING:
    from rounddiag.figures.grid import Grid
    from rounddiag.figures.signed_scale import Scale
    from rounddiag.schema import Pair
    from rounddiag.stats.ordering import Order
    from rounddiag.stats.pools import Pooling, Rows

    Array = np.ndarray[Any, Any]

SIGNED = ("mean_diff",)
# Up to this many cells each says the name of its sample, above its number alone.
_FEW_CELLS = 4_000


@dataclass(frozen=True, kw_only=True)
class Heat:
    """The cells of a heatmap, and the rows that they stand in.

    Attributes
    ----------
    rows : Rows
    grid : Grid
        Its column `shown` is what the colour shows.
    metric, order, pooling : str
        What was asked for.
    pair : Pair
        The scores, as labels name them.
    """

    rows: Rows
    grid: Grid
    metric: str
    order: Order
    pooling: Pooling
    pair: Pair

    @property
    def shown(self) -> Array:
        """What the colour shows."""
        return self.grid.columns["shown"]

    @property
    def is_pooled(self) -> bool:
        """Whether a row is more than one sample."""
        return self.rows.pool > 1

    @property
    def scale(self) -> Scale:
        """The range of colours: for signed values around zero."""
        return scale_of(self.shown, is_signed=self.metric in SIGNED)

    @property
    def noun(self) -> str:
        """What stands before the number of a row."""
        if not self.is_pooled:
            return "sample"
        rank = "" if self.order == "sample" else " rank"
        return f"{self.rows.pool} samples from{rank}"

    @property
    def hover(self) -> tuple[str, str]:
        """What any cell says first, in plotly's words."""
        return f"<b>{self.noun} %{{hovertext}}<br>round %{{x}}</b>", "tokens %{text}"

    @property
    def numbers(self) -> Array:
        """The sample of each row, or where its first one stands."""
        if self.is_pooled:
            return np.arange(self.rows.num) * self.rows.pool
        return self.rows.samples["sample"].to_numpy()

    def y(self, row: Array) -> Array:
        """Give the middle of rows on the axis, whose unit is one sample.

        Takes whole rows, or halves, which are their edges.
        """
        return (row + 0.5) * self.rows.pool - 0.5

    def names(self, *others: str) -> list[str]:
        """Name each row: its number, the sample's id if known, and other columns."""
        if self.is_pooled:
            return [str(rank) for rank in self.numbers]
        return [_name(row, others) for _, row in self.rows.samples.iterrows()]

    def cell_names(self) -> Array:
        """Name the row of each cell, in no more words than there is room for."""
        numbers = self.numbers
        narrow = numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
        is_few = self.shown.size <= _FEW_CELLS
        names = np.array(self.names("reward"), dtype=object) if is_few else narrow
        repeated: Array = np.repeat(names[:, None], self.shown.shape[1], axis=1)
        return repeated


def _name(row: pd.Series[Any], others: tuple[str, ...]) -> str:
    parts = [str(int(row["sample"]))]
    if "sample_id" in row and not pd.isna(row["sample_id"]):
        parts.append(short_name(str(row["sample_id"])))
    parts += [f"{name} {number(row[name])}" for name in others if name in row]
    return " · ".join(parts)
