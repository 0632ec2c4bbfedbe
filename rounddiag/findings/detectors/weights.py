"""A mismatch at every token, without a place: other weights, or other arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.level import Level, log_odds
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# Correlation of the diff with its mean over the same two ids in other prompts. Sound
# 8-bit weights reach 0.42 with five prompts, and more by chance with fewer.
MIN_CORRELATION = 0.45
# Probability of such a correlation by chance, by a t-test over prompts.
LEVEL = 2e-3
MOST_ONE_SIDED = 0.65
MIN_TOKENS = 250
LARGE = 3.0
MIN_LEVEL = 3e-4  # nats: below is the rounding of float32
_SHRINK = 4


@register("stale_weights", stage="level")
def stale_weights(view: View) -> Evidence | None:
    """Find a diff that ids predict, or a level above the range without a pattern."""
    if len(view) < MIN_TOKENS:
        return None
    level = Level.from_view(view)
    if view.is_fitted and view.entropy is None and level.low <= view.usual.limit:
        return None  # without entropy, the rest of a temperature follows the ids
    correlation, p = id_correlation(view)
    is_raised = level.low > view.usual.usual
    is_known = correlation > MIN_CORRELATION and p < LEVEL
    is_known = is_known and level.mean_abs_diff > MIN_LEVEL
    # Small differences of two distributions balance: their mean is minus the KL.
    one_sided = abs(view.diff.sum()) > MOST_ONE_SIDED * view.abs_diff.sum()
    is_known = is_known and (is_raised or not (view.usual.is_quantized or one_sided))
    if not is_known and not (is_raised and not view.is_fitted):
        return None
    fact = (
        f"the same ids move the same way in different samples ({correlation:.2f})"
        if is_known
        else "the level is above the range of its kind and follows no place"
    )
    return Evidence(
        score=1.0,
        tokens=np.ones(len(view), dtype=bool),
        measures=(
            Measure(name="correlation with the ids' mean elsewhere", value=correlation),
            Measure(name="its probability by chance", value=p),
            Measure(
                name="mean |diff|",
                value=level.mean_abs_diff,
                unit="nat",
                low=level.low,
                high=level.high,
            ),
            Measure(name="Pearson r of probabilities", value=level.pearson),
        ),
        explanation=f"All tokens differ alike; {fact}.",
    )


def log_odds_tail(view: View) -> float:
    """Return the 90th percentile of the difference of the log-odds over the median."""
    gap = np.abs(log_odds(view.log_prob_a) - log_odds(view.log_prob_b))[view.uncertain]
    if not len(gap):
        return float("nan")
    middle, high = np.quantile(gap, [0.5, 0.9])
    return float(high / max(middle, 1e-300))


def id_correlation(view: View) -> tuple[float, float]:
    """Return how well the same two ids in other prompts' samples predict the diff.

    That is a correlation, and the probability of such a one by chance. Samples of one
    prompt begin with the same ids in the same context, and so with the same noise.
    """
    if view.batch.is_redacted:
        return 0.0, 1.0
    if "id_correlation" not in view.memo:
        view.memo["id_correlation"] = _correlate_ids(view)
    found: tuple[float, float] = view.memo["id_correlation"]
    return found


def _correlate_ids(view: View) -> tuple[float, float]:
    import pandas as pd

    chosen = view.uncertain
    d = np.clip(view.diff[chosen], -LARGE, LARGE)
    owner = view.facts.prompt[view.sample[chosen]]
    before = np.where(view.follows, np.r_[-1, view.token_id[:-1]], -1) + 1
    both = (
        before[chosen] * (int(view.token_id.max(initial=0)) + 1) + view.token_id[chosen]
    )
    code, keys = pd.factorize(both)  # many times faster than to sort them
    total = np.bincount(code, weights=d, minlength=len(keys))
    num = np.bincount(code, minlength=len(keys))
    at, pairs = pd.factorize(owner * max(len(keys), 1) + code)
    own, own_num = np.bincount(at, weights=d), np.bincount(at)
    rest = total[pairs % max(len(keys), 1)] - own
    rest_num = num[pairs % max(len(keys), 1)] - own_num
    use = (rest_num > 1)[at]
    predicted = (rest / (rest_num + _SHRINK))[at][use]
    return _correlation(predicted, d[use], owner[use])


def _correlation(x: Array, y: Array, owner: Array) -> tuple[float, float]:
    if len(x) < MIN_TOKENS // 4 or x.std() == 0 or y.std() == 0:
        return 0.0, 1.0
    product = (x - x.mean()) * (y - y.mean())
    by_owner = np.bincount(np.unique(owner, return_inverse=True)[1], weights=product)
    p = 1.0
    if len(by_owner) > 1:
        p = float(stats.ttest_1samp(by_owner, 0, alternative="greater").pvalue)
    return float(product.mean() / (x.std() * y.std())), p
