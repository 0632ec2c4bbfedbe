"""What a heatmap draws, and what it calls its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.figures.labels import number, short_name
from rounddiag.figures.scale import LogScale
from rounddiag.figures.signed_scale import scale_between, scale_of
from rounddiag.schema import CELLS, DIFFERENCE
from rounddiag.stats.paired_cells import METRIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag.figures.grid import Grid
    from rounddiag.figures.signed_scale import Scale
    from rounddiag.schema import Column, Pair
    from rounddiag.stats.pools import Pooling, Rows

    Array = np.ndarray[Any, Any]

_SIGNED = ("mean_diff", DIFFERENCE.name)


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
    color_range : tuple of float, optional
        The smallest and the largest size that colours tell apart.
    """

    rows: Rows
    rounds: pd.DataFrame
    grid: Grid
    said: Sequence[str]
    metric: str
    order: str
    pooling: Pooling
    pair: Pair
    color_range: tuple[float, float] | None

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
        if self.color_range is None:
            return scale_of(self.shown, is_signed=self.is_signed)
        return scale_between(*self.color_range, is_signed=self.is_signed)

    @property
    def is_signed(self) -> bool:
        """Whether what the colour shows can be below zero."""
        return self.metric in _SIGNED

    @property
    def is_difference(self) -> bool:
        """Whether it is how much more there is than in another batch."""
        return self.metric == DIFFERENCE.name

    @property
    def column(self) -> Column:
        """What the colour shows; of a difference, with what it is of."""
        if not self.is_difference:
            return CELLS[self.metric]
        told = self.rounds.attrs.get(METRIC)
        for column in CELLS.columns:
            if column.name == told:
                meaning = f"difference of {column.meaning}"
                return replace(column, name=self.metric, meaning=meaning)
        return DIFFERENCE

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


def range_of(values: Array, metric: str) -> tuple[float, float]:
    """Return the range of colours that several heatmaps can share.

    Parameters
    ----------
    values : ndarray of float
        What all of them show.
    metric : str

    Examples
    --------
    >>> range_of(np.array([0.003, -0.04]), "mean_diff")
    (0.002, 0.05)
    """
    scale = scale_of(values, is_signed=metric in _SIGNED)
    size = scale if isinstance(scale, LogScale) else scale.size
    return size.low, size.high


def _name(row: Mapping[Any, Any]) -> str:
    parts = [f"sample {row['sample']}"]
    if not pd.isna(row.get("sample_id")):
        parts.append(short_name(str(row["sample_id"])))
    if "reward" in row:
        parts.append(f"reward {number(row['reward'])}")
    return " · ".join(parts)
