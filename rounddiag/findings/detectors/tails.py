"""`outlier_tokens`: single tokens far off, without a pattern of places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.bins import bins, group_by_bin, quantile_edges
from rounddiag.findings.causes import list_alternatives
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.place import find_places
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# An outlier differs by more than this, in nats, and by this many times the 90th
# percentile of equally likely tokens.
MIN_DIFF = 0.2
FACTOR = 30.0
MIN_OUTLIERS = 3
# A single outlier is enough if it differs by more than this, in nats.
HUGE = 4.0
# Part of the sum of |diff| that outliers have together.
MIN_SHARE = 0.12
# In healthy mixtures of experts, tokens with other routes differ by 120 times the 90th
# percentile and hold half of the sum. Outliers differ more, or hold more.
MIN_RATIO, LARGE_SHARE = 150.0, 0.6
# A larger share of the tokens is more than single tokens.
MAX_PART = 0.05
# Share of outliers next to another one: stretches have another cause.
MAX_NEIGHBOURS = 0.35
# Share of the outliers in one sample.
MAX_IN_ONE = 0.5
MIN_TOKENS = 100
# Outliers have a place if this share of them, and at most that share of all tokens, is
# in it.
INSIDE, MAX_BASE = 0.85, 0.75
_BINS = 16


@register("outlier_tokens", stage="fit")
def outlier_tokens(view: View) -> Evidence | None:
    """Find single tokens that are far off while all others are normal."""
    if len(view) < MIN_TOKENS or view.is_fitted:
        return None
    ratio = view.abs_diff / high_by_bin(view)
    tokens = (view.abs_diff > MIN_DIFF) & (ratio > FACTOR)
    num = int(tokens.sum())
    share = float(view.abs_diff[tokens].sum() / max(view.abs_diff.sum(), 1e-300))
    huge = bool((view.abs_diff[tokens] > HUGE).any())
    few = num < MIN_OUTLIERS and not huge
    if few or share < MIN_SHARE or num > MAX_PART * len(view):
        return None
    is_mild = np.median(ratio[tokens]) < MIN_RATIO and share < LARGE_SHARE
    # Or all tokens differ, some more than others.
    if is_mild or view.abs_diff[~tokens].mean() > view.usual.limit:
        return None
    neighbours = float((tokens[1:] & tokens[:-1]).sum() / num)
    in_one = float(np.bincount(view.sample[tokens]).max() / num)
    if neighbours > MAX_NEIGHBOURS or (in_one > MAX_IN_ONE and num > 2 * MIN_OUTLIERS):
        return None
    if _has_place(view, tokens):
        return None
    cause, other = "outlier_tokens", "moe_routing"
    if view.usual.is_routed:
        cause, other = "moe_routing", "outlier_tokens"
    return Evidence(
        cause=cause,
        score=float(np.clip(0.6 + share / 3, 0, 0.95)),
        tokens=tokens,
        measures=(
            Measure(name="outliers", value=num, unit="tokens"),
            Measure(name="their share of the sum of |diff|", value=share),
            Measure(
                name="median |diff|", value=float(np.median(view.abs_diff)), unit="nat"
            ),
        ),
        explanation=(
            f"{num} single tokens ({num / len(view):.2%}) differ by more than "
            f"{FACTOR:g} times as much as equally likely tokens, and make {share:.0%} "
            "of the sum; they follow no sample, round or position."
        ),
        alternatives=list_alternatives(other, "low_precision"),
        next_step=(
            "Switch fused kernels off one by one and compare the two files with "
            "plot_compare; replay routed_experts if it is a mixture of experts."
        ),
    )


def _has_place(view: View, tokens: Array) -> bool:
    """Return whether the outliers lie in a place of the other tokens.

    Outliers make places of their own, so those of the other tokens count.
    """
    rest = view.keep(~tokens)
    nearest = np.searchsorted(rest.flat, view.flat[tokens])
    nearest = np.minimum(nearest, len(rest) - 1)
    return any(
        one.tokens[nearest].mean() > INSIDE and one.tokens.mean() < MAX_BASE
        for one in find_places(rest)
    )


def high_by_bin(view: View) -> Array:
    """Return the 90th percentile of |diff| of equally likely tokens, for each token.

    A token counts as likely if either engine finds it so: one wrong value must not
    choose what it is compared with.
    """
    likely = np.maximum(view.log_prob_a, view.log_prob_b)
    edges = quantile_edges(likely, _BINS)
    code = bins(edges, likely)
    high = np.zeros(len(edges) + 1)
    for k, tokens in enumerate(group_by_bin(code, len(high))):
        if len(tokens):
            high[k] = np.quantile(view.abs_diff[tokens], 0.9)
    floor = max(0.02 * float(view.abs_diff.mean()), 1e-6)
    result: Array = np.maximum(high, floor)[code]
    return result
