"""Compare `rounddiag.metrics` with what the released verl computes in float32.

Runs inside verl's environment (`tests/interop/verl`).
"""

from __future__ import annotations

import math
import sys

import torch
from verl import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_offpolicy_metrics
from verl.utils.debug.metrics import calculate_debug_metrics

import rounddiag as rd

CLOSE, CANCELLING = 2e-5, 5e-4
LOOSE = ("k3", "chi2", "kl", "diff")


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rounds of several lengths, and one sample in which nothing was generated."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(16, 400, generator=generator) < 0.97).long()
    mask[:, ::50] = 0
    mask[3] = 0
    old = torch.rand(16, 400, generator=generator).clamp(min=1e-6).log()
    noise = 0.02 * torch.randn(16, 400, generator=generator)
    return mask, old, (old - noise).clamp(max=0)


def of_verl(
    mask: torch.Tensor, old: torch.Tensor, rollout: torch.Tensor
) -> dict[str, float]:
    """Let verl compute both sets of its scalars."""
    fields = {"rollout_log_probs": rollout, "old_log_probs": old}
    data = DataProto.from_dict({**fields, "response_mask": mask, "responses": mask})
    offpolicy = compute_offpolicy_metrics(old, rollout, mask)
    named = {f"rollout_corr/{name}": value for name, value in offpolicy.items()}
    return {**calculate_debug_metrics(data), **named}


def main() -> int:
    """Print every difference; return how many are too large."""
    too_large = 0
    for seed in range(5):
        tensors = batch(seed)
        ours, theirs = rd.metrics(*tensors), of_verl(*tensors)
        for name, value in theirs.items():
            loose = any(word in name.rsplit("/", 1)[-1] for word in LOOSE)
            rel = CANCELLING if loose else CLOSE
            if not math.isclose(ours[name], value, rel_tol=rel, abs_tol=1e-7):
                too_large += 1
                print(f"seed {seed}: {name}: verl {value}, rounddiag {ours[name]}")
    print(f"{len(theirs)} scalars of verl in 5 batches, {too_large} differ")
    return min(too_large, 1)


if __name__ == "__main__":
    sys.exit(main())
