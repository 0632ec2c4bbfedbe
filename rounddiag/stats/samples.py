"""Samples beside each other: what the mismatch goes with, and how groups spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from rounddiag.core import sample_frame
from rounddiag.schema import SAMPLES
from rounddiag.stats.resampling import MIN_DRAWN, Resampling

if TYPE_CHECKING:
    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]

_VALUE = "mean_abs_diff"
# Other forms of the value itself, and numbers that only name a sample.
_LEFT_OUT = ("sample", "num_nonfinite", "max_abs_diff", "mean_diff", "k3", _VALUE)


def correlations(data: Batch | pd.DataFrame) -> pd.DataFrame:
    """Correlate each sample's mean |diff| with its reward, length and other numbers.

    Intervals are of 999 draws of whole samples, or of groups where there are groups
    (percentiles); with fewer than 10 of them they are NaN. A correlation says nothing
    of what causes what: long samples have more rounds, and both may grow with
    difficulty.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a sample frame.

    Returns
    -------
    DataFrame
        One row a numeric column of the sample frame that varies: `column,
        num_samples, pearson, pearson_low, pearson_high, spearman, spearman_low,
        spearman_high`. Samples without a finite mean or value are left out.

    Raises
    ------
    FrameError
        If a frame lacks `mean_abs_diff`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> found = correlations(rd.load("sample_data/image_window.parquet"))
    >>> found["column"].tolist()[:3]
    ['reward', 'num_rounds', 'num_tokens']
    """
    frame = data if isinstance(data, pd.DataFrame) else sample_frame(data)
    SAMPLES.require(frame.columns, _VALUE)
    names = [
        name
        for name in frame.columns
        if name not in _LEFT_OUT and frame[name].dtype.kind in "biuf"
    ]
    rows = [_row(frame, name) for name in names]
    columns = ["column", "num_samples"]
    for kind in ("pearson", "spearman"):
        columns += [kind, f"{kind}_low", f"{kind}_high"]
    return pd.DataFrame([row for row in rows if row is not None], columns=columns)


def _row(frame: pd.DataFrame, name: str) -> tuple[object, ...] | None:
    x = frame[name].to_numpy(dtype=np.float64)
    y = frame[_VALUE].to_numpy(dtype=np.float64)
    used = np.isfinite(x) & np.isfinite(y)
    x, y = x[used], y[used]
    if len(x) == 0 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    weights = _weights(frame[used])
    plain = _with_interval(x, y, weights)
    ranks = _with_interval(rankdata(x), rankdata(y), weights)
    return name, len(x), *plain, *ranks


def _weights(frame: pd.DataFrame) -> Array:
    """Return how often each draw has each sample; none where clusters are too few."""
    names = frame["group_id"] if "group_id" in frame else np.arange(len(frame))
    clusters = np.unique(names, return_inverse=True)[1]
    num = int(clusters.max(initial=-1)) + 1
    drawn: Array = Resampling(num).weights[:, clusters]
    return drawn if num >= MIN_DRAWN else drawn[:0]


def _with_interval(x: Array, y: Array, weights: Array) -> tuple[float, float, float]:
    """Return Pearson's r, and the middle 95 % of the draws."""
    value = _pearson(x, y, np.ones((1, len(x))))[0]
    drawn = _pearson(x, y, weights)
    known = drawn[np.isfinite(drawn)]
    if len(known) == 0:
        return float(value), float("nan"), float("nan")
    low, high = np.quantile(known, [0.025, 0.975])
    return float(value), float(low), float(high)


def _pearson(x: Array, y: Array, weights: Array) -> Array:
    """Return Pearson's r of each row of weights."""
    num = weights.sum(1)
    x, y = x - x.mean(), y - y.mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_x, mean_y = weights @ x / num, weights @ y / num
        together = weights @ (x * y) / num - mean_x * mean_y
        alone_x = weights @ (x * x) / num - mean_x**2
        alone_y = weights @ (y * y) / num - mean_y**2
        found: Array = together / np.sqrt(alone_x * alone_y)
    return found


def groups(data: Batch | pd.DataFrame) -> pd.DataFrame:
    """Return how far the samples of each group (of one prompt) are apart.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch with `group_ids`, or a sample frame with `group_id`.

    Returns
    -------
    DataFrame
        One row a group, in the order in which they first appear: `group_id,
        num_samples, num_tokens`, the token-weighted `mean_abs_diff`, and the lowest,
        highest and standard deviation of its samples' means: `lowest, highest,
        spread` (NaN of one sample); in nats.

    Raises
    ------
    FrameError
        If there are no groups.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {
    ...         "group_id": ["a", "a"],
    ...         "num_tokens": [1, 3],
    ...         "num_nonfinite": [0, 0],
    ...         "mean_abs_diff": [0.5, 0.1],
    ...     }
    ... )
    >>> groups(frame)[["group_id", "num_samples", "mean_abs_diff", "highest"]]
      group_id  num_samples  mean_abs_diff  highest
    0        a            2            0.2      0.5
    """
    frame = data if isinstance(data, pd.DataFrame) else sample_frame(data)
    needed = ("group_id", "num_tokens", "num_nonfinite", _VALUE)
    SAMPLES.require(frame.columns, *needed)
    finite = frame["num_tokens"] - frame["num_nonfinite"]
    total = frame[_VALUE].fillna(0) * finite
    by_group = frame.assign(finite=finite, total=total).groupby("group_id", sort=False)
    found = by_group.agg(
        num_samples=(_VALUE, "size"),
        num_tokens=("num_tokens", "sum"),
        finite=("finite", "sum"),
        total=("total", "sum"),
        lowest=(_VALUE, "min"),
        highest=(_VALUE, "max"),
        spread=(_VALUE, "std"),
    ).reset_index()
    mean = found.pop("total") / found.pop("finite").replace(0, np.nan)
    found.insert(3, _VALUE, mean)
    return found
