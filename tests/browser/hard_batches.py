"""Batches that are hard to draw: the most, the least, and names nobody chose."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rounddiag import Batch
from tests.batches import padded, random_log_probs

HOSTILE = "<script>alert(1)</script>"
NUM_NAMED = 24
NAMES = [f"{HOSTILE} of an environment that never ends, {i}" for i in range(NUM_NAMED)]


def words(ids: list[int]) -> str:
    return "".join(f"word{i % 7} " for i in ids)


def with_rounds(num_samples: int, most: int, length: int, **others: Any) -> Batch:
    """Samples of `most` to 1 rounds; both engines agree about one sample in four."""
    width = most * (length + 1)
    reached = most - np.arange(num_samples)[:, None] % most
    place = np.arange(width)[None]
    rollout = random_log_probs((num_samples, width), seed=0)
    noise = random_log_probs((num_samples, width), seed=1) / 100
    noise[1::4] = 0
    is_generated = place % (length + 1) < length
    return padded(
        (is_generated & (place < reached * (length + 1))).astype(int),
        rollout + noise,
        rollout,
        **{"tokenizer": words, **others},
    )


def without_numbers() -> Batch:
    shape = (4, 6)
    mask = torch.tensor([[1, 1, 0, 1, 1, 1]]).expand(shape)
    unknown = torch.full(shape, torch.nan)
    return padded(mask, unknown, unknown, tokenizer=words)


def with_names() -> Batch:
    """All that comes from a file is long and hostile, in groups and values of 8."""
    return with_rounds(
        NUM_NAMED,
        8,
        4,
        tokenizer=lambda ids: HOSTILE * len(ids),
        sample_ids=NAMES,
        group_ids=[NAMES[i % 8] for i in range(NUM_NAMED)],
        rewards=torch.arange(NUM_NAMED) * 1000.5 - 1,
        sample_columns={"rank": np.array([NAMES[i % 8] for i in range(NUM_NAMED)])},
    )


def hard_batches() -> dict[str, Batch]:
    return {
        "1 round": with_rounds(20, 1, 30),
        "100 rounds": with_rounds(120, 100, 2),
        "1 sample": with_rounds(1, 5, 9),
        "5000 samples": with_rounds(5000, 6, 3),
        "1 token": padded([[1]], [[-1.0]], [[-1.25]], tokenizer=words),
        "all NaN": without_numbers(),
        "hostile names": with_names(),
    }
