"""The totals of a step, over all of its samples: an entry in the footer of its file.

`Run.summary` reads it instead of the columns. It is written with the file and never
becomes part of a batch, so that it always is of the log-probs beside it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import take_runs
from rounddiag.core.columns import aggregates, token_column
from rounddiag.core.sums import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.core.sums import Totals


_KEY = b"rounddiag.totals"
_VERSION = 1  # of the entry; files with another one are measured by their columns
_PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


def totals_entry(batch: Batch) -> dict[bytes, bytes]:
    """Return the totals of a batch, as an entry of a file's metadata.

    A partial capture has none: `batch.meta["capture"]` has the totals of its step.

    Parameters
    ----------
    batch : Batch
        On the CPU.
    """
    capture = batch.meta.get("capture")
    if isinstance(capture, dict) and "rounds" in capture:
        return {}
    totals = {
        "version": _VERSION,
        "num_samples": len(batch),
        **step_means(batch),
        "rounds": summarize_rounds(batch),
    }
    return {_KEY: json.dumps(totals).encode()}


def read_totals(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any] | None:
    """Return the totals in a file's metadata; None where there are none.

    Returns
    -------
    dict, optional
        `num_samples`, the values of `step_means`, and `rounds` as `summarize_rounds`
        gives them.
    """
    try:
        totals = json.loads((metadata or {})[_KEY])
        return dict(totals) if totals["version"] == _VERSION else None
    except (LookupError, TypeError, ValueError, RecursionError):
        return None


def step_means(batch: Batch) -> dict[str, float]:
    """Return the mean reward and entropy, and the generated tokens per sample.

    NaN where the batch does not have them.
    """
    nan = float("nan")
    reward = entropy = nan
    if batch.rewards is not None and len(batch):
        reward = float(batch.rewards.double().nanmean())
    if batch.entropy is not None and batch.num_tokens:
        values = batch.entropy[batch.response_mask != 0]
        entropy = float(values.double().nanmean())
    length = batch.num_tokens / len(batch) if len(batch) else nan
    return {"reward": reward, "entropy": entropy, "length": length}


def summarize_rounds(batch: Batch) -> list[dict[str, Any]]:
    """Summarize each round over all samples, as plain numbers.

    Parameters
    ----------
    batch : Batch
        On the CPU.

    Returns
    -------
    list of dict
        One entry per round: the columns of `schema.SUMMARY` except the interval and
        those derived from others, and the inputs of the interval: `cluster_abs_diff`
        and `cluster_tokens`, the sum of |diff| and the number of finite tokens of each
        group (of each sample where there are no groups).
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
            **_token_statistics(batch, diff, probs, mine),
            **_cluster_sums(batch, totals, mine),
        }
        for number, mine in enumerate(
            index == np.arange(index.max(initial=-1) + 1)[:, None]
        )
    ]


def _means(batch: Batch, totals: Totals, index: Array) -> dict[str, Array]:
    num_tokens = np.bincount(index, batch.rounds.num_tokens.numpy()).astype(np.int64)
    means = aggregates(totals.grouped(index, len(num_tokens)), num_tokens)
    return {**means, "max": means["max_abs_diff"]}


def _token_statistics(
    batch: Batch, diff: Array, probs: Array, mine: Array
) -> dict[str, float]:
    """Compute what needs single tokens and not only sums of rounds."""
    num_tokens = batch.rounds.num_tokens.numpy()
    runs = (np.cumsum(num_tokens) - num_tokens)[mine], num_tokens[mine]
    values = take_runs(diff, *runs)
    finite = np.isfinite(values)
    if not finite.any():
        return dict.fromkeys([*_PERCENTILES, "share_zero", "prob_diff"], float("nan"))
    size = np.abs(values[finite])
    levels = [*_PERCENTILES.values()]
    percentiles = np.percentile(size.astype(np.float64), levels).tolist()
    mean = take_runs(probs, *runs)[finite].mean(dtype=np.float64)
    return {
        **dict(zip(_PERCENTILES, percentiles, strict=True)),
        "share_zero": float((size == 0).mean()),
        "prob_diff": float(mean),
    }


def _cluster_sums(batch: Batch, totals: Totals, mine: Array) -> dict[str, list[float]]:
    names = np.asarray(batch.group_ids or range(batch.num_samples))
    sample = batch.rounds.sample.numpy()[mine]
    clusters, cluster = np.unique(names, return_inverse=True)
    num_finite = batch.rounds.num_tokens.numpy() - totals.num_nonfinite
    sums = {"cluster_abs_diff": totals.abs_diff, "cluster_tokens": num_finite}
    return {
        name: np.bincount(cluster[sample], values[mine], len(clusters)).tolist()
        for name, values in sums.items()
    }
