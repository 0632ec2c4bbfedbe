"""Survivorship: the samples that reach a round, measured at earlier rounds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rounddiag.core.aggregation import means_of_sums
from rounddiag.errors import refuse
from rounddiag.stats.inputs import Data, open_measured


@refuse("by", "Pass the samples of a value: `batch.where(...)`.")
def survivors(data: Data, *, a: str = "old", b: str = "rollout") -> pd.DataFrame:
    r"""Split the change since round 0 into composition and change within samples.

    Fewer samples reach later rounds, and they are different ones: long trajectories.
    With :math:`m_k` the mean |diff| at round k, and :math:`m_0^{(k)}` that at round 0
    of the samples that reach k,

    .. math:: m_k - m_0 = (m_0^{(k)} - m_0) + (m_k - m_0^{(k)})

    the first part is composition, the second the change within samples. Means are over
    tokens whose diff is finite.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame.
    a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        One row per round: `round, num_samples, mean_abs_diff, first_mean_abs_diff` (of
        the samples that reach the round, at round 0), and `change`, which is
        `composition + within` exactly. In nats; NaN where a mean has no finite diff.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {"sample": [0, 1, 1], "round": [0, 0, 1], "diff": [0.25, 0.75, 1.0]}
    ... )
    >>> survivors(frame)[["round", "change", "composition", "within"]]
       round  change  composition  within
    0      0     0.0         0.00    0.00
    1      1     0.5         0.25    0.25
    """
    rounds = open_measured(data, a, b).rounds
    index = rounds["round"].to_numpy()
    samples, sample = np.unique(rounds["sample"].to_numpy(), return_inverse=True)
    last = np.full(len(samples), -1, dtype=np.int64)
    np.maximum.at(last, sample, index)
    # Samples with more rounds come first: so do those that reach a round.
    place = np.argsort(np.argsort(-last, kind="stable"))
    shape = int(index.max(initial=-1)) + 1, len(samples)
    reached = np.searchsorted(np.sort(last), np.arange(shape[0]))
    num_samples = len(samples) - reached
    num = (rounds["num_tokens"] - rounds["num_nonfinite"]).to_numpy(dtype=np.float64)
    sums = np.where(num > 0, rounds["mean_abs_diff"].to_numpy(), 0) * num
    cell = index.astype(np.int64) * shape[1] + place[sample]
    # Summed, because the rows of one round need not be adjacent in a token frame.
    totals, counts = (
        np.bincount(cell, part, shape[0] * shape[1]).reshape(shape)
        for part in (sums, num)
    )
    means = means_of_sums(totals.sum(axis=1), counts.sum(axis=1))
    first = means_of_sums(
        *(table[:1].cumsum()[num_samples - 1] for table in (totals, counts))
    )
    composition, within = first - means[:1], means - first
    return pd.DataFrame(
        {
            "round": np.arange(shape[0], dtype=np.int32),
            "num_samples": num_samples,
            "mean_abs_diff": means,
            "first_mean_abs_diff": first,
            "change": composition + within,
            "composition": composition,
            "within": within,
        }
    )
