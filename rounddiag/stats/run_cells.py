"""More of each round of a sample than its frame tells: other means, a quantile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.core.frames import round_frame_and_diffs
from rounddiag.core.measures import measure_of, prob_diffs
from rounddiag.schema import CELLS, ROUNDS
from rounddiag.stats.measuring import measured
from rounddiag.stats.rows import run_sums
from rounddiag.stats.runs import runs_of_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    Array = np.ndarray[Any, Any]

P95 = "p95_abs_diff"
_OWN = {column.name for column in ROUNDS.columns}
MORE = tuple(column.name for column in CELLS.columns if column.name not in _OWN)
# The bits of a float32 that has no sign are in the order of its size.
_BITS, _SIZE = np.uint64(32), np.uint64(0xFFFFFFFF)


def cell_frame(
    data: Batch | pd.DataFrame, columns: Sequence[str] = MORE
) -> pd.DataFrame:
    """Return the round frame with more of what `schema.CELLS` names.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame; `prob_diff` needs that column, or both log-probs.
    columns : sequence of str
        Of `prob_diff`, `beyond` (importance ratios beyond 2) and `p95_abs_diff`.

    Returns
    -------
    DataFrame
        One row per sample and round; all is of tokens whose diff is finite.

    Examples
    --------
    >>> import rounddiag as rd
    >>> cells = cell_frame(rd.load("sample_data/healthy.parquet"))
    >>> bool((cells["p95_abs_diff"] <= cells["max_abs_diff"]).all())
    True
    """
    rounds, tokens = _parts(data, columns)
    num = rounds["num_tokens"].to_numpy()
    for name in columns:
        if name == P95:
            rounds[name] = run_quantiles(tokens["diff"], num, 0.95)
        else:
            rounds[name] = _means(tokens, num, name)
    return rounds


def _parts(
    data: Batch | pd.DataFrame, columns: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, Array]]:
    """Return the round frame, and of the tokens what the columns need."""
    if isinstance(data, Batch):
        rounds, diff = round_frame_and_diffs(data)
        more = {"prob_diff": prob_diffs(data)} if "prob_diff" in columns else {}
        return rounds, {"diff": diff, **more}
    runs = runs_of_frame(data, a="old", b="rollout", by=None)
    return runs.rounds, runs.tokens


def _means(tokens: dict[str, Array], num: Array, metric: str) -> Array:
    values = measured(tokens, measure_of(metric))
    finite = np.isfinite(values)
    totals = run_sums(np.where(finite, values, 0), num)
    counts = run_sums(finite, num)
    means = np.full(len(num), np.nan)
    np.divide(totals, counts, out=means, where=counts > 0)
    return means


def run_quantiles(values: Array, num: Array, share: float) -> Array:
    """Return an exact quantile of the size of each run's finite values.

    Parameters
    ----------
    values : ndarray of float32
    num : ndarray of int
        How many values each run has; they stand end to end.
    share : float

    Returns
    -------
    ndarray of float64
        Interpolated between neighbours; NaN for a run without a finite value.

    Examples
    --------
    >>> values = np.array([4, -1, 3, np.inf, 2], dtype=np.float32)
    >>> run_quantiles(values, np.array([4, 0, 1]), 0.5)
    array([ 3., nan,  2.])
    """
    counts = run_sums(np.isfinite(values), num).astype(np.int64)
    run = np.repeat(np.arange(len(num), dtype=np.uint64), num) << _BITS
    # One sort for all runs; what is not finite is the end of each.
    run |= np.abs(values.astype(np.float32)).view(np.uint32)
    run.sort()
    sizes = (run & _SIZE).astype(np.uint32).view(np.float32)
    known = np.flatnonzero(counts)
    place = share * (counts[known] - 1)
    low = place.astype(np.int64)
    first = (np.cumsum(num) - num)[known] + low
    after = first + (low < place)
    below, above = (sizes[at].astype(np.float64) for at in (first, after))
    found = np.full(len(num), np.nan)
    found[known] = below + (above - below) * (place - low)
    return found
