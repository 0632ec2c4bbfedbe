"""What each round of a whole batch comes to, for a file that holds a part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import take_runs
from rounddiag.core.columns import aggregates, token_column
from rounddiag.core.totals import measure

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.core.totals import Totals

    Array = np.ndarray[Any, Any]

_PERCENT = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


def round_statistics(batch: Batch) -> list[dict[str, Any]]:
    """Summarise each round over all samples, in plain numbers.

    Parameters
    ----------
    batch : Batch
        On the CPU.

    Returns
    -------
    list of dict
        One entry a round: the columns of `schema.SUMMARY` that no other ones tell,
        except the interval, and what that is made from: `cluster_abs_diff` and
        `cluster_tokens`, the sum of |diff| and the number of finite tokens of each
        group (of each sample without groups).
    """
    diff = np.empty(batch.num_tokens, dtype=np.float32)
    totals = measure(batch, out=diff)
    probs = token_column(batch, diff, "prob_diff")
    index = batch.rounds.round.numpy()
    means = _means(batch, totals, index)
    return [
        {
            "round": number,
            "num_samples": int(mine.sum()),
            **{name: values[number].item() for name, values in means.items()},
            **_of_tokens(batch, diff, probs, mine),
            **_clusters(batch, totals, mine),
        }
        for number, mine in enumerate(
            index == np.arange(index.max(initial=-1) + 1)[:, None]
        )
    ]


def _means(batch: Batch, totals: Totals, index: Array) -> dict[str, Array]:
    num_tokens = np.bincount(index, batch.rounds.num_tokens.numpy()).astype(np.int64)
    found = aggregates(totals.grouped(index, len(num_tokens)), num_tokens)
    return {**found, "max": found["max_abs_diff"]}


def _of_tokens(
    batch: Batch, diff: Array, probs: Array, mine: Array
) -> dict[str, float]:
    """Summarise what the sums of rounds do not tell."""
    num = batch.rounds.num_tokens.numpy()
    place = (np.cumsum(num) - num)[mine], num[mine]
    values = take_runs(diff, *place)
    finite = np.isfinite(values)
    if not finite.any():
        return dict.fromkeys([*_PERCENT, "share_zero", "prob_diff"], float("nan"))
    size = np.abs(values[finite])
    found = np.percentile(size.astype(np.float64), [*_PERCENT.values()]).tolist()
    mean = take_runs(probs, *place)[finite].mean(dtype=np.float64)
    return {
        **dict(zip(_PERCENT, found, strict=True)),
        "share_zero": float((size == 0).mean()),
        "prob_diff": float(mean),
    }


def _clusters(batch: Batch, totals: Totals, mine: Array) -> dict[str, list[float]]:
    names = np.asarray(batch.group_ids or range(batch.num_samples))
    sample = batch.rounds.sample.numpy()[mine]
    clusters, cluster = np.unique(names, return_inverse=True)
    num_finite = batch.rounds.num_tokens.numpy() - totals.num_nonfinite
    sums = {"cluster_abs_diff": totals.abs_diff, "cluster_tokens": num_finite}
    return {
        name: np.bincount(cluster[sample], values[mine], len(clusters)).tolist()
        for name, values in sums.items()
    }
