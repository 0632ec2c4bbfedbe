"""The totals of a file, over all of its samples: an entry in its footer.

`Run.summary` reads it instead of the columns, where the entry `rounddiag.digest` is
that of the totals and of the stored bytes of the columns that they are computed from: a
program that changes a column can keep the totals in the footer, not the digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow.parquet as pq

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.columns import sample_clusters, to_numpy
from rounddiag.core.divergence import MEASURES
from rounddiag.core.round_summary import summarize_parts
from rounddiag.core.scores import has_pair
from rounddiag.core.sums import pack_tokens, prob_diffs, sum_rounds
from rounddiag.schema import SUMMARY
from rounddiag.text.json_text import parse_json

TOTALS = b"rounddiag.totals"
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

    There are none where they would be large beside the columns, and where a batch lacks
    the log-probs of an engine.
    """
    if _is_large(batch) or not has_pair(batch):
        return {}
    totals = {
        "version": _VERSION,
        "num_samples": len(batch),
        **step_means(batch),
        "rounds": summarize_rounds(batch),
    }
    if version := weight_version(batch):
        totals["weight_version"] = version
    return {TOTALS: json.dumps(totals).encode()}


_DIGEST = b"rounddiag.digest"
_NO_DIGEST = b"-" * (2 * hashlib.sha256().digest_size)  # its place, in hexadecimal
_DIGESTED = frozenset(
    {
        *("response_mask", "rollout_log_probs", "old_log_probs", "round_ids"),
        *("group_id", "reward", "entropy"),
    }
)


def digest_of(file: IO[bytes], metadata: pq.FileMetaData) -> bytes:
    """Return the digest of the totals of a file, and of the columns behind them.

    The columns are read as they are stored, and not decoded; b"" for a damaged footer.
    """
    digest = hashlib.sha256((metadata.metadata or {}).get(TOTALS, b""))
    room = file.seek(0, os.SEEK_END)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(metadata.num_columns)):
            path = chunk.path_in_schema
            last = path.rpartition(".")[2]
            if path.split(".")[0] in _DIGESTED or _WEIGHT_VERSION.fullmatch(last):
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                size = chunk.total_compressed_size
                room -= size
                if min(start, size, room) < 0:
                    return b""
                file.seek(start)
                digest.update(f"{path} {chunk.num_values} {size} ".encode())
                digest.update(file.read(size))
    return digest.hexdigest().encode()


def reserve_digest(writer: pq.ParquetWriter) -> None:
    """Make room for the digest in the footer of a file that is being written."""
    if hasattr(writer, "add_key_value_metadata"):  # since pyarrow 17
        writer.add_key_value_metadata({_DIGEST: _NO_DIGEST})


def write_digest(path: Path) -> None:
    """Write the digest of a file into its footer, where there is room for it."""
    with path.open("rb+") as file:
        digest = digest_of(file, pq.read_metadata(file))
        end = file.seek(-8, os.SEEK_END)
        start = end - int.from_bytes(file.read(4), "little")
        file.seek(start)
        at = file.read(end - start).rfind(_NO_DIGEST)
        if at >= 0:
            file.seek(start + at)
            file.write(digest)


def has_digest(file: IO[bytes], metadata: pq.FileMetaData) -> bool:
    """Return whether the totals in a file are those of its columns."""
    known = (metadata.metadata or {}).get(_DIGEST)
    return known is not None and known == digest_of(file, metadata)


_MASK = "response_mask"
_COUNTS = ("round", "num_samples", "num_tokens", "num_nonfinite")
_SHAPE = {
    **dict.fromkeys(("version", "num_samples"), int),
    **dict.fromkeys(("reward", "entropy", "length"), float),
    "weight_version?": str,
    "rounds": [
        {
            **dict.fromkeys(_COUNTS, int),
            **{
                f"{column.name}?": float
                for column in SUMMARY.columns
                if "float" in column.dtype
            },
            **{name: [float] for name in ("cluster_abs_diff", "cluster_tokens")},
        }
    ],
}
_ROUNDING = 1e-6  # of sums of float32, relative


def read_totals(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any] | None:
    """Return the totals in a file's metadata; None where they contradict themselves."""
    try:
        totals: dict[str, Any] = parse_json((metadata or {})[TOTALS], _SHAPE)
        is_sound = totals["version"] == _VERSION and all(
            entry["round"] == number and _is_consistent(entry)
            for number, entry in enumerate(totals["rounds"])
        )
    except (LookupError, TypeError, ValueError):
        return None
    return totals if is_sound else None


def _is_consistent(entry: Mapping[str, Any]) -> bool:
    num_tokens, num_nonfinite = entry["num_tokens"], entry["num_nonfinite"]
    num = num_tokens - num_nonfinite
    if min(num, num_nonfinite) < 0 or not 0 < entry["num_samples"] <= num_tokens:
        return False
    if num == 0:
        return True  # no token that has a mean
    mean, sums = entry["mean_abs_diff"], sum(entry["cluster_abs_diff"])
    return bool(
        sum(entry["cluster_tokens"]) == num
        and abs(sums - mean * num) <= _ROUNDING * sums
        and abs(entry["mean_diff"]) <= mean * (1 + _ROUNDING)
        and mean <= entry["max"] * (1 + _ROUNDING)
    )


def fit_columns(totals: Mapping[str, Any], metadata: pq.FileMetaData) -> bool:
    """Return whether a file has the samples of its totals, and room for the tokens."""
    num_positions = sum(
        chunk.num_values
        for group in map(metadata.row_group, range(metadata.num_row_groups))
        for chunk in map(group.column, range(metadata.num_columns))
        if chunk.path_in_schema.split(".")[0] == _MASK
    )
    num_samples, rounds = totals["num_samples"], totals["rounds"]
    num_tokens = sum(entry["num_tokens"] for entry in rounds)
    return (
        num_samples == metadata.num_rows
        and num_tokens <= num_positions
        and all(entry["num_samples"] <= num_samples for entry in rounds)
        and (not num_samples or totals["length"] == num_tokens / num_samples)
    )


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
