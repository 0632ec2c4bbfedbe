"""The verdict: one word for a batch, by its findings and the range of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from rounddiag.findings.causes import NO_CAUSE
from rounddiag.findings.finding import Finding
from rounddiag.findings.level import Level
from rounddiag.findings.reference import Range

Verdict: TypeAlias = Literal[
    "identical", "healthy", "noisy", "stale", "suspicious", "broken", "not_measurable"
]
# From good to bad. `not_measurable` ranks worst: a gate that measured nothing must not
# pass.
_SEVERITY: dict[Verdict, int] = {
    "identical": 0,
    "healthy": 0,
    "noisy": 1,
    "stale": 2,
    "suspicious": 3,
    "broken": 4,
    "not_measurable": 5,
}
STALE = frozenset({"stale_weights", "mixed_weights"})
# Facts that explain noise, and are no bug.
NOISE = frozenset({"low_precision"})
# A batch is broken if bugs hold more than this share of its mismatch, or of its tokens.
# A convention.
_BROKEN_SHARE = 0.3


def severity_of(verdict: Verdict) -> int:
    """Return how bad a verdict is, 0 to 4; `not_measurable` is 5.

    Examples
    --------
    >>> severity_of("healthy"), severity_of("broken")
    (0, 4)
    """
    return _SEVERITY[verdict]


def is_at_least(verdict: Verdict, level: Verdict) -> bool:
    """Return whether a verdict is as bad as a level, or worse.

    The order is identical and healthy, noisy, stale, suspicious, broken;
    `not_measurable` is at least as bad as any of them.
    """
    return severity_of(verdict) >= severity_of(level)


def hold(previous: Verdict | None, now: Verdict, strict: Verdict) -> Verdict:
    """Return the verdict of a step after another, so that one fault has one word.

    A verdict holds until it is not met at half of all limits, which gives `strict`.

    Examples
    --------
    >>> hold("broken", "suspicious", "broken"), hold("broken", "healthy", "healthy")
    ('broken', 'healthy')
    >>> hold(None, "suspicious", "broken")
    'suspicious'
    """
    if previous is None or "not_measurable" in (previous, now):
        return now
    return (
        previous
        if is_at_least(previous, now) and is_at_least(strict, previous)
        else now
    )


def find_verdict(
    level: Level, usual: Range, findings: Sequence[Finding], *, factor: float = 1.0
) -> Verdict:
    """Return the verdict on a batch whose mismatch is not zero everywhere.

    Facts, reversals and places that were tested make a batch at least suspicious, those
    of older versions alone `stale`. So does a fact that makes the update wrong, however
    well log-probs agree. Broken is what bugs explain to more than 30 %: where the level
    is beyond its limits any bugs, else facts whose cause is named and is no older
    version. The limits of the level and of k3 are multiplied by `factor`.
    """
    is_large = level.mean_abs_diff > factor * usual.limit
    is_far = is_large or level.kl > factor * usual.limit_kl
    bugs = [
        finding
        for finding in findings
        if finding.is_bug and not (usual.is_drift and finding.cause in STALE)
    ]
    is_update_wrong = any(finding.severity == "update" for finding in findings)
    if bugs:
        is_stale = all(
            finding.kind == "fact" and finding.cause in STALE for finding in bugs
        )
        if is_stale and not is_update_wrong:
            return "stale"
        if any(finding.part_impossible > _BROKEN_SHARE for finding in bugs):
            return "broken"
        unnamed = {NO_CAUSE, *STALE}
        named = [f for f in bugs if f.kind == "fact" and f.cause not in unnamed]
        if sum(bug.share for bug in (bugs if is_far else named)) > _BROKEN_SHARE:
            return "broken"
        return "suspicious"
    if is_far or is_update_wrong:
        return "suspicious"
    is_raised = level.mean_abs_diff > factor * usual.usual
    is_noisy = any(
        finding.kind == "place" or finding.cause in NOISE for finding in findings
    )
    return "noisy" if is_raised or is_noisy else "healthy"
