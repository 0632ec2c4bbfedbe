"""Folders of small step files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

import rounddiag as rd
from tests.batches import MASK, OLD, ROLLOUT, padded

if TYPE_CHECKING:
    from pathlib import Path

    from rounddiag import Batch

# |diff| of `hand_batch`, by hand: round 0 has 0.5, 0.25 | 0, 0.25, 0.5 | 1; round 1
# has 1 | 2.
MEANS = [2.5 / 6, 1.5]


def scaled_batch(step: int, factor: float = 1.0) -> Batch:
    """The hand-made batch with every diff multiplied."""
    old = [
        [r + factor * (o - r) for o, r in zip(olds, rollouts, strict=True)]
        for olds, rollouts in zip(OLD, ROLLOUT, strict=True)
    ]
    return replace(padded(MASK, old, ROLLOUT), step=step)


def write_steps(folder: Path, factors: dict[int, float]) -> Path:
    """Write a file per step; its |diff| is that of `MEANS` times the factor."""
    for step, factor in factors.items():
        rd.save(scaled_batch(step, factor), folder / f"step_{step}.parquet")
    return folder


def small_dump(step: int) -> dict[str, torch.Tensor]:
    """A dictionary of padded tensors; |diff| is 0.25 times the step."""
    rollout = torch.full((3, 4), -1.0)
    return {
        "responses": torch.arange(12).reshape(3, 4),
        "response_mask": torch.tensor([[1, 1, 0, 1]] * 3),
        "rollout_log_probs": rollout,
        "old_log_probs": rollout - 0.25 * step,
    }
