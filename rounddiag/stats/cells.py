"""Means of tokens that are divided into cells, with intervals: one definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.core.measures import MEASURES
from rounddiag.stats.estimator import Estimator
from rounddiag.stats.resampling import Resampling

if TYPE_CHECKING:
    from rounddiag.core.measures import Measure

    Array = np.ndarray[Any, Any]


def cell_means(
    values: Array,
    cell: Array,
    sample: Array,
    cluster: Array | None = None,
    *,
    measure: Measure = MEASURES["abs_diff"],
) -> pd.DataFrame:
    """Return the mean of each cell's finite values, with a clustered interval.

    Parameters
    ----------
    values : ndarray of float, shape (num_tokens,)
    cell, sample : ndarray of int, shape (num_tokens,)
        Counted from 0.
    cluster : ndarray of int, shape (num_samples,), optional
        What each sample goes together with when the interval is made, counted from 0;
        each sample alone where left out.
    measure : Measure
        What the values are: whether they have a sign, and what counts alike in a mean.

    Returns
    -------
    DataFrame
        One row a cell that has tokens: `cell, num_samples, num_tokens, num_nonfinite,
        mean, ci_low, ci_high, is_few`.

    Examples
    --------
    >>> cell, sample = np.array([0, 0, 2]), np.array([0, 0, 0])
    >>> found = cell_means(np.array([1.0, 3.0, 5.0]), cell, sample)
    >>> found[["cell", "num_tokens", "mean"]]
       cell  num_tokens  mean
    0     0           2   2.0
    1     2           1   5.0
    """
    shape = int(sample.max(initial=-1)) + 1, int(cell.max(initial=-1)) + 1
    place = sample.astype(np.int64) * shape[1] + cell
    num_tokens = _added(place, shape)
    finite = np.isfinite(values)
    if not finite.all():
        place, values = place[finite], values[finite]
    counts, totals = _added(place, shape), _added(place, shape, values)
    clusters = np.arange(shape[0]) if cluster is None else cluster[: shape[0]]
    num_finite = counts.sum(0)
    frame = pd.DataFrame(
        {
            "cell": np.arange(shape[1]),
            "num_samples": np.count_nonzero(num_tokens, axis=0),
            "num_tokens": num_tokens.sum(0).astype(np.int64),
            "num_nonfinite": (num_tokens.sum(0) - num_finite).astype(np.int64),
            **_means(totals, counts, clusters, measure),
        }
    )
    return frame[frame["num_tokens"] > 0].reset_index(drop=True)


def _added(place: Array, shape: tuple[int, int], weights: Array | None = None) -> Array:
    """Add up what falls on each sample and cell."""
    flat = np.bincount(place, weights, shape[0] * shape[1])
    return flat.astype(np.float64, copy=False).reshape(shape)


def _means(
    totals: Array, counts: Array, cluster: Array, measure: Measure
) -> pd.DataFrame:
    """Return the mean of each cell, the ends of its interval, and if it is of few."""
    how = Estimator(measure=measure, weight="token", ci=0.95)
    draws = Resampling(int(cluster.max(initial=-1)) + 1)
    runs = {"sample": np.arange(len(counts)), "cluster": cluster}
    parts = [
        ({**runs, "num_finite": of}, total)
        for total, of in zip(totals.T, counts.T, strict=True)
    ]
    of_cells = how.means(parts, draws)
    types = dict.fromkeys(("mean", "ci_low", "ci_high"), float) | {"is_few": bool}
    return pd.DataFrame(of_cells, columns=[*types]).astype(types)
