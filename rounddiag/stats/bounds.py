"""Lower bounds of mean |diff|, of the rounds of samples and of samples.

`stats.ranking` says what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import rounds_of_tokens
from rounddiag.stats.combining import combined

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, Any]

_QUANTILE = 1.96  # a normal variable is lower in 97.5 % of draws
_AGGREGATES = ["mean_abs_diff", "low", "num_tokens", "num_nonfinite"]


def cell_bounds(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return mean and lower bound of every round of a sample, in nats."""
    rounds = rounds_of_tokens(tokens)
    num, mean = rounds["num_tokens"].to_numpy(), rounds["mean_abs_diff"].to_numpy()
    apart = tokens["diff"].abs().to_numpy(np.float64) - np.repeat(mean, num)
    squares = np.square(np.where(np.isfinite(apart), apart, 0))
    begins = (np.cumsum(num) - num).astype(np.int64)
    sums = np.add.reduceat(squares, begins) if len(rounds) else mean
    num_finite = num - rounds["num_nonfinite"].to_numpy()
    low = _low(mean, sums, num_finite, num_finite)
    return rounds.assign(low=low)[["sample", "round", *_AGGREGATES]]


def sample_bounds(cells: pd.DataFrame) -> pd.DataFrame:
    """Return mean and lower bound of every sample, from its cells, and `num_rounds`."""
    found = combined(cells, "sample").rename(columns={"num_rows": "num_rounds"})
    row = np.searchsorted(found["sample"], cells["sample"])
    mean = found["mean_abs_diff"].to_numpy()

    def added(values: Array) -> Array:
        return np.bincount(row, values, len(found))

    num_finite = (cells["num_tokens"] - cells["num_nonfinite"]).to_numpy()
    apart = np.nan_to_num(num_finite * (cells["mean_abs_diff"].to_numpy() - mean[row]))
    num_used = added(num_finite > 0)
    low = _low(mean, added(np.square(apart)), num_used, added(num_finite))
    is_only = (num_finite > 0) & (num_used[row] == 1)
    alone = added(np.where(is_only, cells["low"], 0))
    found = found.assign(
        low=np.where(num_used > 1, low, alone),
        num_nonfinite=added(cells["num_nonfinite"].to_numpy()).astype(np.int64),
    )
    return found[["sample", *_AGGREGATES, "num_rounds"]]


def _low(mean: Array, squares: Array, num_units: Array, num_tokens: Array) -> Array:
    """Return the lower bound of means over units that vary; NaN of one unit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(num_units > 1, num_units / (num_units - 1), np.nan)
        low: Array = mean - _QUANTILE * np.sqrt(scale * squares) / num_tokens
    return low
