"""A round frame as matrices of samples and rounds, and the outline of what lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.schema import ROUNDS

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Matrices with a row per sample and a column per round.

    Attributes
    ----------
    there : array of bool
        Whether the sample has the round.
    num_tokens : array of unsigned int
    columns : dict of str to array of float32
        NaN where the round is missing, or has no finite value.
    """

    there: Array
    num_tokens: Array
    columns: dict[str, Array]

    def undefined(self, column: str) -> Array:
        """Mark the cells whose round is there, but without a finite value."""
        marked: Array = self.there & np.isnan(self.columns[column])
        return marked


def grid_of(rounds: pd.DataFrame, num_samples: int, *columns: str) -> Grid:
    """Spread these columns of a round frame over samples and rounds."""
    sample, round_ = (rounds[key].to_numpy() for key in ROUNDS.keys)
    shape = (num_samples, int(round_.max()) + 1 if len(rounds) else 0)
    there = np.zeros(shape, dtype=bool)
    there[sample, round_] = True
    # The narrowest type: a figure of 512 samples and 60 rounds stays under 500 kB.
    most = int(rounds["num_tokens"].max()) if len(rounds) else 0
    num_tokens = np.zeros(shape, dtype=np.min_scalar_type(most))
    num_tokens[sample, round_] = rounds["num_tokens"]
    spread = {name: np.full(shape, np.nan, dtype=np.float32) for name in columns}
    for name, cells in spread.items():
        cells[sample, round_] = rounds[name]
    return Grid(there=there, num_tokens=num_tokens, columns=spread)
