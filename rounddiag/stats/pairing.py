"""Pairs of samples with the same id in two batches, and how their cells differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from rounddiag.core.scores import tag_pair
from rounddiag.schema import ROUNDS, mean_column
from rounddiag.stats.worst import worst_cells, worst_samples


def index_by_id(ids: Sequence[str] | None) -> dict[str, int]:
    """Return the sample of each id; an id of several samples is left out.

    Examples
    --------
    >>> index_by_id(["x", "y", "x"])
    {'y': 1}
    """
    once = {name for name, num in Counter(ids or ()).items() if num == 1}
    return {name: place for place, name in enumerate(ids or ()) if name in once}


def shared_ids(
    before: Mapping[str, int], after: Mapping[str, int], num_smaller: int
) -> list[str]:
    """Return the ids that two batches share, in the order of the first."""
    shared = [name for name in before if name in after]
    return shared if 2 * len(shared) >= num_smaller else []


def pair_samples(
    before: Sequence[str] | None, after: Sequence[str] | None
) -> pd.DataFrame:
    """Pair the samples of two batches by their ids.

    Parameters
    ----------
    before, after : sequence of str, optional
        `Batch.sample_ids` of the first batch, and of the one compared with it.

    Returns
    -------
    DataFrame
        `sample_id`, `baseline_sample` and `sample` (numbers in the first batch and in
        the other): one row per pair, in the order of the first batch. Empty if fewer
        than half of the smaller batch's samples are in both.

    Examples
    --------
    >>> pair_samples(["x", "y", "z"], ["z", "x"])
      sample_id  baseline_sample  sample
    0         x                0       1
    1         z                2       0
    """
    first, other = index_by_id(before), index_by_id(after)
    num_smaller = min(len(before or ()), len(after or ()))
    rows = [
        (name, first[name], other[name])
        for name in shared_ids(first, other, num_smaller)
    ]
    columns = {"sample_id": "object", "baseline_sample": "int32", "sample": "int32"}
    return pd.DataFrame(rows, columns=[*columns]).astype(columns)


# Key in `attrs` of a frame of differences: the metric.
METRIC = "metric"


def paired_cells(
    before: pd.DataFrame,
    after: pd.DataFrame,
    pairs: pd.DataFrame,
    metric: str = "mean_abs_diff",
) -> pd.DataFrame:
    """Return the rounds that both samples of a pair have, with their differences.

    Parameters
    ----------
    before, after : DataFrame
        Round frames of the first batch, and of the one compared with it.
    pairs : DataFrame
        As `pair_samples` gives them.
    metric : str
        A column of both.

    Returns
    -------
    DataFrame
        The rows of `after` whose round the partner has too, with `sample_id,
        baseline_sample, num_baseline_tokens`, the metric of the first batch as
        `baseline_mean`, and the `difference` from it, positive where it is larger than
        in the first batch, in the metric's unit; NaN where either is.
        `attrs["metric"]` names the metric.

    Examples
    --------
    >>> import pandas as pd
    >>> from rounddiag.stats import pair_samples
    >>> before = pd.DataFrame(
    ...     {"sample": [0], "round": [0], "num_tokens": [3], "mean_abs_diff": [0.25]}
    ... )
    >>> after = before.assign(mean_abs_diff=1.0)
    >>> paired_cells(before, after, pair_samples(["x"], ["x"]))["difference"].tolist()
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
    cells = own.merge(pairs, on="sample").merge(first, on=["baseline_sample", "round"])
    cells["difference"] = cells[metric] - cells["baseline_mean"]
    cells.attrs[METRIC] = metric
    return tag_pair(cells, after)


_RESULT_COLUMNS = ("num_tokens", "baseline_mean", "mean", "difference", "low")


def worst_differences(
    before: pd.DataFrame, after: pd.DataFrame, pairs: pd.DataFrame, num: int = 20
) -> dict[str, pd.DataFrame]:
    r"""Return the rounds and samples that differ most with confidence, largest first.

    Means :math:`m_0, m_1` with the lower bounds :math:`l_0, l_1` that `worst_cells` and
    `worst_samples` give them are ordered by a lower bound of the size of their
    difference, :math:`|m_1 - m_0| - \sqrt{(m_0 - l_0)^2 + (m_1 - l_1)^2}`: batches are
    treated as independent, so the bound is too low where the samples of a pair are
    correlated. Where it is not above 0, the size itself decides.

    Parameters
    ----------
    before, after : DataFrame
        Token frames of the first batch, and of the one compared with it.
    pairs : DataFrame
        As `pair_samples` gives them.
    num : int
        Maximum number of each.

    Returns
    -------
    dict of DataFrame
        `rounds` and `samples` whose means differ: `sample_id, baseline_sample, sample`,
        `round` of rounds, `num_tokens` in the other batch, `baseline_mean` and `mean`
        of |diff|, `difference` and `low`, in nats.

    Examples
    --------
    >>> import rounddiag as rd
    >>> from rounddiag.stats import pair_samples
    >>> batches = [
    ...     rd.load(f"sample_data/{name}.parquet") for name in ("healthy", "stale")
    ... ]
    >>> pairs = pair_samples(*(batch.sample_ids for batch in batches))
    >>> worst = worst_differences(*map(rd.token_frame, batches), pairs, num=1)
    >>> worst["samples"][["sample", "difference"]].round(3)
       sample  difference
    0       5       0.054
    """
    kinds = {"rounds": worst_cells, "samples": worst_samples}
    ranked = {}
    for name, worst in kinds.items():
        first, other = (worst(frame, num=len(frame)) for frame in (before, after))
        ranked[name] = _join_worst(first, other, pairs).head(num).reset_index(drop=True)
    return ranked


def _join_worst(
    before: pd.DataFrame, after: pd.DataFrame, pairs: pd.DataFrame
) -> pd.DataFrame:
    """Join the means of pairs, sorted by the lower bound of their difference."""
    keys = [name for name in ("round",) if name in before]
    first, other = (
        frame.rename(columns={"mean_abs_diff": "mean"}).assign(
            square=np.square(frame["mean_abs_diff"] - frame["low"])
        )[["sample", *keys, "num_tokens", "mean", "square"]]
        for frame in (before, after)
    )
    rows = other.merge(pairs, on="sample").merge(
        first.rename(columns={"sample": "baseline_sample"}),
        on=["baseline_sample", *keys],
        suffixes=("", "_of_baseline"),
    )
    difference = rows["mean"] - rows["mean_of_baseline"]
    reach = np.sqrt(rows["square"] + rows["square_of_baseline"])
    rows = rows.assign(
        baseline_mean=rows["mean_of_baseline"],
        difference=difference,
        low=difference.abs() - reach,
    )
    columns = ["sample_id", "baseline_sample", "sample", *keys, *_RESULT_COLUMNS]
    rank = np.lexsort((-difference.abs(), -rows["low"].clip(lower=0)))
    return rows.iloc[rank].loc[difference != 0, columns]
