"""`moe_routing`, `outlier_tokens`: few tokens differ much, without a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Alternative, Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag.findings.view import View

# A token is an outlier where |diff| is so many times the median of tokens as likely.
FACTOR = 20.0
MIN_OUTLIERS = 5
# Part of the sum of |diff| that outliers have together.
MIN_SHARE = 0.3
# Share of tokens from which a tail is no longer single tokens.
MANY = 0.01
MIN_TOKENS = 200


@register("outlier_tokens", stage="level")
def outlier_tokens(view: View) -> Evidence | None:
    """Find a heavy tail over a healthy median."""
    if len(view) < MIN_TOKENS:
        return None
    scale = _median_by_bin(view)
    tokens = view.abs > FACTOR * scale
    num = int(tokens.sum())
    share = float(view.abs[tokens].sum() / max(view.abs.sum(), 1e-300))
    if num < MIN_OUTLIERS or share < MIN_SHARE:
        return None
    part = num / len(view)
    cause = "moe_routing" if part > MANY else "outlier_tokens"
    other = "outlier_tokens" if part > MANY else "moe_routing"
    return Evidence(
        cause=cause,
        score=float(np.clip(0.4 + share / 2, 0, 0.85)),
        tokens=tokens,
        measures=(
            Measure(name="outliers", value=num, unit="tokens"),
            Measure(name="their share of the sum of |diff|", value=share),
            Measure(name="median |diff|", value=float(np.median(view.abs)), unit="nat"),
        ),
        explanation=(
            f"{num} tokens ({part:.2%}) differ more than {FACTOR:g} times the median of "
            f"tokens as likely and make {share:.0%} of the sum; they follow no row, "
            "round or position."
        ),
        alternatives=(
            Alternative(cause=other, would_tell="The routed experts of both engines."),
            Alternative(
                cause="low_precision", would_tell="lm_head in float32 on both sides."
            ),
        ),
        next_step=(
            "Replay routed_experts if it is a mixture of experts; else switch fused "
            "kernels off one by one and compare the two files with plot_compare."
        ),
    )


def _median_by_bin(view: View) -> np.ndarray:
    edges = np.unique(np.quantile(view.r, np.linspace(0, 1, 17)[1:-1]))
    code = np.searchsorted(edges, view.r)
    medians = np.array(
        [
            np.median(view.abs[code == k]) if (code == k).any() else 0.0
            for k in range(len(edges) + 1)
        ]
    )
    floor = (
        0.1 * float(np.median(view.abs[view.uncertain])) if view.uncertain.any() else 0
    )
    return np.maximum(medians, max(floor, 1e-6))[code]
