"""Rows of samples and their rounds as matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Matrices with a row per sample, or pool of them, and a column per round.

    Attributes
    ----------
    there : array of bool
        Whether a sample of the row has the round.
    num_tokens, num_rows : array of unsigned int
        What the cell is made of: its tokens, and its samples.
    columns : dict of str to array of float32
        NaN where the round is missing, or has no finite value.
    """

    there: Array
    num_tokens: Array
    num_rows: Array
    columns: dict[str, Array]

    def undefined(self, column: str) -> Array:
        """Mark the cells whose round is there, but without a finite value."""
        marked: Array = self.there & np.isnan(self.columns[column])
        return marked


def grid_of(rounds: pd.DataFrame, num_rows: int, *columns: str) -> Grid:
    """Spread a frame with the keys `row` and `round`, as `Rows.rounds` gives it."""
    row, round_ = rounds["row"].to_numpy(), rounds["round"].to_numpy()
    shape = (num_rows, int(round_.max()) + 1 if len(rounds) else 0)
    there = np.zeros(shape, dtype=bool)
    there[row, round_] = True
    counts = {}
    for name in ("num_tokens", "num_rows"):
        # The narrowest type: a figure of 512 samples and 60 rounds stays under 500 kB.
        most = int(rounds[name].max()) if len(rounds) else 0
        counts[name] = np.zeros(shape, dtype=np.min_scalar_type(most))
        counts[name][row, round_] = rounds[name]
    spread = {name: np.full(shape, np.nan, dtype=np.float32) for name in columns}
    for name, cells in spread.items():
        cells[row, round_] = rounds[name]
    return Grid(there=there, columns=spread, **counts)
