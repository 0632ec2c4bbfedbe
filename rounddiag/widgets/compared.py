"""What a state leaves of two batches: their numbers beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.stats.common_order import common_order
from rounddiag.stats.paired_cells import paired_cells
from rounddiag.stats.pools import samples_of
from rounddiag.stats.worst_differences import worst_differences

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.stats.ordering import Order
    from rounddiag.widgets.comparison import Comparison
    from rounddiag.widgets.shown import Shown


@dataclass(frozen=True)
class Compared:
    """What a filter keeps of two batches.

    Attributes
    ----------
    comparison : Comparison
    sides : tuple of Shown
        Of the first batch, and of the other.
    batch : int
        Which of them is looked at: samples are called by its numbers.
    """

    comparison: Comparison
    sides: tuple[Shown, Shown]
    batch: int

    @property
    def data(self) -> dict[str, Batch | pd.DataFrame]:
        """What `plot_compare` draws: what is paired in batches is paired in frames."""
        found = (side.data if side.is_all else _with_names(side) for side in self.sides)
        return dict(zip(self.comparison.names, found, strict=True))

    @property
    def worst(self) -> dict[str, pd.DataFrame]:
        """The rounds and samples that differ most."""
        first, other = (side.tokens for side in self.sides)
        found = worst_differences(first, other, self.comparison.pairs)
        return {name: self._own(rows) for name, rows in found.items()}

    def differences(self, metric: str) -> pd.DataFrame:
        """Return the rounds that both samples of a pair have, with their difference."""
        first, other = (side.cells for side in self.sides)
        return self._own(paired_cells(first, other, self.comparison.pairs, metric))

    def order(self, order: Order, metric: str) -> list[int]:
        """Return all samples of the batch that is looked at; pairs come first."""
        first, other = (
            samples_of(side.batch, side.cells, side.batch.num_samples)
            for side in self.sides
        )
        both = common_order(first, other, self.comparison.pairs, order, metric)
        return both[self.batch]

    def values(self, metric: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return what cells of either batch show, which have one range of colours."""
        return np.concatenate([side.cells[metric].to_numpy() for side in self.sides])

    def _own(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Call samples by their numbers in the batch that is looked at."""
        own = ("baseline_sample", "sample")[self.batch]
        return rows.assign(sample=rows[own])


def _with_names(side: Shown) -> pd.DataFrame:
    """Return the tokens of a side with the ids of their samples and groups."""
    batch, sample = side.batch, side.tokens["sample"].to_numpy()
    names = {"sample_id": batch.sample_ids, "group_id": batch.group_ids}
    known = {
        key: np.asarray(values, dtype=object)[sample]
        for key, values in names.items()
        if values is not None
    }
    return side.tokens.assign(**known)
