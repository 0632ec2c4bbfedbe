"""Which samples are scored: those with the largest mismatch, and controls."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.errors import BatchError
from rounddiag.proof.scorer import STANDARD, Scorer

MAX_SAMPLES = 16  # that are scored again unless asked otherwise
_EVERY = 3  # one sample in three is a control
_LEAST_TOKENS = 4  # of a sample whose mean |diff| ranks it


def choose_samples(scorer: Scorer, samples: int | Sequence[int] | None) -> list[int]:
    """Return the samples to score, in the order in which they are needed.

    Two thirds are those with the largest mean |diff|, of different groups first; one
    third are those with the smallest, as controls. With one engine there is no diff
    before it is scored: the samples of different groups come first.
    """
    if samples is None or isinstance(samples, int | np.integer):
        limit = MAX_SAMPLES if samples is None else int(samples)
        wanted = (
            interleave(scorer.batch)
            if scorer.engines[:2] == STANDARD
            else _spread_groups(scorer.batch, np.arange(scorer.batch.num_samples))
        )
    else:
        chains = scorer.samples.chains
        given = _require_samples(chains.joined, samples)
        wanted = [each for sample in given for each in chains.of_sample(sample)]
        limit = len(wanted)
    chosen: list[int] = []
    for sample in wanted:
        if len(chosen) >= limit:
            break
        if scorer.can_score(sample):
            chosen.append(sample)
    if not chosen:
        reasons = list(scorer.unscored.values())
        raise BatchError.build(
            expected="a sample that can be scored again",
            found=reasons[0] if reasons else "none",
            advice="See `rounddiag.prove` for what a batch needs.",
        )
    return chosen


def _require_samples(batch: Batch, samples: Sequence[int]) -> list[int]:
    try:
        indices = [index(sample) for sample in samples]
        wrong = [sample for sample in indices if not 0 <= sample < batch.num_samples]
    except TypeError:
        indices, wrong = [], [samples]  # type: ignore[list-item]
    if wrong:
        raise BatchError.build(
            key="samples",
            expected=f"indices from 0 to {batch.num_samples - 1}, or their number",
            found=repr(wrong[0]),
            advice="Name samples as the batch numbers them.",
        )
    return list(dict.fromkeys(indices))


def interleave(batch: Batch) -> list[int]:
    """Return two with a large mean |diff|, then one with a small one, and so on.

    Samples of too few tokens come after all others.
    """
    size, number = _mean_abs_diff(batch)
    order: dict[int, None] = {}
    for known in (number >= _LEAST_TOKENS, (number > 0) & (number < _LEAST_TOKENS)):
        rising = np.flatnonzero(known)[np.argsort(size[known], kind="stable")]
        worst = iter(
            _spread_groups(batch, rising[np.argsort(-size[rising], kind="stable")])
        )
        best = iter(rising.tolist())
        for _ in range(len(rising)):
            is_control = len(order) % _EVERY == _EVERY - 1
            source = best if is_control else worst
            order[next(sample for sample in source if sample not in order)] = None
    return list(order)


def _spread_groups(batch: Batch, ordered: Array) -> list[int]:
    if batch.group_ids is None:
        return ordered.tolist()
    seen: dict[str, int] = {}
    rank = []
    for sample in ordered.tolist():
        group = batch.group_ids[sample]
        rank.append(seen.get(group, 0))
        seen[group] = rank[-1] + 1
    return ordered[np.argsort(rank, kind="stable")].tolist()


def _mean_abs_diff(batch: Batch) -> tuple[Array, Array]:
    """Return the mean |diff| of each sample, and of how many tokens it is."""
    old, rollout = batch.both_log_probs()
    diff = (old.double() - rollout.double()).abs()
    size = diff.cpu().numpy()
    mask = batch.response_mask.cpu().numpy() != 0
    offsets = batch.offsets.cpu().numpy()
    row = np.repeat(np.arange(batch.num_samples), np.diff(offsets))
    good = mask & np.isfinite(size)
    total = np.bincount(row[good], weights=size[good], minlength=batch.num_samples)
    number = np.bincount(row[good], minlength=batch.num_samples)
    return total / np.maximum(number, 1), number
