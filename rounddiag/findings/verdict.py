"""The verdict: one word for a batch, by the range of its kind, and a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from rounddiag.findings.causes import CAUSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.findings.diagnosis import Diagnosis
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
# A finding below this confidence does not change the verdict.
CONFIDENT = 0.5
# Numerical causes, not bugs: they make a batch noisy at most.
NOISE = frozenset({"moe_routing", "low_precision", "batch_shape"})
STALE = frozenset({"stale_weights", "mixed_weights"})
# A k3 estimate of KL(rollout | old) of this size ends runs (threads.md section 4).
_BROKEN_KL = 0.1
_BROKEN_SHARE = 0.3


def is_at_least(verdict: Verdict, level: Verdict) -> bool:
    """Return whether a verdict is as bad as a level, or worse.

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


_OPENING = {
    "broken": "Not noise",
    "suspicious": "Not noise",
    "stale": "Not noise",
    "noisy": "Noise above the usual range",
    "healthy": "Noise",
}


def write_sentence(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as one or two sentences."""
    level = diagnosis.level
    if diagnosis.verdict == "not_measurable":
        return f"The mismatch cannot be measured: {diagnosis.reason}."
    if diagnosis.verdict == "identical":
        return (
            f"All {level.num_tokens} tokens have bitwise equal log-probs: true "
            "on-policy training and a bypass that copies them look alike."
        )
    sure = [one for one in diagnosis if one.confidence >= CONFIDENT]
    opening = _OPENING[diagnosis.verdict]
    if not sure:
        return f"{opening}. {_level(diagnosis)}; {_no_pattern(diagnosis)}"
    first = sure[0]
    meaning = CAUSES.get(first.cause, first.cause.replace("_", " "))
    place = first.place[:1].upper() + first.place[1:]
    text = f"{opening}. {place}{_elsewhere(diagnosis)}."
    text += _not_with(first)
    text += f" Consistent with {meaning} ({first.cause})"
    others = [one.cause for one in first.alternatives]
    if others:
        text += f", or {', '.join(others)}"
    more = [one.cause for one in sure[1:]]
    if more:
        text += f"; also {', '.join(more)}"
    return f"{text}. Next: {first.next_step}"


def _level(diagnosis: Diagnosis) -> str:
    level, usual = diagnosis.level, diagnosis.reference
    assumed = " (assumed)" if diagnosis.kind_is_assumed else ""
    return (
        f"Mean |diff| is {level.mean_abs_diff:.4f} nat ({level.low:.4f} to "
        f"{level.high:.4f}) over {level.num_tokens} tokens; up to {usual.usual:.4g} is "
        f"usual for a {usual.meaning}{assumed}"
    )


def _no_pattern(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict == "healthy":
        return "no round, sample, position or token id stands out."
    return (
        "no round, sample, position or token id stands out. Next: pass a batch "
        "known to be sound as `healthy=`, or name the kind of run as `kind=`."
    )


def _elsewhere(diagnosis: Diagnosis) -> str:
    rest, usual = diagnosis.rest, diagnosis.reference
    if rest.num_tokens == 0 or not np.isfinite(rest.mean_abs_diff):
        return ""
    if rest.num_tokens == diagnosis.level.num_tokens:
        return f"; mean |diff| is {diagnosis.level.mean_abs_diff:.4f} nat"
    is_usual = rest.mean_abs_diff <= usual.usual
    judged = f"usual for a {usual.meaning}" if is_usual else "above the usual"
    return f"; elsewhere {rest.mean_abs_diff:.4f} nat, {judged}"


def _not_with(finding: Finding) -> str:
    names = finding.where.get("not_with", ())
    if not names:
        return ""
    listed = ", ".join(names[:-1])
    listed = f"{listed} or {names[-1]}" if listed else names[-1]
    return f" Their |diff| does not follow {listed}."
