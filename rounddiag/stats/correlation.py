"""Correlation of a sample's mismatch with its reward, length and entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rounddiag.core import sample_frame, token_frame
from rounddiag.core.aggregation import means_of_sums
from rounddiag.schema import SAMPLES
from rounddiag.stats.grouping import apply_by_part, number_values, split_samples_by
from rounddiag.stats.inputs import without_worst_picks
from rounddiag.stats.intervals import MIN_DRAWN, Resampling

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.batch import Batch


_MISMATCH = "mean_abs_diff"
# Other forms of the mismatch itself, and numbers that only name a sample.
_EXCLUDED = (
    "sample",
    "num_nonfinite",
    "max_abs_diff",
    "mean_diff",
    "k3",
    _MISMATCH,
)
_KINDS = ("pearson", "spearman")
_COLUMNS = (
    "column",
    "num_samples",
    *(f"{k}{end}" for k in _KINDS for end in ("", "_low", "_high")),
)
# A variance this small, of values scaled to variance 1, is rounding.
_ROUNDING = 1e-12
# Nearer to 1 than this a correlation is 1: its Fisher transform stays finite.
_NEAR_ONE = 1 - 1e-12


def correlations(data: Batch | pd.DataFrame, *, by: str | None = None) -> pd.DataFrame:
    r"""Correlate each sample's mean |diff| with its reward, length, entropy and others.

    A correlation does not show a cause: long samples have more rounds, and both may
    grow with difficulty.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a sample frame. Of a partial capture, only the samples drawn at
        random count.
    by : str, optional
        A column with one value per sample: rows for each value, which comes first.

    Returns
    -------
    DataFrame
        One row per numeric column of the sample frame that varies, and one for the mean
        `entropy` of each sample's tokens, if the batch has it: `column, num_samples,
        pearson, pearson_low, pearson_high, spearman, spearman_low,
        spearman_high`. Samples without a finite mean or value are left out.

    Raises
    ------
    FrameError
        If a frame lacks `mean_abs_diff`, or `by` has several values in a sample.

    Notes
    -----
    The interval of a correlation :math:`r` is
    :math:`\tanh(\mathrm{artanh}\,r \pm t s)`: :math:`s` is the standard deviation of
    :math:`\mathrm{artanh}\,r^*` over 999 draws of whole samples, or of groups where
    there are groups; :math:`t` is the 97.5 % quantile with one degree of freedom less
    than there are of these. With fewer than 10 there is no interval. Measured by
    `tests/benchmarks/coverage_of_correlations.py` with 10, 16 and 64 samples or groups
    of eight (lognormal mismatch, rewards of two values or normal, r of 0 and 0.6),
    intervals that should cover 95 % cover 90 to 99 %.

    References
    ----------
    R. A. Fisher, "On the probable error of a coefficient of correlation", 1921.

    Examples
    --------
    >>> import rounddiag as rd
    >>> found = correlations(rd.load("sample_data/image_window.parquet"))
    >>> found["column"].tolist()[:3]
    ['reward', 'num_rounds', 'num_tokens']
    """
    data = without_worst_picks(data, "sample")
    samples = data if isinstance(data, pd.DataFrame) else _samples(data)
    SAMPLES.require(samples.columns, _MISMATCH)
    return apply_by_part(samples, split_samples_by(data, samples, by), _correlations)


def _samples(batch: Batch) -> pd.DataFrame:
    """Return the sample frame, with the mean entropy of each sample if it is known."""
    samples = sample_frame(batch)
    if batch.entropy is None:
        return samples
    tokens = token_frame(batch, ["entropy"])
    entropy, sample = tokens["entropy"].to_numpy(), tokens["sample"].to_numpy()
    finite = np.isfinite(entropy)
    counts = np.bincount(sample[finite], minlength=len(samples))
    totals = np.bincount(sample[finite], entropy[finite], len(samples))
    return samples.assign(entropy=means_of_sums(totals, counts))


def _correlations(samples: pd.DataFrame) -> pd.DataFrame:
    names = [
        name
        for name in samples.columns
        if name not in _EXCLUDED and samples[name].dtype.kind in "biuf"
    ]
    rows = [row for name in names if (row := _row(samples, name)) is not None]
    types = dict.fromkeys(_COLUMNS[2:], "float64")
    frame = pd.DataFrame(rows, columns=[*_COLUMNS])
    return frame.astype({"column": "str", "num_samples": "int64", **types})


_TINY = np.finfo(np.float64).smallest_subnormal


def _row(samples: pd.DataFrame, name: str) -> tuple[object, ...] | None:
    x = samples[name].to_numpy(dtype=np.float64)
    y = samples[_MISMATCH].to_numpy(dtype=np.float64)
    used = np.isfinite(x) & np.isfinite(y)
    # Scaled, because the square of a very large or small value is no finite float.
    x, y = (one[used] / np.abs(one[used]).max(initial=_TINY) for one in (x, y))
    if len(x) == 0 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    names = samples.get("group_id", pd.Series(range(len(samples)))).to_numpy()
    cluster = number_values("group_id", names[used])[0]
    draws = Resampling(int(cluster.max()) + 1)
    plain = _with_interval(x, y, cluster, draws)
    # scipy.stats has it, too, and takes half a second to import.
    rank_x, rank_y = (pd.Series(one).rank().to_numpy() for one in (x, y))
    ranks = _with_interval(rank_x, rank_y, cluster, draws)
    return name, len(x), *plain, *ranks


def _with_interval(
    x: Array, y: Array, cluster: Array, draws: Resampling
) -> tuple[float, float, float]:
    """Return Pearson's r, and the ends of its 95 % interval."""
    value = float(_pearson(x, y, np.ones((1, len(x))))[0])
    num = draws.num_clusters
    if num < MIN_DRAWN:
        return value, float("nan"), float("nan")
    drawn = _fisher(_pearson(x, y, draws.weights[:, cluster]))
    reach = stdtrit(num - 1, 0.975) * np.nanstd(drawn)
    middle = _fisher(np.array(value))
    return value, float(np.tanh(middle - reach)), float(np.tanh(middle + reach))


def _fisher(correlation: Array) -> Array:
    transformed: Array = np.arctanh(np.clip(correlation, -_NEAR_ONE, _NEAR_ONE))
    return transformed


def _pearson(x: Array, y: Array, weights: Array) -> Array:
    """Return Pearson's r of each row of weights; NaN if x or y does not vary."""
    num = weights.sum(1)
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    mean_x, mean_y = weights @ x / num, weights @ y / num
    together = weights @ (x * y) / num - mean_x * mean_y
    alone_x = weights @ (x * x) / num - mean_x**2
    alone_y = weights @ (y * y) / num - mean_y**2
    varies = np.minimum(alone_x, alone_y) > _ROUNDING
    scale = np.sqrt(np.where(varies, alone_x * alone_y, np.nan))
    result: Array = together / scale
    return result


def groups(data: Batch | pd.DataFrame, *, by: str | None = None) -> pd.DataFrame:
    """Return how much the samples of each group (of one prompt) differ.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch with `group_ids`, or a sample frame with `group_id`. Of a partial
        capture, only the samples drawn at random count.
    by : str, optional
        A column with one value per sample: one row per value and group, and the value
        comes first.

    Returns
    -------
    DataFrame
        One row per group, in the order in which they first appear: `group_id,
        num_samples, num_tokens`, the token-weighted `mean_abs_diff`, and the lowest,
        highest and standard deviation of its samples' means: `lowest, highest,
        spread` (NaN of one sample); in nats.

    Raises
    ------
    FrameError
        If there are no groups, or `by` has several values in a sample.

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
    data = without_worst_picks(data, "sample")
    samples = data if isinstance(data, pd.DataFrame) else sample_frame(data)
    needed = ("group_id", "num_tokens", "num_nonfinite", _MISMATCH)
    SAMPLES.require(samples.columns, *needed)
    return apply_by_part(samples, split_samples_by(data, samples, by), _groups)


def _groups(frame: pd.DataFrame) -> pd.DataFrame:
    finite = frame["num_tokens"] - frame["num_nonfinite"]
    total = frame[_MISMATCH].fillna(0) * finite
    by_group = frame.assign(finite=finite, total=total).groupby(
        "group_id", sort=False, dropna=False
    )
    groups = by_group.agg(
        num_samples=(_MISMATCH, "size"),
        num_tokens=("num_tokens", "sum"),
        finite=("finite", "sum"),
        total=("total", "sum"),
        lowest=(_MISMATCH, "min"),
        highest=(_MISMATCH, "max"),
        spread=(_MISMATCH, "std"),
    ).reset_index()
    mean = groups.pop("total") / groups.pop("finite").replace(0, np.nan)
    groups.insert(3, _MISMATCH, mean)
    return groups
