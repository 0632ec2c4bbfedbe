"""The totals of a file, over all of its samples: an entry in its footer.

`Run.summary` reads it instead of the columns. It is written with the file and is never
part of a batch, so that it always describes the log-probs in the same file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.columns import sample_clusters, to_numpy
from rounddiag.core.divergence import MEASURES
from rounddiag.core.round_summary import summarize_parts
from rounddiag.core.scores import has_pair
from rounddiag.core.sums import pack_tokens, prob_diffs, sum_rounds
from rounddiag.loaders.json_text import parse_json

_KEY = b"rounddiag.totals"
_VERSION = 1  # of the entry; for any other one, the columns are read
# A footer is read whenever the file is opened, so it has no totals if they would be
# large: more numbers than `_FEW`, and than `_SHARE` of the positions of the batch. A
# round has a number per cluster and about `_ROUND` others.
_ROUND, _FEW, _SHARE = 32, 1 << 14, 1 / 4
# Columns of samples or rounds with the version of the weights that sampled. verl's
# `global_steps` alone is the step of the prompt.
_WEIGHT_VERSION = re.compile(
    r"((min|max)_)?((weight|model|policy)_)?version|(min|max)_global_steps"
)


def totals_entry(batch: Batch) -> dict[bytes, bytes]:
    """Return the totals of a batch, as an entry of a file's metadata.

    There are none for a partial capture, as `batch.meta["capture"]` has the totals of
    its step, where they would be large beside the columns, and where a batch lacks the
    log-probs of an engine.
    """
    capture = batch.meta.get("capture")
    is_partial = isinstance(capture, dict) and "rounds" in capture
    if is_partial or _is_large(batch) or not has_pair(batch):
        return {}
    totals = {
        "version": _VERSION,
        "num_samples": len(batch),
        **step_means(batch),
        "rounds": summarize_rounds(batch),
    }
    if version := weight_version(batch):
        totals["weight_version"] = version
    return {_KEY: json.dumps(totals).encode()}


def read_totals(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any] | None:
    """Return the totals in a file's metadata, or None."""
    try:
        totals = parse_json((metadata or {})[_KEY])
        return dict(totals) if totals["version"] == _VERSION else None
    except (LookupError, TypeError, ValueError):
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


def weight_version(batch: Batch) -> str:
    """Return the version of the weights that sampled a batch, such as "9" or "8 to 9".

    "" where no column has it, and where several versions are not numbers.
    """
    columns = [*batch.sample_columns.items(), *batch.round_columns.items()]
    named = [v for name, v in columns if _WEIGHT_VERSION.fullmatch(name)]
    known = {v for values in named for v in values.tolist() if v is not None}
    texts = {str(v) for v in known} - {"", "None", "nan"}
    if len(texts) <= 1:
        return "".join(texts)
    try:
        numbers = [*map(float, texts)]
    except ValueError:
        return ""
    ends = dict.fromkeys(f"{end:.15g}" for end in (min(numbers), max(numbers)))
    return " to ".join(ends)


def summarize_rounds(batch: Batch) -> list[dict[str, Any]]:
    """Summarize each round over all samples, as plain numbers."""
    diff = np.empty(batch.num_tokens, dtype=np.float32)
    totals, rounds = sum_rounds(batch, out=diff), batch.rounds
    index, sample, num_tokens = (
        to_numpy(getattr(rounds, name)) for name in ("round", "sample", "num_tokens")
    )
    runs = {
        "sample": sample,
        "begin": np.cumsum(num_tokens) - num_tokens,
        "num_tokens": num_tokens,
        "num_nonfinite": totals.num_nonfinite,
        "num_finite": num_tokens - totals.num_nonfinite,
        "mean_abs_diff": totals.abs_diff,
        "mean_diff": totals.diff,
        "k3": totals.k3,
    }
    order = np.argsort(index, kind="stable")
    runs = {name: values[order] for name, values in runs.items()}
    index = index[order]
    tokens = {"diff": diff, "prob_diff": prob_diffs(batch)}
    columns, _ = summarize_parts(runs, index, tokens, MEASURES["abs_diff"])
    cluster = sample_clusters(batch)
    shape = int(index.max(initial=-1)) + 1, _count(cluster)
    place = index * shape[1] + cluster[runs["sample"]]
    by_cluster = {
        name: np.bincount(place, runs[source], shape[0] * shape[1]).reshape(shape)
        for name, source in (
            ("cluster_abs_diff", "mean_abs_diff"),
            ("cluster_tokens", "num_finite"),
        )
    }
    return [
        {
            "round": number,
            **{name: values[number].item() for name, values in columns.items()},
            **{name: values[number].tolist() for name, values in by_cluster.items()},
        }
        for number in range(shape[0])
    ]


def _is_large(batch: Batch) -> bool:
    num_rounds = int(batch.rounds.round.max()) + 1 if batch.num_rounds else 0
    size = num_rounds * (_count(sample_clusters(batch)) + _ROUND)
    return size > max(_FEW, _SHARE * batch.num_positions)


def _count(codes: Array) -> int:
    return int(codes.max(initial=-1)) + 1
