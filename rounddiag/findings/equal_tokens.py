"""Tokens with bitwise equal log-probs: all of them, or those before a token."""

from __future__ import annotations

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.columns import first_unequal, positions, to_numpy, token_samples
from rounddiag.core.scores import select_scores
from rounddiag.core.sums import diffs, pack_tokens
from rounddiag.findings.finding import Evidence
from rounddiag.findings.view import CERTAIN, View
from rounddiag.wording import pluralize

# Uncertain tokens that a sample needs on either side. A certain token is 0 in both.
MIN_UNSURE = 8
# Share of uncertain tokens that may be equal after the first that is not.
_MAX_AGAIN = 0.02
# It is the pattern of a batch if this share of the samples that differ has it.
_MIN_SHARE = 0.5


def are_identical(batch: Batch, a: str, b: str) -> bool:
    """Return whether log-probs are finite and equal at every token of the mask."""
    # The difference of two infinite or missing values is not 0.
    return bool((diffs(select_scores(batch, a, b)) == 0).all())


def find_unread(view: View) -> Evidence | None:
    """Return the tokens that differ where all that were read are equal, as a fact.

    They are a bug if they differ by more than is usual for tokens that differ at all.
    """
    batch = select_scores(view.batch, view.a, view.b)
    size = np.abs(diffs(batch))
    differs = (size > 0) & np.isfinite(size)
    if not differs.any():
        return None
    samples = np.unique(token_samples(batch)[differs])
    mean = float(size[differs].mean())
    return Evidence(
        cause="unknown",
        severity="bug" if mean > view.usual.usual else "note",
        tokens=np.zeros(len(view), dtype=bool),
        shown="",
        where={
            "samples": samples,
            "fact": f"{int(differs.sum()):,} of {pluralize(len(size), 'token')} differ,"
            f" by {mean:.2g} nat on average, in {pluralize(len(samples), 'sample')}"
            f" (the first is {samples[0]}); all others are bitwise equal, and so are"
            " all that were judged",
        },
        next_step=f"Diagnose `batch[{[*samples[:8].tolist()]}]`, which has them.",
    )


def describe_equal_start(batch: Batch, a: str, b: str) -> str:
    """Return a sentence about the samples that are equal up to a token; else empty."""
    batch = select_scores(batch, a, b)
    diff = diffs(batch)
    equal = diff == 0
    if equal.all() or not equal.any():
        return ""
    num_tokens = to_numpy(batch.rounds.num_tokens)
    of_round, num = to_numpy(batch.rounds.sample), batch.num_samples
    first = np.full(num, np.nan)
    np.fmin.at(first, of_round, first_unequal(batch, diff))
    sample = token_samples(batch)
    begins = np.cumsum(num_tokens) - num_tokens
    position = np.arange(len(diff)) + np.repeat(positions(batch) - begins, num_tokens)
    after = position >= first[sample]
    scores = batch.both_log_probs()
    unsure = np.minimum(*(pack_tokens(batch, score) for score in scores)) < CERTAIN

    def count(tokens: Array) -> Array:
        return np.bincount(sample[tokens], minlength=num)

    later = count(unsure & after)
    differing = (count(unsure & ~after) >= MIN_UNSURE) & (later >= MIN_UNSURE)
    differing &= count(unsure & after & equal) <= _MAX_AGAIN * later
    if differing.sum() < max(1, _MIN_SHARE * np.isfinite(first).sum()):
        return ""
    numbers, again = np.flatnonzero(differing), count(after & equal)[differing]
    rest = f"equal at {again[0]:,} of {count(after)[differing][0]:,} from there on"
    text = (
        f"Log-probs are bitwise equal before token {first[differing][0]:,.0f} of sample"
        f" {numbers[0]}, and {rest if again[0] else 'not once from there on'}"
    )
    if len(numbers) > 1:
        others = first[differing][1:]
        low, high = f"{others.min():,.0f}", f"{others.max():,.0f}"
        where = f"token {low}" if low == high else f"tokens {low} to {high}"
        text += f"; likewise {pluralize(len(others), 'more sample')}, at {where}"
    return f"{text}."
