"""`logit_processor`: the sampler penalises ids that occurred before."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.findings.bins import codes_like, distinct, mean_by_bin
from rounddiag.findings.finding import Evidence
from rounddiag.findings.level import mean_of_sums
from rounddiag.findings.measure import Measure
from rounddiag.findings.noise import fitting_half
from rounddiag.findings.registry import register
from rounddiag.findings.view import LARGEST_DIFF, View

# Of the ids that occurred before, and of fresh ones. 15 or 60 change no answer.
_MIN_TOKENS = 30
# Difference of the mean diff of both, in standard errors.
_MIN_Z = 6.0
# Least part of the sum of squares that the split explains beyond the log-prob alone.
# With 0.24, only 11 of 13 formulas of vLLM are claimed (`tests.faults.bench --set`).
MIN_PARTIAL = 0.12
# In longer batches, ids of prompts and observations are not searched.
_MAX_SEARCHED = 4_000_000  # positions


@register("logit_processor", kind="reversal")
def logit_processor(view: View) -> Evidence | None:
    """Split the signed diff by whether the id occurred earlier in the context."""
    split = best_split(view)
    if split is None or split.partial < MIN_PARTIAL:
        return None
    chosen = view.uncertain
    scope = "in the context" if split.is_context else "in the response"
    return Evidence(
        tokens=chosen,
        effect=split.effect,
        measures=(
            Measure(
                "diff at ids seen before minus diff at equally likely fresh ids",
                split.gap,
                "nat",
                low=split.gap - 1.96 * split.error,
                high=split.gap + 1.96 * split.error,
            ),
            Measure(
                "part of the squares that the split explains", split.partial, "share"
            ),
        ),
        shown=(
            f"At ids that occurred earlier {scope} `{view.a}` is above `{view.b}` by "
            f"{split.gap:.3g} nat more than at equally likely fresh ids. Consistent "
            "with a penalty on repeated tokens."
        ),
        next_step=(
            "Look for repetition_penalty in generation_config.json and set it to 1, or "
            "take raw log-probs."
        ),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenSplit:
    """How the signed diff differs between ids seen before and fresh ones.

    Attributes
    ----------
    gap, error: Difference of the mean diff at the same log-prob, and its standard
        error.
    partial: Part of the sum of squares around the mean of equally likely tokens.
    is_context: Whether prompt and observations count as seen, as in transformers and in
        vLLM's repetition_penalty.
    """

    gap: float
    error: float
    partial: float
    is_context: bool
    view: View = field(repr=False)

    def effect(self, view: View) -> Array:
        """Return the mean diff that the split gives to the tokens of a view."""
        fitted = np.zeros(len(view))
        x, d = (
            _log_prob(self.view),
            np.clip(self.view.diff, -LARGEST_DIFF, LARGEST_DIFF),
        )
        mine, others = (
            (seen_in_context if self.is_context else seen_before)(each)
            for each in (self.view, view)
        )
        for is_seen in (True, False):
            known = self.view.uncertain & (mine == is_seen)
            at = view.uncertain & (others == is_seen)
            fitted[at] = mean_by_bin(x[known], d[known], _log_prob(view)[at])
        return fitted


def best_split(view: View) -> SeenSplit | None:
    """Return the better split: by the ids of the response, or of the whole context."""
    if view.batch.response_ids is None or view.is_fitted:
        return None
    if "seen" not in view.memo:
        splits = [_split(view, seen_before(view), is_context=False)]
        if view.batch.num_positions <= _MAX_SEARCHED:
            splits.append(_split(view, seen_in_context(view), is_context=True))
        known = [split for split in splits if split is not None]
        view.memo["seen"] = max(known, key=lambda split: split.partial, default=None)
    return view.memo["seen"]


def _split(view: View, seen: Array, *, is_context: bool) -> SeenSplit | None:
    chosen = view.uncertain
    x, old = _log_prob(view)[chosen], seen[chosen]
    if min(old.sum(), (~old).sum()) < _MIN_TOKENS:
        return None
    d = np.clip(view.diff[chosen], -LARGEST_DIFF, LARGEST_DIFF)
    code, num = codes_like(x[~old], x)
    # Sums by sample, by whether the id was seen, and by bin of fresh ids.
    shape = (view.batch.num_samples, 2, num)
    cell = (2 * view.sample[chosen] + old) * num + code
    sizes, sums = (
        np.bincount(cell, weights, math.prod(shape)).reshape(shape)
        for weights in (None, d)
    )
    total, size = sums[:, 0].sum(axis=0), sizes[:, 0].sum(axis=0)
    usual = np.where(size > 0, total / np.maximum(size, 1), total.sum() / size.sum())
    rest, sizes = (sums - sizes * usual).sum(axis=2), sizes.sum(axis=2)
    (_, other), (gap, error) = (
        mean_of_sums(rest[:, side], sizes[:, side]) for side in (0, 1)
    )
    error = float(np.hypot(error, other))
    if gap < _MIN_Z * error:
        return None
    fit = fitting_half(view, chosen)[chosen]

    def squares_left(part: Array) -> float:
        known, judged = part & fit, part & ~fit
        rest = d[judged] - mean_by_bin(x[known], d[known], x[judged])
        return float((rest**2).sum())

    # What the split explains beyond the log-prob alone, on the half not fitted.
    left, alone = squares_left(old) + squares_left(~old), squares_left(old | ~old)
    partial = 1 - left / max(alone, 1e-300)
    return SeenSplit(
        gap=gap, error=error, partial=partial, is_context=is_context, view=view
    )


def _log_prob(view: View) -> Array:
    """Return the log-prob less its expected value, where the entropy is known."""
    return view.log_prob_a if view.entropy is None else view.log_prob_a + view.entropy


def seen_in_context(view: View) -> Array:
    """Return whether a token's id occurs before it, in the prompt or the response."""
    memo = view.facts.memo
    if "seen_in_context" not in memo:
        memo["seen_in_context"] = _seen_in_context(view.batch)
    return memo["seen_in_context"][view.flat]


def _seen_in_context(batch: Batch) -> Array:
    ids, begins = batch.require_ids().cpu().numpy(), batch.offsets.tolist()
    prompts, limits = ids[:0], [0] * len(begins)
    if batch.prompt_ids is not None and batch.prompt_offsets is not None:
        prompts, limits = batch.prompt_ids.cpu().numpy(), batch.prompt_offsets.tolist()
    known, codes = distinct(np.concatenate([prompts, ids]))
    prompts, codes = codes[: len(prompts)], codes[len(prompts) :]
    first = np.empty(len(known), dtype=np.int64)
    again = np.zeros(len(ids), dtype=bool)
    for sample, length in enumerate(batch.lengths.tolist()):
        own = slice(begins[sample], begins[sample] + length)
        prompt = prompts[limits[sample] : limits[sample + 1]]
        context = np.concatenate([prompt, codes[own]])
        again[own] = _repeats(context, first)[len(prompt) :]
    return again


def seen_before(view: View) -> Array:
    """Return whether a token's id was generated earlier in its sample."""
    known, codes = view.distinct_ids
    first = np.empty(len(known), dtype=np.int64)
    parts = np.split(codes, np.cumsum(view.num_per_sample)[:-1])
    return np.concatenate([_repeats(part, first) for part in parts])


def _repeats(codes: Array, first: Array) -> Array:
    """Return whether each code has occurred before; `first` has an entry for each."""
    index = np.arange(len(codes))
    first[codes[::-1]] = index[::-1]  # the last that is written stays
    return first[codes] < index
