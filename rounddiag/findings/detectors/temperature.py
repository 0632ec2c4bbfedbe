"""`temperature`: one side divides its logits by another temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag.findings.view import View

MIN_R2 = 0.5
MIN_TOKENS = 30


@register("temperature", stage="fit")
def temperature(view: View) -> Evidence | None:
    """Fit d = (1 - 1/T)(o + H)."""
    chosen = view.uncertain
    if chosen.sum() < MIN_TOKENS:
        return None
    x = view.o + (view.entropy if view.entropy is not None else 0.0)
    xs, ds = x[chosen], view.d[chosen]
    slope = float((xs @ ds) / max(xs @ xs, 1e-12))
    r2 = 1 - float(((ds - slope * xs) ** 2).sum() / max(ds @ ds, 1e-12))
    if r2 < MIN_R2 or not -2 < slope < 0.95:
        return None
    value = 1 / (1 - slope)
    effect = np.where(chosen, slope * x, 0.0)
    return Evidence(
        score=min(0.5 + r2 / 2, 0.99),
        tokens=chosen,
        effect=effect,
        measures=(
            Measure(name="temperature", value=value),
            Measure(name="R squared", value=r2),
        ),
        explanation=f"Consistent with a sampler at temperature {value:.3f}.",
        next_step="Set T = 1 or logprobs_mode=processed_logprobs.",
    )
