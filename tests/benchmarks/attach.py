"""Speed of attaching a score to a million generated tokens, 1 thread.

python -m tests.benchmarks.attach
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

import rounddiag as rd
from rounddiag.loaders.rescoring import attach
from tests.batches import padded, random_log_probs
from tests.benchmarks.parquet import print_time

SAMPLES, LENGTH = 1000, 2000  # every second token is generated


def write_lines(batch: rd.Batch, path: Path) -> None:
    rows = zip(
        batch.response_ids.reshape(SAMPLES, LENGTH).tolist(),
        batch.rollout_log_probs.reshape(SAMPLES, LENGTH).tolist(),
        strict=True,
    )
    with path.open("w") as lines:
        for sample, (ids, log_probs) in enumerate(rows):
            row = {"sample": sample, "token_ids": ids, "log_probs": log_probs}
            lines.write(json.dumps(row) + "\n")


def main() -> None:
    torch.set_num_threads(1)
    shape = (SAMPLES, LENGTH)
    old, rollout = random_log_probs(shape, 0), random_log_probs(shape, 1)
    mask = (torch.arange(LENGTH) % 2 == 0).repeat(SAMPLES, 1)
    batch = padded(mask, old, rollout)
    batch.rounds  # noqa: B018 found once, and not what is measured
    columns = ["position", "token_id", "rollout_log_prob"]
    tokens = rd.token_frame(batch, columns)
    frame = tokens.rename(columns={"rollout_log_prob": "log_prob"})
    by_round = frame.drop(columns="position")
    with tempfile.TemporaryDirectory() as folder:
        table, lines = Path(folder) / "a.parquet", Path(folder) / "a.jsonl"
        frame.to_parquet(table)
        write_lines(batch, lines)
        print_time("frame by position", lambda: attach(batch, "x", frame))
        print_time("frame by round and token", lambda: attach(batch, "x", by_round))
        print_time("Parquet, a row a token", lambda: attach(batch, "x", table))
        print_time("JSON lines, a row a sample", lambda: attach(batch, "x", lines))


if __name__ == "__main__":
    main()
