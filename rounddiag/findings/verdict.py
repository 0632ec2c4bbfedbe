"""The verdict: one word for a batch, by its findings and the range of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from rounddiag.findings.level import MIN_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.findings.finding import Finding
    from rounddiag.findings.level import Level
    from rounddiag.findings.reference import Range
    from rounddiag.findings.registry import Stage


Verdict: TypeAlias = Literal[
    "identical",
    "healthy",
    "noisy",
    "stale",
    "suspicious",
    "broken",
    "not_measurable",
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
# A named effect below this probability does not change the verdict; nor does a level
# without a place, whatever its cause.
_PROBABLE = 0.5
# Numerical causes, not bugs: they make a batch noisy at most.
NOISE = frozenset({"moe_routing", "low_precision", "batch_shape"})
STALE = frozenset({"stale_weights", "mixed_weights"})
# A k3 estimate of KL(rollout | old) of this size ends runs (threads.md section 4).
_BROKEN_KL = 0.1
_BROKEN_SHARE = 0.3


def is_certain(stage: Stage, probability: float) -> bool:
    """Return whether some evidence rules noise out.

    A place does by its own probability; exact evidence and fitted effects if the cause
    that they name is probable.
    """
    return stage == "place" or (stage != "level" and probability >= _PROBABLE)


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


def judge(
    level: Level, usual: Range, findings: Sequence[Finding], *, factor: float = 1.0
) -> Verdict:
    """Return the verdict on a batch whose mismatch is not zero everywhere.

    A batch with a place that noise does not explain is at least suspicious, whether or
    not its cause has a name. Older weights alone are `stale`; beside another bug they
    do not hide it. All limits are multiplied by `factor`.
    """
    least, most = factor * usual.usual, factor * usual.limit
    bugs = [
        one
        for one in findings
        if one.is_certain
        and (one.looks or not _is_probably(one, NOISE))
        and not (usual.is_drift and _is_probably(one, STALE))
    ]
    if bugs:
        if all(_is_probably(one, STALE) for one in bugs):
            return "stale"
        is_large = level.mean_abs_diff > most or level.kl > factor * _BROKEN_KL
        if is_large and sum(one.share for one in bugs) > factor * _BROKEN_SHARE:
            return "broken"
        return "suspicious"
    if level.mean_abs_diff <= least:
        # A short dtype is no bug, and neither is what only ids predict, but both are
        # nothing to be silent about.
        is_named = any(
            one.is_certain or (one.looks and not usual.is_drift) for one in findings
        )
        return "noisy" if is_named else "healthy"
    if level.num_samples < MIN_SAMPLES:
        every = level.least_sample_mean > most
        return "suspicious" if every and level.num_samples > 1 else "noisy"
    return "noisy" if level.mean_abs_diff <= most else "suspicious"


def _is_probably(finding: Finding, causes: frozenset[str]) -> bool:
    """Return whether one of some causes is more likely than all others together."""
    chosen = finding.causes[finding.causes.index.isin(list(causes))]
    return float(chosen.sum()) >= _PROBABLE
