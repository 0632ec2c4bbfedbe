"""The verdict: one word for the whole batch, by the range of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.findings.finding import Finding
    from rounddiag.findings.level import Level
    from rounddiag.findings.reference import Range

Verdict: TypeAlias = Literal[
    "identical",
    "healthy",
    "noisy",
    "stale",
    "suspicious",
    "broken",
    "not_measurable",
]
# From good to bad. What could not be measured is unknown, so it ranks worst: a gate
# that measured nothing must not pass.
_SEVERITY: dict[Verdict, int] = {
    "identical": 0,
    "healthy": 0,
    "noisy": 1,
    "stale": 2,
    "suspicious": 3,
    "broken": 4,
    "not_measurable": 5,
}
# A finding below this confidence does not change the verdict.
CONFIDENT = 0.5
# Causes that are arithmetic, not a bug: they make a batch noisy at most.
NOISE = frozenset({"moe_routing", "low_precision", "batch_shape"})
STALE = frozenset({"stale_weights", "mixed_weights"})
# A k3 estimate of KL(rollout | old) of this size ends runs (threads.md section 4).
_BROKEN_KL = 0.1
_BROKEN_SHARE = 0.3


def is_at_least(verdict: Verdict, level: Verdict) -> bool:
    """Whether a verdict is as bad as a level, or worse.

    The order is identical and healthy, noisy, stale, suspicious, broken;
    `not_measurable` is at least as bad as any of them.

    Examples
    --------
    >>> is_at_least("broken", "suspicious"), is_at_least("stale", "suspicious")
    (True, False)
    >>> is_at_least("not_measurable", "broken")
    True
    """
    return _SEVERITY[verdict] >= _SEVERITY[level]


def judge(level: Level, usual: Range, findings: Sequence[Finding]) -> Verdict:
    """Return the verdict on a batch whose mismatch is not zero everywhere."""
    sure = [one for one in findings if one.confidence >= CONFIDENT]
    bugs = [one for one in sure if one.cause not in NOISE]
    if bugs:
        is_large = level.mean_abs_diff > usual.limit or level.kl > _BROKEN_KL
        if bugs[0].cause in STALE:
            return "stale"
        if is_large and sum(one.share for one in bugs) > _BROKEN_SHARE:
            return "broken"
        return "suspicious"
    if level.mean_abs_diff <= usual.usual:
        return "healthy"
    return "noisy" if level.mean_abs_diff <= usual.limit else "suspicious"
