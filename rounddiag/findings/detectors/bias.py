"""`constant_bias`: one engine's log-probs are too high or too low by a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence
from rounddiag.findings.measure import Measure
from rounddiag.findings.noise import Noise, every_second, fitting_half
from rounddiag.findings.reference import code_probability
from rounddiag.findings.registry import register
from rounddiag.wording import with_minus

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View


@register("constant_bias", kind="reversal")
def constant_bias(view: View) -> Evidence | None:
    """Subtract one number from the diff of all tokens."""
    return undo_bias(view, np.ones(len(view), dtype=bool))


def undo_bias(view: View, tokens: Array) -> Evidence | None:
    """Return the evidence that the diff of some tokens is a constant and noise.

    The constant is the median of one half of the clusters and ids: equal texts prove
    nothing. On the others it must leave noise at likely and at unlikely tokens: a
    truncated distribution moves unlikely ones alone.
    """
    noise = Noise(view=view, unchanged=~tokens)
    if view.is_fitted or noise.is_reached(
        view.abs_diff[tokens], view.log_prob_b[tokens]
    ):
        return None
    fit = fitting_half(view, tokens)
    fit, judged = tokens & fit, tokens & ~fit
    if view.batch.response_ids is not None:
        is_even = every_second(view.distinct_ids[1], tokens)
        fit, judged = fit & is_even, judged & ~is_even
    if not (fit.any() and judged.any()):
        return None
    bias = float(np.median(view.diff[fit]))
    # The side that is too low is too low at certain tokens as well.
    likely = np.minimum(np.maximum(view.log_prob_a, view.log_prob_b), 0.0)[judged]
    index, after = np.flatnonzero(judged), np.abs(view.diff[judged] - bias)
    code = code_probability(likely)
    parts = [code == likelihood for likelihood in np.unique(code)]
    if not all(noise.is_undone(index[i], after[i], likely[i]) for i in parts):
        return None
    is_whole = bool(tokens.all())
    here, left = float(view.abs_diff[judged].mean()), float(after.mean())
    return Evidence(
        cause="constant_bias",
        tokens=tokens,
        effect=(lambda other: np.full(len(other), bias)) if is_whole else None,
        measures=(
            Measure("constant", bias, "nat"),
            Measure("mean |diff|", here, "nat"),
            Measure("mean |diff| without the constant", left, "nat"),
        ),
        shown=(
            f"Undone with {with_minus(f'{-bias:+.3g}')} nat added to `{view.a}`, "
            f"{here:.2g} nat become {left:.2g} at {len(after):,} tokens on which the"
            f" constant was not fitted. That is {noise.source}."
        ),
        next_step="Look for a normaliser that one engine leaves out.",
    )
