"""Rounds of samples that two batches share: how much more they differ in the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.core.pairs import told
from rounddiag.schema import ROUNDS, mean_column

if TYPE_CHECKING:
    import pandas as pd

# What a frame of differences says that they are of.
METRIC = "metric"


def paired_cells(
    before: pd.DataFrame,
    after: pd.DataFrame,
    pairs: pd.DataFrame,
    metric: str = "mean_abs_diff",
) -> pd.DataFrame:
    """Return the rounds that both samples of a pair have, and what they differ by.

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
        The rows of `after` whose round the partner has too, with `sample_id,
        baseline_sample, num_baseline_tokens`, the metric of the first batch as
        `baseline_mean`, and the `difference` from it, positive where it is larger than
        in the first batch, in the metric's unit; NaN where either is.
        `attrs["metric"]` says of what.

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
    metric = mean_column(metric)
    for frame in (before, after):
        ROUNDS.require(frame.columns, *ROUNDS.keys, "num_tokens", metric)
    first = before[["sample", "round", "num_tokens", metric]].rename(
        columns={
            "sample": "baseline_sample",
            "num_tokens": "num_baseline_tokens",
            metric: "baseline_mean",
        }
    )
    own = after.drop(columns="sample_id", errors="ignore")
    found = own.merge(pairs, on="sample").merge(first, on=["baseline_sample", "round"])
    found["difference"] = found[metric] - found["baseline_mean"]
    found.attrs[METRIC] = metric
    return told(found, after)
