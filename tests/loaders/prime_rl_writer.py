"""Writes files as prime-rl does, laid out from its source: no release installs here."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def record(token_ids: Sequence[int], mask: Sequence[bool], **others: Any) -> Record:
    """Return the record of one sequence; `others` replace or add fields.

    The log-probability of token t is -t / 8 in the sampling engine, -t / 4 in the
    training engine; position 0 has a filler.
    """
    inference = [-t / 8 * on for t, on in enumerate(mask)]
    trainer = [-12.0, *[-t / 4 for t in range(1, len(mask))]]
    ratios = [new - old for new, old in zip(trainer, inference, strict=True)]
    return {
        "schema_version": 1,
        "step": 7,
        "rank": 0,
        "micro_step": 0,
        "micro_sequence_idx": 0,
        "export_sequence_idx": 0,
        "env_name": "gui",
        "token_ids": list(token_ids),
        "position_ids": list(range(len(mask))),
        "loss_mask": list(mask),
        "advantages": [0.5 * on for on in mask],
        "inference_logprobs": inference,
        "trainer_logprobs": trainer,
        "entropy": [t / 2 for t in range(len(mask))],
        "mismatch_kl": [math.exp(ratio) - 1 - ratio for ratio in ratios],
        "log_importance_ratio": ratios,
        "importance_ratio": [math.exp(ratio) for ratio in ratios],
        "prob_delta": [
            math.exp(new) - math.exp(old)
            for new, old in zip(trainer, inference, strict=True)
        ],
        "is_masked": [False] * len(mask),
        "is_masked_high": [False] * len(mask),
        "is_masked_low": [False] * len(mask),
        **others,
    }


def write(path: Path, records: Sequence[Record]) -> Path:
    """Write one line a record and return the path."""
    texts = [json.dumps(row, separators=(",", ":"), allow_nan=False) for row in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def small_step() -> list[Record]:
    """Return two samples of one prompt; the first has two rounds."""
    first = [False, False, True, True, False, True]
    second = {"micro_sequence_idx": 1, "export_sequence_idx": 1}
    return [
        record([1, 2, 10, 11, 3, 12], first),
        record([1, 2, 13], [False, False, True], **second),
    ]
