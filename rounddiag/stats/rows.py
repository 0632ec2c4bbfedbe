"""Rows of the summary: the rounds of one index, over all samples."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import take_runs
from rounddiag.stats.quantiles import quantiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from rounddiag.stats.resampling import Resampling

    Array = np.ndarray[Any, Any]

_MEANS = ("mean_abs_diff", "mean_diff", "k3")
_COPIED = ("sample", "round", "num_tokens", "num_nonfinite", "max_abs_diff")
_QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def runs_by_round(rounds: pd.DataFrame, cluster: Array) -> Iterator[dict[str, Array]]:
    """Give the rows of a round frame that have one round, as arrays, in its order.

    Parameters
    ----------
    rounds : DataFrame
        In the order of the token frame.
    cluster : ndarray of int, one per row
        What the row's sample goes together with.

    Yields
    ------
    dict of str to ndarray
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
    order = np.argsort(columns["round"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    limits = np.flatnonzero(np.diff(columns["round"], prepend=-1, append=-1)).tolist()
    for low, high in itertools.pairwise(limits):
        yield {name: values[low:high] for name, values in columns.items()}


def round_row(
    runs: dict[str, Array], tokens: pd.DataFrame, draws: Resampling
) -> dict[str, float]:
    """Return the row of the summary for the rounds that `runs_by_round` gave."""
    num_finite = runs["num_finite"].sum()
    totals, counts = (
        np.bincount(runs["cluster"], runs[name], draws.num_clusters)
        for name in ("mean_abs_diff", "num_finite")
    )
    low, high = draws.ratio_interval(totals, counts)
    return {
        "round": runs["round"][0],
        "num_samples": len(np.unique(runs["sample"])),
        "num_tokens": runs["num_tokens"].sum(),
        "num_nonfinite": runs["num_nonfinite"].sum(),
        **{name: runs[name].sum() / (num_finite or np.nan) for name in _MEANS},
        "ci_low": low,
        "ci_high": high,
        "max": np.fmax.reduce(runs["max_abs_diff"]),
        **_of_tokens(runs, tokens),
    }


def _of_tokens(runs: dict[str, Array], tokens: pd.DataFrame) -> dict[str, float]:
    """Summarise what the sums of rounds do not tell."""
    place = runs["begin"], runs["num_tokens"]
    diff = take_runs(tokens["diff"].to_numpy(), *place)
    finite = np.isfinite(diff)
    size = np.abs(diff if finite.all() else diff[finite])
    found = dict(zip(_QUANTILES, quantiles(size, [*_QUANTILES.values()]), strict=True))
    if "prob_diff" not in tokens or not finite.any():
        return found
    prob_diff = take_runs(tokens["prob_diff"].to_numpy(), *place)
    return {**found, "prob_diff": float(prob_diff[finite].mean(dtype=np.float64))}
