"""Rows of the summary: the rounds of one index, over all samples."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import take_runs
from rounddiag.stats.quantiles import quantiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from rounddiag.core.measures import Measure

    Array = np.ndarray[Any, Any]

_MEANS = ("mean_abs_diff", "mean_diff", "k3")
_COPIED = ("sample", "num_tokens", "num_nonfinite")
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


def runs_by_key(
    rounds: pd.DataFrame, key: Array, cluster: Array
) -> Iterator[tuple[int, dict[str, Array]]]:
    """Give the rows of a round frame that have one key, as arrays, in its order.

    Parameters
    ----------
    rounds : DataFrame
        In the order of the token frame.
    key : ndarray of int, one per row
        What the row is summarised under.
    cluster : ndarray of int, one per row
        What the row's sample goes together with.

    Yields
    ------
    key : int
        Ascending.
    runs : dict of str to ndarray
        Columns of `rounds`; means have become sums over finite tokens, and `begin` is
        the row of the first token in the token frame.
    """
    columns = {name: rounds[name].to_numpy() for name in _COPIED}
    columns["cluster"] = cluster
    columns["begin"] = np.cumsum(columns["num_tokens"]) - columns["num_tokens"]
    columns["num_finite"] = columns["num_tokens"] - columns["num_nonfinite"]
    for name in _MEANS:
        sums = rounds[name].to_numpy() * columns["num_finite"]
        columns[name] = np.where(columns["num_finite"] > 0, sums, 0)
    order = np.argsort(key, kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    keys, begins = np.unique(key[order], return_index=True)
    limits = itertools.pairwise([*begins.tolist(), len(order)])
    for one, (low, high) in zip(keys.tolist(), limits, strict=True):
        yield one, {name: values[low:high] for name, values in columns.items()}


def row_of(
    runs: Mapping[str, Array], tokens: Mapping[str, Array], measure: Measure
) -> tuple[dict[str, float], Array]:
    """Return the summary of the runs that `runs_by_key` gave, and the sum of each."""
    num_finite = runs["num_finite"].sum()
    taken = _finite_tokens(runs, tokens)
    values = measure.values(taken[measure.column])
    known = measure.in_rounds
    totals = run_sums(values, runs["num_finite"]) if known is None else runs[known]
    found = {
        "num_samples": len(np.unique(runs["sample"])),
        "num_tokens": runs["num_tokens"].sum(),
        "num_nonfinite": runs["num_nonfinite"].sum(),
        **{name: runs[name].sum() / (num_finite or np.nan) for name in _MEANS},
        **_distribution(values),
    }
    if "prob_diff" in taken and num_finite:
        found["prob_diff"] = taken["prob_diff"].mean(dtype=np.float64)
    return found, totals


def _finite_tokens(
    runs: Mapping[str, Array], tokens: Mapping[str, Array]
) -> dict[str, Array]:
    """Copy the tokens of the runs whose diff is finite."""
    place = runs["begin"], runs["num_tokens"]
    taken = {name: take_runs(values, *place) for name, values in tokens.items()}
    if not runs["num_nonfinite"].any():
        return taken
    finite = np.isfinite(taken["diff"])
    return {name: values[finite] for name, values in taken.items()}


def run_sums(values: Array, counts: Array) -> Array:
    """Add up runs of these lengths, which can be 0.

    Examples
    --------
    >>> run_sums(np.array([1.0, 2.0, 4.0]), np.array([2, 0, 1]))
    array([3., 0., 4.])
    """
    sums, some = np.zeros(len(counts)), counts > 0
    begins = (np.cumsum(counts) - counts)[some]
    sums[some] = np.add.reduceat(values, begins, dtype=np.float64)
    return sums


def _distribution(values: Array) -> dict[str, float]:
    """Summarise values, which are left partly ordered."""
    if len(values) == 0:
        return {}
    return {
        "share_zero": 1 - np.count_nonzero(values) / len(values),
        "max": values.max(),
        **dict(zip(_QUANTILES, quantiles(values, [*_QUANTILES.values()]), strict=True)),
    }
