"""Pairs of samples with the same id in two batches, and how their cells differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from rounddiag.core.scores import tag_pair
from rounddiag.schema import ROUNDS, mean_column


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
