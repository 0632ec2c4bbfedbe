"""`outlier_tokens`: single tokens far off, without a pattern of places."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.causes import list_alternatives
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.pattern import at_limit, strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# An outlier differs by more than this, in nats, and by so many times the 90th
# percentile of tokens as likely.
MIN_DIFF = 0.2
FACTOR = 30.0
MIN_OUTLIERS = 3
# One is enough where it differs by more than this, in nats.
HUGE = 4.0
# Part of the sum of |diff| that outliers have together.
MIN_SHARE = 0.12
# A router's flips of healthy mixtures of experts are off by 120 times the 90th
# percentile, and hold half of the sum: outliers are farther off, or hold more.
MIN_RATIO, LARGE_SHARE = 150.0, 0.6
# More tokens than this are no longer single ones.
MAX_PART = 0.05
# Outliers whose neighbour is one too: a stretch is another cause.
MAX_NEIGHBOURS = 0.35
# Outliers of one sample.
MAX_IN_ONE = 0.5
MIN_TOKENS = 100
# Outliers of which this part is in a place that has at most that part of all tokens.
INSIDE, MAX_BASE = 0.85, 0.75
_FAMILIES = (
    *("round", "image", "step", "column", "block", "groups", "rows", "period"),
    *("change", "limit"),
)
_BINS = 16


@register("outlier_tokens", stage="fit")
def outlier_tokens(view: View) -> Evidence | None:
    """Find single tokens that are far off while all others are as usual."""
    if len(view) < MIN_TOKENS or view.is_fitted:
        return None
    ratio = view.abs / high_by_bin(view)
    tokens = (view.abs > MIN_DIFF) & (ratio > FACTOR)
    num = int(tokens.sum())
    share = float(view.abs[tokens].sum() / max(view.abs.sum(), 1e-300))
    huge = bool((view.abs[tokens] > HUGE).any())
    few = num < MIN_OUTLIERS and not huge
    if few or share < MIN_SHARE or num > MAX_PART * len(view):
        return None
    is_mild = np.median(ratio[tokens]) < MIN_RATIO and share < LARGE_SHARE
    # Or all tokens are off; some more than others.
    if is_mild or view.abs[~tokens].mean() > view.usual.limit:
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
            Measure(name="median |diff|", value=float(np.median(view.abs)), unit="nat"),
        ),
        explanation=(
            f"{num} single tokens ({num / len(view):.2%}) differ by more than "
            f"{FACTOR:g} times what tokens as likely do, and make {share:.0%} of the "
            "sum; they follow no sample, round or position."
        ),
        alternatives=list_alternatives(other, "low_precision"),
        next_step=(
            "Switch fused kernels off one by one and compare the two files with "
            "plot_compare; replay routed_experts if it is a mixture of experts."
        ),
    )


def _has_place(view: View, tokens: Array) -> bool:
    """Whether the outliers are where a pattern of places is."""
    if at_limit(view, tokens, 0.6):
        return True
    # Outliers draw patterns of their own: those of the other tokens count.
    rest = view.keep(~tokens)
    if strong_patterns(rest, "slope", "step"):
        return True  # all tokens are off, these the most
    nearest = np.searchsorted(rest.flat, view.flat[tokens])
    nearest = np.minimum(nearest, len(rest) - 1)
    for pattern in strong_patterns(rest, *_FAMILIES):
        inside = pattern.tokens
        if inside[nearest].mean() > INSIDE and inside.mean() < MAX_BASE:
            return True
    return False


def high_by_bin(view: View) -> Array:
    """Return for each token the 90th percentile of |diff| of tokens as likely."""
    edges = np.unique(np.quantile(view.r, np.linspace(0, 1, _BINS + 1)[1:-1]))
    code = np.searchsorted(edges, view.r)
    order = np.argsort(code, kind="stable")
    stops = np.searchsorted(code[order], np.arange(len(edges) + 2))
    high = np.zeros(len(edges) + 1)
    for k, (begin, stop) in enumerate(itertools.pairwise(stops)):
        if stop > begin:
            high[k] = np.quantile(view.abs[order[begin:stop]], 0.9)
    floor = max(0.02 * float(view.abs.mean()), 1e-6)
    result: Array = np.maximum(high, floor)[code]
    return result
