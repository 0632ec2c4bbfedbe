"""`logit_processor`: the sampler penalises ids that occurred before."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.findings.bins import mean_by_bin
from rounddiag.findings.finding import Evidence
from rounddiag.findings.level import clustered_mean
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
    old, new = seen & chosen, ~seen & chosen
    if old.sum() < _MIN_TOKENS or new.sum() < _MIN_TOKENS:
        return None
    x = _log_prob(view)
    d = np.clip(view.diff, -LARGEST_DIFF, LARGEST_DIFF)
    x_new = x[new]
    of_new = mean_by_bin(x_new, d[new], x_new)
    of_old = mean_by_bin(x_new, d[new], x[old])
    gap, error = clustered_mean(d[old] - of_old, view.sample[old])
    _, other = clustered_mean(d[new] - of_new, view.sample[new])
    error = float(np.hypot(error, other))
    if gap < _MIN_Z * error:
        return None
    # What the split explains beyond the log-prob alone, on the half not fitted.
    fit = fitting_half(view, chosen)
    left = 0.0
    for part in (old, new):
        known, judged = part & fit, part & ~fit
        rest = d[judged] - mean_by_bin(x[known], d[known], x[judged])
        left += float((rest**2).sum())
    known, judged = chosen & fit, chosen & ~fit
    rest = d[judged] - mean_by_bin(x[known], d[known], x[judged])
    alone = float((rest**2).sum())
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
    again = np.zeros(len(ids), dtype=bool)
    for sample, length in enumerate(batch.lengths.tolist()):
        own = slice(begins[sample], begins[sample] + length)
        prompt = prompts[limits[sample] : limits[sample + 1]]
        again[own] = _repeats(np.concatenate([prompt, ids[own]]))[len(prompt) :]
    return again


def seen_before(view: View) -> Array:
    """Return whether a token's id was generated earlier in its sample."""
    if len(view) == 0:
        return np.zeros(0, dtype=bool)
    return _repeats(view.sample * (int(view.token_id.max()) + 1) + view.token_id)


def _repeats(keys: Array) -> Array:
    import pandas as pd

    return pd.Series(keys).duplicated().to_numpy()
