"""One order for the samples of two batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.stats.ordering import ordered

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.stats.ordering import Order


def common_order(
    before: pd.DataFrame,
    after: pd.DataFrame,
    pairs: pd.DataFrame,
    order: Order,
    metric: str = "mean_abs_diff",
) -> tuple[list[int], list[int]]:
    """Sort the samples of two batches so that pairs stand in the same places.

    Parameters
    ----------
    before, after : DataFrame
        Samples of both, as `samples_of` gives them.
    pairs : DataFrame
        As `partners` gives them.
    order : {"sample", "worst", "rounds", "reward", "group"}
        As in `ordered`. A pair has the larger metric of its two samples, the larger
        number of rounds, and number, reward and group of the first batch's.
    metric : str

    Returns
    -------
    baseline_samples, samples : list of int
        All samples of either batch: pairs first, then those without a partner, which
        are in the same order among themselves.

    Raises
    ------
    FrameError
        If there is no such order, or the samples lack what it needs.

    Examples
    --------
    >>> import pandas as pd
    >>> from rounddiag.stats.partners import partners
    >>> before = pd.DataFrame({"sample": [0, 1], "mean_abs_diff": [0.1, 0.2]})
    >>> after = pd.DataFrame({"sample": [0, 1], "mean_abs_diff": [0.5, 0.1]})
    >>> common_order(before, after, partners(["x", "y"], ["z", "x"]), "sample")
    ([0, 1], [1, 0])
    """
    both = (before, pairs["baseline_sample"]), (after, pairs["sample"])
    first, other = (frame.iloc[place].reset_index(drop=True) for frame, place in both)
    larger = {
        name: np.fmax(first[name].abs(), other[name].abs())
        for name in {metric, "num_rounds"} & {*first.columns}
    }
    rank = ordered(first.assign(**larger), order, metric).index

    def samples(frame: pd.DataFrame, paired: pd.DataFrame) -> list[int]:
        alone = ordered(frame.drop(frame.index[paired["sample"]]), order, metric)
        return [*paired.loc[rank, "sample"].tolist(), *alone["sample"].tolist()]

    return samples(before, first), samples(after, other)
