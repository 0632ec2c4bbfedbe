"""Two runs, paired by step: what both have, and how they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def pair_rounds(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Pair the rounds of the steps that two runs share.

    Parameters
    ----------
    before, after : DataFrame
        Summaries of two runs, as `Run.summary` returns them.

    Returns
    -------
    DataFrame
        `step, round, num_samples, mean`, those of the first run as
        `num_baseline_samples, baseline_mean`, and the `difference` of both means.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = ["step", "round", "num_samples", "mean"]
    >>> before = pd.DataFrame([[1, 0, 8, 0.5], [2, 0, 8, 0.5]], columns=columns)
    >>> after = pd.DataFrame([[2, 0, 9, 0.75]], columns=columns)
    >>> pair_rounds(before, after)[["step", "baseline_mean", "mean", "difference"]]
       step  baseline_mean  mean  difference
    0     2            0.5  0.75        0.25
    """
    columns = ["step", "round", "num_samples", "mean"]
    names = {"num_samples": "num_baseline_samples", "mean": "baseline_mean"}
    first = before[columns].rename(columns=names)
    pairs = first.merge(after[columns], on=["step", "round"])
    return pairs.assign(difference=pairs["mean"] - pairs["baseline_mean"])


def average_steps(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each step over the tokens of all its rounds.

    Exact where the means of rounds are over tokens.

    Parameters
    ----------
    summary : DataFrame
        As `Run.summary` returns it.

    Returns
    -------
    DataFrame
        `step, num_tokens, mean`; a mean is NaN where no token has a finite diff.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [[1, 0, 3, 0, 0.5], [1, 1, 2, 1, 2.5]]
    >>> names = ["step", "round", "num_tokens", "num_nonfinite", "mean"]
    >>> average_steps(pd.DataFrame(rows, columns=names))
       step  num_tokens  mean
    0     1           5   1.0
    """
    finite = summary["num_tokens"] - summary["num_nonfinite"]
    sums = summary[["step", "num_tokens"]].assign(
        finite=finite, total=(summary["mean"] * finite).where(finite > 0, 0.0)
    )
    added = sums.groupby("step", as_index=False).sum()
    mean = added["total"] / added["finite"].where(added["finite"] > 0)
    return added[["step", "num_tokens"]].assign(mean=mean)
