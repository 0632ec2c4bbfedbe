"""Rounds of samples that two batches share: how much more they differ in the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.schema import ROUNDS

if TYPE_CHECKING:
    import pandas as pd

# What the columns of the first batch are called beside those of the other.
OF_BASELINE = {
    "sample": "baseline_sample",
    "num_tokens": "num_baseline_tokens",
    "mean": "baseline_mean",
}
OF_PAIR = ["sample_id", "baseline_sample", "sample"]


def paired_cells(
    before: pd.DataFrame,
    after: pd.DataFrame,
    pairs: pd.DataFrame,
    metric: str = "mean_abs_diff",
) -> pd.DataFrame:
    """Return the rounds that both samples of a pair have, and their difference.

    Parameters
    ----------
    before, after : DataFrame
        Round frames of the first batch, and of the one compared with it.
    pairs : DataFrame
        As `partners` gives them.
    metric : str
        A column of both.

    Returns
    -------
    DataFrame
        One row for each pair and round that both have, in the order of `after`:
        `sample_id, baseline_sample, sample, round, num_baseline_tokens, num_tokens`,
        the metric as `baseline_mean` and `mean`, and `difference`, which is positive
        where it is larger than in the first batch, in the metric's unit; NaN where
        either is.

    Raises
    ------
    FrameError
        If a column is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from rounddiag.stats.partners import partners
    >>> before = pd.DataFrame(
    ...     {"sample": [0], "round": [0], "num_tokens": [3], "mean_abs_diff": [0.25]}
    ... )
    >>> after = before.assign(mean_abs_diff=1.0)
    >>> paired_cells(before, after, partners(["x"], ["x"]))["difference"].tolist()
    [0.75]
    """
    sides = [_side(frame, metric) for frame in (before, after)]
    found = (
        sides[1]
        .merge(pairs, on="sample")
        .merge(sides[0].rename(columns=OF_BASELINE), on=["baseline_sample", "round"])
    )
    found["difference"] = found["mean"] - found["baseline_mean"]
    counts = ["num_baseline_tokens", "num_tokens"]
    means = ["baseline_mean", "mean", "difference"]
    return found[[*OF_PAIR, "round", *counts, *means]]


def _side(rounds: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return what is compared of a round frame, the metric as `mean`."""
    ROUNDS.require(rounds.columns, *ROUNDS.keys, "num_tokens", metric)
    columns = ["sample", "round", "num_tokens", metric]
    return rounds[columns].rename(columns={metric: "mean"})
