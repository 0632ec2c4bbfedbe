"""`stale_weights`, `sync_broken`: other weights at every token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Alternative, Evidence, Measure
from rounddiag.findings.level import Level
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag.findings.view import Array, View

# Correlation of the diff with the mean diff of the same id in other groups.
MIN_CORRELATION = 0.15
MIN_TOKENS = 200
BROKEN_PEARSON = 0.9
LARGE = 3.0


@register("stale_weights", stage="level")
def stale_weights(view: View) -> Evidence | None:
    """Find a diff that the token id predicts, or a level above the range."""
    if len(view) < MIN_TOKENS:
        return None
    level = Level.from_view(view)
    correlation = id_correlation(view)
    is_high = level.low > view.usual.limit
    if correlation < MIN_CORRELATION and not is_high:
        return None
    is_broken = level.pearson < BROKEN_PEARSON
    cause = "sync_broken" if is_broken else "stale_weights"
    other = "stale_weights" if is_broken else "sync_broken"
    return Evidence(
        cause=cause,
        score=float(np.clip(0.4 + correlation, 0.3, 0.9)),
        tokens=np.ones(len(view), dtype=bool),
        measures=(
            Measure(name="correlation with the id's mean elsewhere", value=correlation),
            Measure(
                name="mean |diff|",
                value=level.mean_abs_diff,
                unit="nat",
                low=level.low,
                high=level.high,
            ),
            Measure(name="Pearson r of probabilities", value=level.pearson),
        ),
        explanation=(
            "All tokens are off alike, and the same ids move the same way in different "
            f"groups (correlation {correlation:.2f}): consistent with other weights."
        ),
        alternatives=(
            Alternative(
                cause=other,
                would_tell="The weight version of each sample, and a checksum by layer.",
            ),
            Alternative(
                cause="model_mismatch",
                would_tell="Step 0 of the same run: healthy there, weights do not arrive.",
            ),
            Alternative(
                cause="lora_mismatch", would_tell="Score with the adapter merged."
            ),
        ),
        next_step=(
            "Save step 0 and a later step. Healthy at 0: weights do not arrive. Score "
            "with the checkpoint of the step before: the one that fits rollout is what "
            "the sampler ran."
        ),
    )


def id_correlation(view: View) -> float:
    """Return how well the diff is predicted by the same id in other groups."""
    if view.batch.is_redacted:
        return 0.0
    chosen = view.uncertain
    d = np.clip(view.d[chosen], -LARGE, LARGE)
    group = view.facts.group
    owner = view.sample[chosen] if group is None else group[view.sample[chosen]]
    ids, code = np.unique(view.id[chosen], return_inverse=True)
    total, num = np.bincount(code, weights=d), np.bincount(code)
    key = owner * len(ids) + code
    pairs, at = np.unique(key, return_inverse=True)
    own, own_num = np.bincount(at, weights=d), np.bincount(at)
    rest = total[pairs % len(ids)] - own
    rest_num = num[pairs % len(ids)] - own_num
    known = rest_num >= 3
    # Few others say little: shrink their mean as if there were four zeros more.
    predicted = (rest / (rest_num + 4))[at]
    use = known[at]
    return _correlation(predicted[use], d[use])


def _correlation(x: Array, y: Array) -> float:
    if len(x) < MIN_TOKENS // 4 or x.std() == 0 or y.std() == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])
