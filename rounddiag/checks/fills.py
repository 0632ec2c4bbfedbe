"""Constant fill: one value in the place of many log-probabilities of a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.checks.contract import Contract, Fault, joined
from rounddiag.checks.places import blocks_where, need_tokens, samples_of
from rounddiag.checks.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]

# A value is a fill from this share of a sample's tokens on, and this many of them.
_SHARE, _TOKENS = 1 / 4, 8
# Log-probs of sure tokens, in nats: a model repeats those, 0 among them. They are a
# fill only where they are all that the sample has.
_SURE = 1e-3


def _find(batch: Batch) -> Fault | None:
    need_tokens(batch)
    scores = {"rollout": batch.rollout_log_probs, "old": batch.old_log_probs}
    return joined(
        fault for name, score in scores.items() for fault in _fills(batch, name, score)
    )


def _fills(batch: Batch, name: str, log_probs: Tensor) -> Iterator[Fault]:
    found = {}
    for sample in _suspects(batch, log_probs):
        fill = _fill(_generated(batch, log_probs, sample))
        if fill is not None:
            found[sample] = fill
    if found:
        sample, (value, share) = next(iter(found.items()))
        yield Fault(
            f"{count(len(found), 'sample')} with one {name} log-prob at many tokens:"
            f" sample {sample} has {value:.6g} at {share:.0%} of them",
            tuple(found),
        )


def _suspects(batch: Batch, log_probs: Tensor) -> list[int]:
    """Return the samples that can have a fill: to sort all tokens would take long."""
    rounds = batch.rounds
    num_tokens = rounds.sample.new_zeros(batch.num_samples)
    num_tokens.index_add_(0, rounds.sample, rounds.num_tokens)
    repeats = samples_of(batch, _repeats(batch, log_probs))
    num_repeats = repeats.bincount(minlength=batch.num_samples)
    # By chance a fill of a share p stands beside itself at a share of p squared.
    repeated = (num_repeats > 0) & (num_repeats >= _SHARE**2 * num_tokens)
    suspected = repeated | _may_be_zero(batch, log_probs)
    return (suspected & (num_tokens >= _TOKENS)).nonzero()[:, 0].tolist()


def _may_be_zero(batch: Batch, log_probs: Tensor) -> Tensor:
    """Tell which samples have 0 at the ends and in the middle of every round."""
    rounds = batch.rounds
    middle = rounds.start + rounds.num_tokens // 2
    last = rounds.start + rounds.num_tokens - 1
    probes = torch.cat([rounds.start, middle, last])
    others = rounds.sample.repeat(3)[log_probs[probes] != 0]
    return others.bincount(minlength=batch.num_samples) == 0


def _repeats(batch: Batch, log_probs: Tensor) -> Tensor:
    """Return the generated tokens with the log-prob of the one before, and not sure."""
    neighbours = (log_probs[1:], log_probs[:-1])
    found = list(blocks_where(batch.response_mask[1:], _is_repeated, *neighbours))
    return torch.cat(found) + 1 if found else batch.offsets.new_empty(0)


def _is_repeated(own: Tensor, before: Tensor) -> Tensor:
    return (own == before) & (own.abs() > _SURE)


def _generated(batch: Batch, log_probs: Tensor, sample: int) -> Array:
    begin, stop = batch.offsets[sample : sample + 2].tolist()
    written = batch.response_mask[begin:stop] != 0
    tokens: Array = log_probs[begin:stop][written].float().cpu().numpy()
    return tokens


def _fill(values: Array) -> tuple[float, float] | None:
    """Return the value that fills a sample, and its share of the tokens."""
    if (values == values[0]).all():
        return float(values[0]), 1.0
    found, num = np.unique(values[abs(values) > _SURE], return_counts=True)
    if num.max(initial=0) < max(_TOKENS, _SHARE * len(values)):
        return None
    return float(found[num.argmax()]), float(num.max() / len(values))


FILLS = Contract(
    "no value fills the log-probs of a sample",
    "rollout_log_probs, old_log_probs",
    _find,
)
