"""What differs most between two batches that share their samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.stats.ranking import worst_cells, worst_samples

if TYPE_CHECKING:
    import pandas as pd

_SAID = ("num_tokens", "baseline_mean", "mean", "difference", "low")


def worst_differences(
    before: pd.DataFrame, after: pd.DataFrame, pairs: pd.DataFrame, num: int = 20
) -> dict[str, pd.DataFrame]:
    r"""Return the rounds and samples that surely differ most, the most first.

    Means :math:`m_0, m_1` with the lower bounds :math:`l_0, l_1` that `worst_cells` and
    `worst_samples` give them are ordered by a lower bound of the size of their
    difference, :math:`|m_1 - m_0| - \sqrt{(m_0 - l_0)^2 + (m_1 - l_1)^2}`: batches are
    taken as independent, so what a pair has in common makes it too low. Where it is not
    above 0, by the size itself.

    Parameters
    ----------
    before, after : DataFrame
        Token frames of the first batch, and of the one compared with it.
    pairs : DataFrame
        As `partners` gives them.
    num : int
        How many of each at most.

    Returns
    -------
    dict of DataFrame
        `rounds` and `samples` whose means differ, which have at least 20 finite diffs
        in both batches unless none of a batch has: `sample_id, baseline_sample,
        sample`, `round` of rounds, `num_tokens` in the other batch, `baseline_mean` and
        `mean` of |diff|, `difference` and `low`, in nats.

    Raises
    ------
    FrameError
        If a column is missing.

    Examples
    --------
    >>> import rounddiag as rd
    >>> from rounddiag.stats.partners import partners
    >>> batches = [
    ...     rd.load(f"sample_data/{name}.parquet") for name in ("healthy", "stale")
    ... ]
    >>> pairs = partners(*(batch.sample_ids for batch in batches))
    >>> found = worst_differences(*map(rd.token_frame, batches), pairs, num=1)
    >>> found["samples"][["sample", "difference"]].round(3)
       sample  difference
    0      13       0.059
    """
    kinds = {"rounds": worst_cells, "samples": worst_samples}
    found = {}
    for name, worst in kinds.items():
        first, other = (worst(frame, num=len(frame)) for frame in (before, after))
        found[name] = _worst_of(first, other, pairs).head(num).reset_index(drop=True)
    return found


def _worst_of(
    before: pd.DataFrame, after: pd.DataFrame, pairs: pd.DataFrame
) -> pd.DataFrame:
    """Join means of pairs, and order them by the lower bound of their difference."""
    keys = [name for name in ("round",) if name in before]
    first, other = (
        frame.rename(columns={"mean_abs_diff": "mean"}).assign(
            square=np.square(frame["mean_abs_diff"] - frame["low"])
        )[["sample", *keys, "num_tokens", "mean", "square"]]
        for frame in (before, after)
    )
    found = other.merge(pairs, on="sample").merge(
        first.rename(columns={"sample": "baseline_sample"}),
        on=["baseline_sample", *keys],
        suffixes=("", "_of_baseline"),
    )
    difference = found["mean"] - found["mean_of_baseline"]
    reach = np.sqrt(found["square"] + found["square_of_baseline"])
    found = found.assign(
        baseline_mean=found["mean_of_baseline"],
        difference=difference,
        low=difference.abs() - reach,
    )
    columns = ["sample_id", "baseline_sample", "sample", *keys, *_SAID]
    rank = np.lexsort((-difference.abs(), -found["low"].clip(lower=0)))
    return found.iloc[rank].loc[difference != 0, columns]
