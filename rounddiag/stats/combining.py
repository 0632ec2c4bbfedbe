"""Rows of a round frame that become one: a sample's, a round's, a pool's."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rounddiag.schema import ROUNDS

# What a round frame says of the diffs of each row, means unless named here.
AGGREGATES = tuple(c.name for c in ROUNDS.columns if c.dtype == "float64")
_LARGEST = ("max_abs_diff",)
# What `stats.cell_frame` and `stats.paired_cells` add, means too.
_MORE = ("prob_diff", "beyond", "difference")


def combined(rounds: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Combine the rows of a round frame that have the same keys.

    Parameters
    ----------
    rounds : DataFrame
        With the keys, `sample`, `num_tokens` and `mean_abs_diff`; rows whose mean is
        NaN have no finite diff.
    *keys : str

    Returns
    -------
    DataFrame
        One row for each of the keys' values, ascending: the keys, `num_rows`,
        `num_tokens`, and those aggregates of the round frame that it has: means over
        tokens, of `prob_diff`, `beyond` and `difference` too, and the largest
        `max_abs_diff`. Rows without a difference count for none, where there are some.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {
    ...         "sample": [0, 1],
    ...         "round": [0, 0],
    ...         "num_tokens": [3, 1],
    ...         "mean_abs_diff": [0.1, 0.5],
    ...     }
    ... )
    >>> combined(frame, "round")
       round  num_rows  num_tokens  mean_abs_diff
    0      0         2           4            0.2
    """
    num = rounds["num_tokens"]
    if "num_nonfinite" in rounds:
        num = num - rounds["num_nonfinite"]
    needed = {"mean_abs_diff", "difference"} & {*rounds.columns}
    num = num.where(rounds[[*needed]].notna().all(axis=1), 0)
    names = [name for name in (*AGGREGATES, *_MORE) if name in rounds]
    means = [name for name in names if name not in _LARGEST]
    sums = rounds[means].mul(num, axis=0)
    counts = {"num_rows": 1, "num_tokens": rounds["num_tokens"], "num_finite": num}
    parts = [rounds[[*keys]], pd.DataFrame(counts), sums]
    by_keys = pd.concat(parts, axis=1).groupby([*keys])
    found = by_keys.sum().reset_index()
    num_finite = found.pop("num_finite").replace(0, np.nan)
    found[means] = found[means].div(num_finite, axis=0)
    for name in set(names) - set(means):
        found[name] = rounds.groupby([*keys])[name].max().to_numpy()
    return found


def extremes(rounds: pd.DataFrame, column: str, *keys: str) -> pd.Series[float]:
    """Return the value that is farthest from zero among the rows with the same keys.

    Parameters
    ----------
    rounds : DataFrame
    column : str
        NaN only where no row has a number.
    *keys : str

    Returns
    -------
    Series
        Signs kept, in the order of `combined`.

    Examples
    --------
    >>> frame = pd.DataFrame({"round": [0, 0], "mean_diff": [0.1, -0.5]})
    >>> extremes(frame, "mean_diff", "round").tolist()
    [-0.5]
    """
    order = np.argsort(rounds[column].abs().to_numpy(), kind="stable")
    found: pd.Series[float] = rounds.iloc[order].groupby([*keys])[column].last()
    return found.reset_index(drop=True)
