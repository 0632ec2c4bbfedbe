"""Writes files as NeMo-RL does, laid out from its source: no release installs here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def record(
    token_ids: Sequence[int], mask: Sequence[int], *, padding: int = 0, **others: Any
) -> Record:
    """Return a record before it is wrapped; `others` replace or add fields.

    The log-probability of token t is -t / 8 in the sampling engine, -t / 4 in the
    training engine; the first has none.
    """
    steps = range(len(token_ids))
    pad = [0] * padding
    return {
        "content": ["What is it?", "It is <b>5</b>."],
        "rewards": 1.0,
        "input_lengths": len(token_ids),
        "token_ids": [*token_ids, *pad],
        "token_loss_mask": [*mask, *pad],
        "sample_loss_mask": 1.0,
        "advantages": [0.5 * value for value in [*mask, *pad]],
        "generation_logprobs": [-t / 8 * mask[t] for t in steps] + [0.0] * padding,
        "prev_logprobs": [-t / 4 for t in steps] + [0.0] * padding,
        **others,
    }


def wrapped(record: Record, idx: int) -> Record:
    """Return a record as it is written: each value in a list of one, except `idx`."""
    return {**{name: [value] for name, value in record.items()}, "idx": idx}


def write(path: Path, records: Sequence[Record]) -> Path:
    """Write one line a record and return the path."""
    lines = [json.dumps(wrapped(row, idx)) for idx, row in enumerate(records)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def small_step() -> list[Record]:
    """Return two samples of one prompt, and one that was rejected.

    Sample 0 has rounds of two and one tokens around an observation of two; the others
    have one round of two tokens.
    """
    return [
        record([1, 2, 3, 10, 11, 4, 5, 12], [0, 0, 0, 1, 1, 0, 0, 1]),
        record([1, 2, 3, 13, 14], [0, 0, 0, 1, 1], padding=3, rewards=0.0),
        record([6, 15, 16], [0, 1, 1], padding=5, sample_loss_mask=0.0),
    ]
