"""verl's formulas, over packed tokens in float64, on any device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rounddiag.core.divergence import bounded, diff, k3, prob_diff

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag.batch import Batch

# verl adds this to the number of tokens that it divides by, in `masked_mean`.
_EPSILON = 1e-8
_UNDEFINED = {
    "training/rollout_probs_diff_max": math.nan,
    "training/rollout_probs_diff_mean": math.nan,
    "training/rollout_probs_diff_std": math.nan,
    "training/rollout_actor_probs_pearson_corr": math.nan,
}


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Generated tokens of a batch, end to end.

    Attributes
    ----------
    old, rollout : Tensor of float64, shape (num_tokens,)
        Log-probabilities, in nats.
    sample, round : Tensor of int64, shape (num_tokens,)
        Which sample and round a token is in.
    num_samples, num_rounds : int
        Samples of the batch, and rounds of its longest one.
    """

    old: Tensor
    rollout: Tensor
    sample: Tensor
    round: Tensor
    num_samples: int
    num_rounds: int


def tokens_of(batch: Batch) -> Tokens:
    """Pack the generated tokens of a batch."""
    keep, rounds = batch.response_mask != 0, batch.rounds
    return Tokens(
        old=batch.old_log_probs.detach()[keep].double(),
        rollout=batch.rollout_log_probs.detach()[keep].double(),
        sample=rounds.sample.repeat_interleave(rounds.num_tokens),
        round=rounds.round.repeat_interleave(rounds.num_tokens),
        num_samples=batch.num_samples,
        num_rounds=int(rounds.round.max()) + 1 if len(rounds) else 0,
    )


def scalars(tokens: Tokens) -> dict[str, float]:
    """Compute all scalars; without any token only what has a value then."""
    if len(tokens.old) == 0:
        valid = {"training/rollout_probs_diff_valid": 0}
        return {**valid, **_UNDEFINED, "per_round/total_rounds": 0}
    found = {**_training(tokens), **_rollout_corr(tokens)}
    # One transfer for all of them: in a training loop each one would wait for the GPU.
    values = torch.stack([*found.values()]).tolist()
    named = dict(zip(found, values, strict=True))
    valid = {"training/rollout_probs_diff_valid": 1}
    return {**valid, **named, **_per_round(tokens)}


def _training(tokens: Tokens) -> dict[str, Tensor]:
    difference = prob_diff(tokens.old, tokens.rollout)
    return {
        "training/rollout_probs_diff_max": difference.max(),
        "training/rollout_probs_diff_mean": difference.mean(),
        "training/rollout_probs_diff_std": _covariance(difference, difference).sqrt(),
        "training/rollout_actor_probs_pearson_corr": _pearson(
            tokens.old.exp(), tokens.rollout.exp()
        ),
    }


def _rollout_corr(tokens: Tokens) -> dict[str, Tensor]:
    log_ratio = diff(tokens.old, tokens.rollout)
    training = -_sample_means(tokens.old, tokens)
    rollout = -_sample_means(tokens.rollout, tokens)
    gap = training - rollout
    of_sample = added(log_ratio, tokens.sample, tokens.num_samples)
    found = {
        "training_ppl": training.exp().mean(),
        "training_log_ppl": training.mean(),
        "kl": _mean(-log_ratio),
        "k3_kl": _mean(k3(log_ratio)),
        "rollout_ppl": rollout.exp().mean(),
        "rollout_log_ppl": rollout.mean(),
        "log_ppl_diff": gap.mean(),
        "log_ppl_abs_diff": gap.abs().mean(),
        "log_ppl_diff_max": gap.max(),
        "log_ppl_diff_min": gap.min(),
        "ppl_ratio": gap.exp().mean(),
        "chi2_token": _mean((2 * bounded(log_ratio)).exp()) - 1,
        "chi2_seq": (2 * bounded(of_sample)).exp().mean() - 1,
    }
    return {f"rollout_corr/{name}": value for name, value in found.items()}


def _per_round(tokens: Tokens) -> dict[str, float]:
    size = diff(tokens.old, tokens.rollout).abs()
    count = added(torch.ones_like(size), tokens.round, tokens.num_rounds)
    means = (added(size, tokens.round, tokens.num_rounds) / count).tolist()
    found: dict[str, float] = {"per_round/total_rounds": tokens.num_rounds}
    for index, (mean, num) in enumerate(zip(means, count.tolist(), strict=True)):
        found[f"per_round/round_{index}_abs_diff_mean"] = mean
        found[f"per_round/round_{index}_token_count"] = int(num)
    known = [mean for mean in means if not math.isnan(mean)]
    found["per_round/max_round_diff"] = means.index(max(known)) if known else -1
    return {**found, **({"per_round/max_diff_value": max(known)} if known else {})}


def added(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Add up the values of each group; 0 for a group without any."""
    return values.new_zeros(num_groups).index_add_(0, group, values)


def _mean(values: Tensor) -> Tensor:
    return values.sum() / (len(values) + _EPSILON)


def _sample_means(values: Tensor, tokens: Tokens) -> Tensor:
    count = added(torch.ones_like(values), tokens.sample, tokens.num_samples)
    return added(values, tokens.sample, tokens.num_samples) / (count + _EPSILON)


def _covariance(x: Tensor, y: Tensor) -> Tensor:
    return ((x - x.mean()) * (y - y.mean())).sum() / (len(x) - 1)


def _pearson(x: Tensor, y: Tensor) -> Tensor:
    spread = (_covariance(x, x) * _covariance(y, y)).sqrt()
    return (_covariance(x, y) / spread).clamp(-1, 1)
