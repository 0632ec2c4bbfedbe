"""What a heatmap draws, and what it calls its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.figures.labels import number, short_name
from rounddiag.figures.signed_scale import scale_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag.figures.grid import Grid
    from rounddiag.figures.signed_scale import Scale
    from rounddiag.schema import Pair
    from rounddiag.stats.ordering import Order
    from rounddiag.stats.pools import Pooling, Rows

    Array = np.ndarray[Any, Any]

SIGNED = ("mean_diff",)


@dataclass(frozen=True, kw_only=True)
class Heat:
    """The cells of a heatmap, and the rows that they stand in.

    Attributes
    ----------
    rows : Rows
    rounds : DataFrame
        A row for each sample and round.
    grid : Grid
        Its column `shown` is what the colour shows.
    said : sequence of str
        Its other columns, which a cell says on hover.
    metric, order, pooling : str
        What was asked for.
    pair : Pair
        The scores, as labels name them.
    """

    rows: Rows
    rounds: pd.DataFrame
    grid: Grid
    said: Sequence[str]
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
    def hover(self) -> tuple[str, str]:
        """What any cell says first, in plotly's words; the axis names its row."""
        return "<b>%{y}<br>round %{x}</b>", "tokens %{text}"

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

    def names(self) -> list[str]:
        """Name each row: its number, the sample's id and reward if they are known."""
        if not self.is_pooled:
            return [_name(row) for row in self.rows.samples.to_dict("records")]
        rank = "" if self.order == "sample" else " rank"
        names = [f"{self.rows.pool} samples from{rank} {at}" for at in self.numbers]
        if "reward" not in self.rows.samples:
            return names
        means = zip(names, self.rows.means("reward"), strict=True)
        return [f"{name} · mean reward {number(mean)}" for name, mean in means]


def _name(row: Mapping[Any, Any]) -> str:
    parts = [f"sample {row['sample']}"]
    if not pd.isna(row.get("sample_id")):
        parts.append(short_name(str(row["sample_id"])))
    if "reward" in row:
        parts.append(f"reward {number(row['reward'])}")
    return " · ".join(parts)
