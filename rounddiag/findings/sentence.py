"""A diagnosis as one or two plain sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import CAUSES
from rounddiag.findings.verdict import CONFIDENT

if TYPE_CHECKING:
    from rounddiag.findings.diagnosis import Diagnosis
    from rounddiag.findings.finding import Finding

_OPENING = {
    "broken": "Not noise.",
    "suspicious": "Not noise.",
    "stale": "Not noise.",
    "noisy": "Noise above the usual range.",
    "healthy": "Noise.",
}


def sentence(diagnosis: Diagnosis) -> str:
    """Return the diagnosis in words."""
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
        return f"{opening} {_level(diagnosis)}; {_no_pattern(diagnosis)}"
    first = sure[0]
    meaning = CAUSES.get(first.cause, first.cause.replace("_", " "))
    text = f"{opening} {_capital(first.place)}{_elsewhere(diagnosis)}."
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


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
