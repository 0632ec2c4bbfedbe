"""What a trainer's numbers would be, had it computed them in another way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rounddiag.core.divergence import diff, k3, prob_diff
from rounddiag.core.verl import Tokens, added, scalars, tokens_of

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag.batch import Batch


def variants(batch: Batch) -> dict[str, dict[str, float]]:
    """Compute the numbers of every known variant, by the words that explain it.

    Parameters
    ----------
    batch : Batch

    Returns
    -------
    dict of str to dict
        Explanation -> numbers under the names of `rounddiag.metrics`.
    """
    tokens = tokens_of(batch)
    swapped = replace(tokens, old=tokens.rollout, rollout=tokens.old)
    found = {
        "another mask: observations are counted too": _masked(batch, _real(batch)),
        "the two engines are exchanged": scalars(swapped),
        "over log-probabilities, not probabilities": _over_log_probs(tokens),
        "over probabilities, not log-probabilities": _over_probs(tokens),
        "weighted by sample, not by token": _by_sample(tokens),
    }
    if batch.loss_mask is not None:
        kept = (batch.response_mask != 0) & (batch.loss_mask != 0)
        found["another mask: after rejection (`loss_mask`)"] = _masked(batch, kept)
    return found


def _masked(batch: Batch, mask: Tensor) -> dict[str, float]:
    return scalars(tokens_of(replace(batch, response_mask=mask, round_ids=None)))


def _real(batch: Batch) -> Tensor:
    """Mark every position that is no padding."""
    sizes = batch.offsets.diff()
    position = torch.arange(len(batch.response_ids), device=sizes.device)
    ends = batch.offsets[:-1] + batch.lengths
    return position < ends.repeat_interleave(sizes)


def _over_log_probs(tokens: Tokens) -> dict[str, float]:
    size = diff(tokens.old, tokens.rollout).abs()
    as_probs = replace(tokens, old=size.log1p(), rollout=torch.zeros_like(size))
    # exp(log1p(|d|)) - exp(0) is |d|: verl's formulas, given |d| for a probability.
    numbers = scalars(as_probs)
    return {name: numbers[name] for name in numbers if "probs_diff" in name}


def _over_probs(tokens: Tokens) -> dict[str, float]:
    probs = replace(tokens, old=tokens.old.exp(), rollout=tokens.rollout.exp())
    numbers = scalars(probs)
    return {name: numbers[name] for name in numbers if name.startswith("per_round/")}


def _by_sample(tokens: Tokens) -> dict[str, float]:
    difference = diff(tokens.old, tokens.rollout)
    everywhere = torch.ones_like(tokens.round, dtype=torch.bool)
    parts = {
        "training/rollout_probs_diff_mean": (
            prob_diff(tokens.old, tokens.rollout),
            everywhere,
        ),
        "rollout_corr/kl": (-difference, everywhere),
        "rollout_corr/k3_kl": (k3(difference), everywhere),
    }
    for index in range(tokens.num_rounds):
        name = f"per_round/round_{index}_abs_diff_mean"
        parts[name] = difference.abs(), tokens.round == index
    return {name: _mean_of_means(tokens, *part) for name, part in parts.items()}


def _mean_of_means(tokens: Tokens, values: Tensor, keep: Tensor) -> float:
    """Average over the samples that have tokens the means over their tokens."""
    sample, kept = tokens.sample[keep], values[keep]
    count = added(torch.ones_like(kept), sample, tokens.num_samples)
    total = added(kept, sample, tokens.num_samples)
    return float((total / count)[count > 0].mean())
