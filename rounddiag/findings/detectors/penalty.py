"""`logit_processor`: the sampler penalises ids that it has seen before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.excess import mean_by_bin
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.level import clustered_mean
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

MIN_TOKENS = 30
# Difference of the mean diff of seen and fresh ids, in standard errors.
MIN_Z = 6.0
# Part of the sum of |diff| at seen ids that has one sign on balance.
MIN_BALANCE = 0.35
LARGE = 3.0


@register("logit_processor", stage="fit")
def logit_processor(view: View) -> Evidence | None:
    """Split the signed diff by whether the id occurred earlier in the response."""
    if view.batch.is_redacted:
        return None
    if view.fitted is not None:
        return None  # one effect of sampling a batch
    chosen = view.uncertain
    seen = seen_before(view) & chosen
    fresh = chosen & ~seen
    if seen.sum() < MIN_TOKENS or fresh.sum() < MIN_TOKENS:
        return None
    d = np.clip(view.d, -LARGE, LARGE)
    first, first_error = clustered_mean(d[seen], view.sample[seen])
    second, second_error = clustered_mean(d[fresh], view.sample[fresh])
    balance = d[seen].sum() / max(np.abs(d[seen]).sum(), 1e-300)
    # Seen ids are likelier: only tokens as likely are compared.
    matched = d - mean_by_bin(view.o[fresh], d[fresh], view.o)
    gap, error = clustered_mean(matched[seen], view.sample[seen])
    z = gap / max(np.hypot(error, second_error), 1e-12)
    if z < MIN_Z or balance < MIN_BALANCE or first < abs(second):
        return None
    effect = np.where(
        seen, np.clip(view.d, -LARGE, LARGE), np.where(fresh, second, 0.0)
    )
    return Evidence(
        score=float(np.clip(0.6 + balance / 2, 0, 0.97)),
        tokens=chosen,
        effect=effect,
        measures=(
            Measure(
                name="mean diff at ids seen before",
                value=first,
                unit="nat",
                low=first - 1.96 * first_error,
                high=first + 1.96 * first_error,
            ),
            Measure(
                name="mean diff at fresh ids",
                value=second,
                unit="nat",
                low=second - 1.96 * second_error,
                high=second + 1.96 * second_error,
            ),
        ),
        explanation=(
            f"At ids that occurred earlier in the response `{view.a}` is above "
            f"`{view.b}` by {first:.3g} nat; at fresh ids the mean is "
            f"{second:+.2g} nat. Consistent with a penalty on repeated tokens."
        ),
        next_step=(
            "Look for repetition_penalty in generation_config.json and set it to 1, or "
            "take raw log-probs."
        ),
    )


def seen_before(view: View) -> Array:
    """Return whether a token's id was generated earlier in its sample."""
    if len(view) == 0:
        return np.zeros(0, dtype=bool)
    key = view.sample * (int(view.id.max()) + 1) + view.id
    order = np.argsort(key, kind="stable")
    again = np.zeros(len(view), dtype=bool)
    again[order[1:]] = key[order[1:]] == key[order[:-1]]
    return again
