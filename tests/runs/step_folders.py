"""Folders of small step files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import rounddiag as rd
from rounddiag import Batch
from tests.batches import MASK, OLD, ROLLOUT, padded

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


# 20 steps; rounds 1 and 2 change at step 80.
STEPS = [10 * step for step in range(1, 21)]


def summary_frame(*, first: int = 0, **columns: list[Any]) -> pd.DataFrame:
    """Three rounds: their means are 0.01, or 0.2 from step 80 on."""
    wobble = np.resize([1.0, 1.1, 0.95], len(STEPS))
    rows = [
        {
            "step": step,
            "round": round_,
            "num_samples": 64,
            "num_tokens": 640,
            "num_nonfinite": 0,
            "mean": size * (0.2 if round_ > 0 and step >= 80 else 0.01),
        }
        for step, size in zip(STEPS, wobble, strict=True)
        for round_ in range(3)
    ]
    rows += [{**rows[0], "step": 0, "round": round_} for round_ in range(first)]
    made = pd.DataFrame(rows)
    made = made.assign(ci_low=made["mean"] / 2, ci_high=made["mean"] * 2)
    return made.assign(**columns)
