"""The totals of a file, over all of its samples: an entry in its footer.

`Run.summary` reads it instead of the columns. It is written with the file and is never
part of a batch, so that it always describes the log-probs in the same file.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core.aggregation import quantiles
from rounddiag.core.columns import aggregates, sample_clusters
from rounddiag.core.divergence import compute_prob_diffs
from rounddiag.core.sums import as_numpy, measure, pack_tokens, take_diffs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.core.sums import Totals


_KEY = b"rounddiag.totals"
_VERSION = 1  # of the entry; for any other one, the columns are read
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
# A footer is read whenever the file is opened, so it has no totals if they would be
# large: more numbers than `_FEW`, and than `_SHARE` of the positions of the batch. A
# round has a number per cluster and about `_ROUND` others.
_ROUND, _FEW, _SHARE = 32, 1 << 14, 1 / 4


def totals_entry(batch: Batch) -> dict[bytes, bytes]:
    """Return the totals of a batch, as an entry of a file's metadata.

    There are none for a partial capture, as `batch.meta["capture"]` has the totals of
    its step, and where they would be large beside the columns.
    """
    capture = batch.meta.get("capture")
    is_partial = isinstance(capture, dict) and "rounds" in capture
    if is_partial or _is_large(batch):
        return {}
    totals = {
        "version": _VERSION,
        "num_samples": len(batch),
        **step_means(batch),
        "rounds": summarize_rounds(batch),
    }
    return {_KEY: json.dumps(totals).encode()}


def read_totals(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any] | None:
    """Return the totals in a file's metadata, or None."""
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
        values = pack_tokens(batch, batch.entropy)
        known = values[~np.isnan(values)] if np.isnan(values).any() else values
        entropy = float(known.mean(dtype=np.float64)) if len(known) else nan
    length = batch.num_tokens / len(batch) if len(batch) else nan
    return {"reward": reward, "entropy": entropy, "length": length}


def summarize_rounds(batch: Batch) -> list[dict[str, Any]]:
    """Summarize each round over all samples, as plain numbers."""
    totals, rounds = measure(batch), batch.rounds
    index, sample, start, num_tokens = (
        getattr(rounds, name).numpy()
        for name in ("round", "sample", "start", "num_tokens")
    )
    old, rollout = as_numpy(batch.old_log_probs), as_numpy(batch.rollout_log_probs)
    num_finite = num_tokens - totals.num_nonfinite
    sums = {"cluster_abs_diff": totals.abs_diff, "cluster_tokens": num_finite}
    cluster = sample_clusters(batch)
    num_clusters = _count(cluster)
    means = _means(totals, index, num_tokens)
    order, ends = np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))
    found = []
    for number, (low, high) in enumerate(pairwise([0, *ends.tolist()])):
        mine = order[low:high]
        a, b, diff = take_diffs(old, rollout, start[mine], num_tokens[mine])
        tokens = [diff, compute_prob_diffs(a, b)]
        if num_finite[mine].sum() < len(diff):
            is_finite = np.isfinite(diff)
            tokens = [values[is_finite] for values in tokens]
        found.append(
            {
                "round": number,
                "num_samples": len(mine),
                **{name: values[number].item() for name, values in means.items()},
                **_token_statistics(*tokens),
                **{
                    name: np.bincount(
                        cluster[sample[mine]], values[mine], num_clusters
                    ).tolist()
                    for name, values in sums.items()
                },
            }
        )
    return found


def _is_large(batch: Batch) -> bool:
    num_rounds = int(batch.rounds.round.max()) + 1 if batch.num_rounds else 0
    size = num_rounds * (_count(sample_clusters(batch)) + _ROUND)
    return size > max(_FEW, _SHARE * len(batch.response_ids))


def _count(codes: Array) -> int:
    return int(codes.max(initial=-1)) + 1


def _means(totals: Totals, index: Array, num_tokens: Array) -> dict[str, Array]:
    added = np.bincount(index, num_tokens).astype(np.int64)
    means = aggregates(totals.sum_by_group(index, len(added)), added)
    return {**means, "max": means["max_abs_diff"]}


def _token_statistics(diff: Array, prob: Array) -> dict[str, float]:
    """Compute what needs single tokens and not only sums of rounds."""
    size = np.abs(diff)
    if not len(size):
        return dict.fromkeys([*_QUANTILES, "share_zero", "prob_diff"], float("nan"))
    share_zero = 1 - np.count_nonzero(size) / len(size)
    values = quantiles(size, [*_QUANTILES.values()]).tolist()
    return {
        **dict(zip(_QUANTILES, values, strict=True)),
        "share_zero": share_zero,
        "prob_diff": float(prob.mean(dtype=np.float64)),
    }
