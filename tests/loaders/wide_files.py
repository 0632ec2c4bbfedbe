"""Honest files with many columns, entries, keys or rounds."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import safetensors.numpy
import torch

from rounddiag.batch import Batch
from rounddiag.loaders import save

# Two samples of two tokens.
ROWS: dict[str, list[list[Any]]] = {
    "response_ids": [[5, 6], [7, 8]],
    "response_mask": [[1, 1], [1, 1]],
    "rollout_log_probs": [[-1.0, -2.0], [-3.0, -4.0]],
    "old_log_probs": [[-1.5, -2.0], [-3.0, -4.0]],
}


def table(count: int) -> dict[str, Any]:
    """Return the rows with `count` columns of one number per sample."""
    return ROWS | {f"fact_{i}": [i, i + 1] for i in range(count)}


def arrays(count: int) -> dict[str, Any]:
    return {name: np.array(values) for name, values in table(count).items()}


def records(count: int) -> list[dict[str, Any]]:
    columns = table(count)
    return [{name: columns[name][i] for name in columns} for i in range(2)]


def of_other_keys(count: int) -> list[dict[str, Any]]:
    """Return records of which each has a key of its own."""
    first = {name: rows[0] for name, rows in ROWS.items()}
    return [{**first, f"fact_{i}": i} for i in range(count)]


def write_lines(rows: list[dict[str, Any]], path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def own(count: int) -> Batch:
    dtypes = {"rollout_log_probs": torch.float32, "old_log_probs": torch.float32}
    tensors = {
        name: torch.tensor(rows, dtype=dtypes.get(name)) for name, rows in ROWS.items()
    }
    columns = {f"fact_{i}": np.array([i, i + 1]) for i in range(count)}
    return Batch.from_padded(**tensors, sample_columns=columns)


def of_rounds(count: int) -> Batch:
    """Return one sample of `count` rounds of one token."""
    ids = torch.arange(2 * count) % 100
    log_probs = -(ids.float() + 1) / 100
    return Batch.from_padded(
        response_ids=ids[None],
        response_mask=(torch.arange(2 * count) % 2 == 0)[None],
        rollout_log_probs=log_probs[None],
        old_log_probs=log_probs[None] * 1.01,
    )


WRITERS: dict[str, Callable[[int, Path], object]] = {
    "columns.parquet": lambda count, path: pq.write_table(pa.table(table(count)), path),
    "own.parquet": lambda count, path: save(own(count), path),
    "columns.feather": lambda count, path: pyarrow.feather.write_feather(
        pa.table(table(count)), str(path)
    ),
    "entries.safetensors": lambda count, path: safetensors.numpy.save_file(
        arrays(count), path
    ),
    "entries.npz": lambda count, path: np.savez(path, **arrays(count)),
    "entries.pt": lambda count, path: torch.save(
        {name: torch.from_numpy(value) for name, value in arrays(count).items()}, path
    ),
    "columns.pkl": lambda count, path: path.write_bytes(pickle.dumps(table(count))),
    "records.pkl": lambda count, path: path.write_bytes(pickle.dumps(records(count))),
    "other_keys.pkl": lambda count, path: path.write_bytes(
        pickle.dumps(of_other_keys(count))
    ),
    "keys.jsonl": lambda count, path: write_lines(records(count), path),
    "other_keys.jsonl": lambda count, path: write_lines(of_other_keys(count), path),
    "rounds.parquet": lambda count, path: save(of_rounds(count), path),
}
