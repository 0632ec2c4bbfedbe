"""Small batches that several tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from rounddiag import Batch

# Sample 1 ends and sample 2 begins with a generated token: two rounds, not one.
MASK = [
    [1, 1, 0, 1, 0, 0],
    [0, 1, 1, 1, 0, 1],
    [1, 0, 0, 0, 0, 0],
]
ROLLOUT = [
    [-1.0, -1.0, 9.0, -2.0, 9.0, 9.0],
    [9.0, -1.0, -1.0, -1.0, 9.0, -3.0],
    [-2.0, 9.0, 9.0, 9.0, 9.0, 9.0],
]
# In binary every difference is exact: 0.5, -0.25 | 1; 0, 0.25, -0.5 | 2; -1.
OLD = [
    [-0.5, -1.25, 7.0, -1.0, 7.0, 7.0],
    [7.0, -1.0, -0.75, -1.5, 7.0, -1.0],
    [-3.0, 7.0, 7.0, 7.0, 7.0, 7.0],
]
# Rows that segmentation gets wrong first.
AWKWARD = [
    [0, 0, 0, 0, 0, 0, 0, 0],
    [1, 1, 1, 1, 1, 1, 1, 1],
    [1, 0, 1, 0, 1, 0, 1, 0],
    [0, 1, 0, 1, 0, 1, 0, 1],
    [1, 1, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 1, 1],
    [1, 0, 0, 0, 0, 0, 0, 1],
]


def padded(mask: Any, old: Any, rollout: Any, **others: Any) -> Batch:
    """A padded batch from nested lists or tensors."""
    mask = torch.as_tensor(mask)
    fields: dict[str, Any] = {
        "old_log_probs": torch.as_tensor(old),
        "rollout_log_probs": torch.as_tensor(rollout),
        **others,
    }
    return Batch.from_padded(
        response_ids=torch.arange(mask.numel(), device=mask.device).reshape(mask.shape),
        response_mask=mask,
        **fields,
    )


def hand_batch(device: torch.device | str = "cpu", **others: Any) -> Batch:
    """The batch of the constants above."""
    return padded(MASK, OLD, ROLLOUT, **others).to(device)


def redacted(batch: Batch) -> Batch:
    """The batch without ids, as `rd.load` gives one that was saved with `redact`."""
    return replace(
        batch,
        response_ids=None,
        prompt_ids=None,
        prompt_offsets=None,
        meta={"redacted": True},
    )


def random_log_probs(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Log-probs of float32 between 0 and about -16, exponentially distributed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator).clamp(min=1e-7).log()


@st.composite
def masks(draw: st.DrawFn) -> list[list[int]]:
    """Masks of up to 5 samples and 12 positions."""
    num_samples, width = draw(st.integers(0, 5)), draw(st.integers(0, 12))
    row = st.lists(st.integers(0, 1), min_size=width, max_size=width)
    return draw(st.lists(row, min_size=num_samples, max_size=num_samples))
