"""Small batches with and without a fault, drawn or written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rounddiag import Batch

Array = np.ndarray[Any, Any]
ROUNDS, TOKENS, GAP = 4, 20, 3
LENGTH = ROUNDS * (TOKENS + GAP) - GAP
END = 2


def literal(old: list[list[float]], rollout: list[list[float]], **others: Any) -> Batch:
    """A batch of rows of one round each, ids counted through."""
    o, r = torch.tensor(old), torch.tensor(rollout)
    fields = {
        "response_ids": torch.arange(o.numel()).reshape(o.shape) + 10,
        "response_mask": torch.ones_like(o, dtype=torch.int64),
        **others,
    }
    return Batch.from_padded(old_log_probs=o, rollout_log_probs=r, **fields)


def arrays(num: int = 32, seed: int = 0, noise: float = 0.01) -> dict[str, Array]:
    """Log-probs, ids and mask of sound samples of four rounds, [num, LENGTH]."""
    rng = np.random.default_rng(seed)
    mask = np.ones((num, LENGTH), dtype=np.int64)
    for k in range(1, ROUNDS):
        start = k * (TOKENS + GAP) - GAP
        mask[:, start : start + GAP] = 0
    rollout = -rng.exponential(0.8, mask.shape) * mask
    old = rollout + rng.normal(0, noise, mask.shape) * np.minimum(-rollout, 1) * mask
    ids = rng.integers(10, 60, mask.shape)
    ids[:, TOKENS - 1 :: TOKENS + GAP] = END
    return {"rollout": rollout, "old": np.minimum(old, 0), "ids": ids, "mask": mask}


def made(parts: dict[str, Array], **others: Any) -> Batch:
    """A batch of such arrays."""
    return Batch.from_padded(
        response_ids=torch.from_numpy(parts["ids"]),
        response_mask=torch.from_numpy(parts["mask"]),
        rollout_log_probs=torch.from_numpy(parts["rollout"]).float(),
        old_log_probs=torch.from_numpy(parts["old"]).float(),
        **others,
    )


def rounds_of(parts: dict[str, Array]) -> Array:
    """The round of every position."""
    place: Array = np.arange(LENGTH) // (TOKENS + GAP)
    return np.broadcast_to(place, parts["mask"].shape)


def shaken(parts: dict[str, Array], where: Array, scale: float, seed: int = 1) -> None:
    """Make old differ more at some positions."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, scale, where.shape) * np.minimum(-parts["rollout"], 1)
    parts["old"] = np.minimum(parts["old"] + noise * where * parts["mask"], 0)
