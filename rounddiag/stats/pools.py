"""Samples one under the other; neighbours share a row where there are many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.stats.combining import combined, extremes

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

Pooling: TypeAlias = Literal["max", "mean"]

MAX_ROWS = 400
# Cells of a figure whose JSON stays under 500 kB.
_MAX_CELLS = 14_400
_FACTS = ("sample_id", "group_id", "reward")


def samples_of(
    data: Batch | pd.DataFrame, rounds: pd.DataFrame, num_samples: int
) -> pd.DataFrame:
    """Return one row per sample of a round frame, also of those without rounds.

    Parameters
    ----------
    data : Batch or DataFrame
        What the rounds are of. A frame can have `sample_id`, `group_id` and `reward`,
        the same in all rounds of a sample.
    rounds : DataFrame
    num_samples : int

    Returns
    -------
    DataFrame
        `sample, num_rounds, num_tokens`, the aggregates of `rounds` over the whole
        sample, and what is known of `sample_id, group_id, reward`.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame(
    ...     {"sample": [1], "round": [0], "num_tokens": [3], "mean_abs_diff": [0.1]}
    ... )
    >>> samples_of(frame, frame, 2)
       sample  num_rounds  num_tokens  mean_abs_diff
    0       0           0           0            NaN
    1       1           1           3            0.1
    """
    found = combined(rounds, "sample").rename(columns={"num_rows": "num_rounds"})
    found = found.set_index("sample").reindex(range(num_samples)).rename_axis("sample")
    counts = ["num_rounds", "num_tokens"]
    found[counts] = found[counts].fillna(0).astype("int64")
    if isinstance(data, Batch):
        rewards = None if data.rewards is None else data.rewards.double().cpu().numpy()
        facts = zip(_FACTS, (data.sample_ids, data.group_ids, rewards), strict=True)
        known: dict[str, Any] = {k: values for k, values in facts if values is not None}
    else:
        first = rounds.drop_duplicates("sample").set_index("sample")
        known = {name: first[name] for name in _FACTS if name in first}
    return found.assign(**known).reset_index()


def pool_of(num_samples: int, num_rounds: int) -> int:
    """Say how many neighbours share a row; none up to 400 rows and 14,400 cells.

    Examples
    --------
    >>> pool_of(400, 36), pool_of(401, 1), pool_of(400, 60), pool_of(5000, 100)
    (1, 2, 2, 35)
    """
    most = min(MAX_ROWS, max(_MAX_CELLS // max(num_rounds, 1), 1))
    return max(1, -(-num_samples // most))


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of samples: one each, or pools of as many neighbours each.

    Attributes
    ----------
    samples : DataFrame
        As given by `samples_of`, in the order in which they stand.
    """

    samples: pd.DataFrame

    @property
    def pool(self) -> int:
        """How many samples share a row; the last row may have fewer."""
        num_rounds = self.samples["num_rounds"].max() if len(self.samples) else 0
        return pool_of(len(self.samples), int(num_rounds))

    @property
    def num(self) -> int:
        """How many rows there are."""
        return -(-len(self.samples) // self.pool)

    def rounds(
        self, rounds: pd.DataFrame, metric: str, pooling: Pooling
    ) -> pd.DataFrame:
        """Return one row for each of these rows and rounds.

        Returns
        -------
        DataFrame
            As `combined` gives it, with the keys `row` and `round`, and `shown`: the
            metric, for a pool its largest value (in size) or its mean over tokens.
        """
        order = self.samples["sample"]
        rank = pd.Series(np.arange(len(order)), index=order)
        rounds = rounds[rounds["sample"].isin(rank.index)]
        placed = rounds.assign(row=rank[rounds["sample"]].to_numpy() // self.pool)
        if self.pool == 1:
            return placed.assign(num_rows=1, shown=placed[metric])
        found = combined(placed, "row", "round")
        if pooling == "mean":
            return found.assign(shown=found[metric])
        return found.assign(shown=extremes(placed, metric, "row", "round"))

    def means(self, column: str) -> Array:
        """Return the mean of a column over the samples of each row; NaN if unknown."""
        row = np.arange(len(self.samples)) // self.pool
        found: Array = self.samples[column].groupby(row).mean().to_numpy()
        return found
