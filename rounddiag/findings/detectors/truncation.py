"""`truncated_sampling`: the sampler's log-probs are of a truncated distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.level import clustered_mean
from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag.findings.view import View

# Between any two whole distributions the mean diff is about minus half its mean square.
# A truncated one is further below: by this factor, with this many standard errors.
MIN_RATIO = 3.0
MIN_Z = 5.0
# Part of the sum of |diff| that is negative on balance.
MIN_BALANCE = 0.45
MIN_TOKENS = 30
LARGE = 3.0
# A cut of the distribution is the same in all rounds and positions.
MAX_GAP = 0.45
_PLACES = ("round", "image", "step", "slope", "change", "rows", "block", "column")


@register("truncated_sampling", stage="fit")
def truncated_sampling(view: View) -> Evidence | None:
    """Find diffs that are negative throughout, and too small to be other weights."""
    if view.fitted is not None:
        return None  # one effect of sampling a batch
    chosen = view.uncertain
    if chosen.sum() < MIN_TOKENS:
        return None
    d, sample = np.clip(view.d[chosen], -LARGE, LARGE), view.sample[chosen]
    balance = -float(d.sum() / max(np.abs(d).sum(), 1e-300))
    excess, error = clustered_mean(-d - MIN_RATIO * d * d / 2, sample)
    z = excess / max(error, 1e-12)
    if balance < MIN_BALANCE or z < MIN_Z:
        return None
    if any(one.gap > MAX_GAP for one in strong_patterns(view, *_PLACES)):
        return None  # a lost context is one-sided too, where it is lost
    mean, mean_error = clustered_mean(d, sample)
    kept, bound = np.exp(mean), np.exp(np.quantile(d, 0.01))
    certain = int(((view.r == 0) & view.uncertain).sum())
    effect = np.where(chosen, np.clip(view.d, -LARGE, 0.0), 0.0)
    return Evidence(
        score=float(np.clip(0.5 + balance / 2, 0, 0.97)),
        tokens=chosen,
        effect=effect,
        measures=(
            Measure(
                name="kept mass",
                value=float(kept),
                low=float(np.exp(mean - 1.96 * mean_error)),
                high=float(np.exp(mean + 1.96 * mean_error)),
            ),
            Measure(name="share of |diff| that is negative", value=(1 + balance) / 2),
            Measure(name="smallest kept mass (1 %)", value=float(bound)),
            Measure(name="tokens with r exactly 0", value=certain, unit="tokens"),
        ),
        explanation=(
            f"`{view.a}` is below `{view.b}` by {-mean:.3g} nat on average and almost "
            f"never above it, consistent with log-probs over {kept:.1%} of the "
            "mass, as "
            f"top-p or top-k leave (99 % of tokens above {bound:.2f})."
        ),
        next_step=(
            "Set top_p = 1 and top_k = -1, or replay the kept ids in the trainer; with "
            "vLLM compare logprobs_mode raw and processed."
        ),
    )
