"""Cells (a round of a sample): means, quantiles, and aggregates over rows of cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.core.aggregation import means_of_sums, run_quantiles, run_sums
from rounddiag.core.divergence import MEASURES, TokenMetric, get_measure
from rounddiag.schema import CELLS, IS_REWRITTEN, METRICS, ROUNDS
from rounddiag.schema.tables import AGGREGATE_COLUMNS
from rounddiag.stats.inputs import Data, open_measured
from rounddiag.stats.intervals import MeanEstimator, Resampling

P95 = "p95_abs_diff"
EXTRA_COLUMNS = tuple(name for name in CELLS.dtypes if name not in ROUNDS.dtypes)


def cell_frame(
    data: Data,
    columns: Sequence[str] = ("prob_diff", "beyond", P95),
    *,
    a: str = "old",
    b: str = "rollout",
) -> pd.DataFrame:
    """Return the round frame with further columns of `schema.CELLS`.

    Of the columns of a file it has `is_rewritten`.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame; `prob_diff` needs that column, or both
        log-probs.
    columns : sequence of str
        `p95_abs_diff`, and any metric of `round_summary` that the round frame lacks,
        such as `prob_diff`, `k1`, `chi2` or `beyond` (importance ratios beyond 2).
    a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        One row per sample and round; aggregates are over tokens with a finite diff.

    Examples
    --------
    >>> import rounddiag as rd
    >>> cells = cell_frame(rd.load("sample_data/healthy.parquet"))
    >>> bool((cells["p95_abs_diff"] <= cells["max_abs_diff"]).all())
    True
    """
    data = open_measured(data, a, b)
    batch, rounds, mark = data.batch, data.rounds, IS_REWRITTEN.name
    if batch is not None and mark in batch.round_columns:
        rounds[mark] = batch.columns.rounds[mark].filled
    num = rounds["num_tokens"].to_numpy()
    for name in columns:
        if name == P95:
            finite = np.isfinite(data.diff)
            counts = run_sums(finite, num).astype(np.int64)
            sizes = np.abs(data.diff[finite])
            rounds[name] = run_quantiles(sizes, counts, [0.95])[0]
        else:
            rounds[name] = _run_means(data.values(get_measure(name)), num)
    return rounds


def _run_means(values: Array, num: Array) -> Array:
    finite = np.isfinite(values)
    totals = run_sums(np.where(finite, values, 0), num)
    counts = run_sums(finite, num)
    return means_of_sums(totals, counts)


# Aggregates of diffs in a round frame: means, except `_LARGEST`.
AGGREGATES = tuple(column.name for column in AGGREGATE_COLUMNS)
_LARGEST = ("max_abs_diff",)
# The means that `stats.cell_frame` adds.
_OF_ROUNDS = {name for name, metric in METRICS.items() if metric.of == "round"}
CELL_MEANS = tuple(name for name in EXTRA_COLUMNS if name != P95)


def aggregate_rounds(rounds: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Combine the rows of a round frame that have the same keys."""
    # By numpy: a round frame is short, and pandas takes longer to begin than to add.
    size = rounds["num_tokens"].to_numpy()
    num = size
    if "num_nonfinite" in rounds:
        num = size - rounds["num_nonfinite"].to_numpy()
    code = np.zeros(len(rounds), dtype=np.int64)
    for name in keys:
        values, own = np.unique(rounds[name].to_numpy(), return_inverse=True)
        code = code * len(values) + own
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    count = len(first)

    def add(weights: Array) -> Array:
        return np.bincount(code, weights, count).astype(float)

    result = {name: rounds[name].to_numpy()[first] for name in keys}
    result["num_rows"] = np.bincount(code, minlength=count)
    result["num_tokens"] = add(size).astype(np.int64)
    names = [name for name in (*AGGREGATES, *CELL_MEANS) if name in rounds]
    for name in names:
        column = rounds[name].to_numpy(float)
        if name in _LARGEST:
            largest = np.full(count, np.nan)
            np.fmax.at(largest, code, column)
            result[name] = largest
        else:
            unknown = np.isnan(column)
            weight = np.ones(len(column)) if name in _OF_ROUNDS else num
            counts = add(np.where(unknown, 0, weight))
            total = add(np.where(unknown, 0, column * weight))
            result[name] = means_of_sums(total, counts)
    return pd.DataFrame(result)


def extremes(rounds: pd.DataFrame, column: str, *keys: str) -> pd.Series[float]:
    """Return the value that is farthest from zero among the rows with the same keys."""
    order = np.argsort(rounds[column].abs().to_numpy(), kind="stable")
    values: pd.Series[float] = rounds.iloc[order].groupby([*keys])[column].last()
    return values.reset_index(drop=True)


def cell_means(
    values: Array,
    cell: Array,
    sample: Array,
    cluster: Array,
    measure: TokenMetric = MEASURES["abs_diff"],
) -> pd.DataFrame:
    """Return the mean of each cell's finite values, with a clustered interval.

    `cluster` is that of each sample.
    """
    shape = int(sample.max(initial=-1)) + 1, int(cell.max(initial=-1)) + 1
    place = sample.astype(np.int64) * shape[1] + cell
    num_tokens = _sums_by_cell(place, shape)
    finite = np.isfinite(values)
    if not finite.all():
        place, values = place[finite], values[finite]
    counts, totals = _sums_by_cell(place, shape), _sums_by_cell(place, shape, values)
    num_finite = counts.sum(0)
    # A row for each cell and sample.
    of_cell, of_sample = np.divmod(np.arange(counts.size), max(shape[0], 1))
    runs = {
        "sample": of_sample,
        "cluster": cluster[of_sample],
        "num_finite": counts.T.ravel(),
    }
    draws = Resampling(int(cluster[: shape[0]].max(initial=-1)) + 1)
    how = MeanEstimator(measure=measure, weight="token")
    frame = pd.DataFrame(
        {
            "cell": np.arange(shape[1]),
            "num_samples": np.count_nonzero(num_tokens, axis=0),
            "num_tokens": num_tokens.sum(0).astype(np.int64),
            "num_nonfinite": (num_tokens.sum(0) - num_finite).astype(np.int64),
            **how.means(of_cell, runs, totals.T.ravel(), draws),
        }
    )
    return frame[frame["num_tokens"] > 0].reset_index(drop=True)


def _sums_by_cell(
    place: Array, shape: tuple[int, int], weights: Array | None = None
) -> Array:
    """Sum the weights of each sample and cell, by default 1 per token."""
    flat = np.bincount(place, weights, shape[0] * shape[1])
    return flat.astype(np.float64, copy=False).reshape(shape)
