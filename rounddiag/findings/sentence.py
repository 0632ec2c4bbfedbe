"""A diagnosis as one or two plain sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rounddiag.findings.diagnosis import Diagnosis


def sentence(diagnosis: Diagnosis) -> str:
    """Return the diagnosis in words."""
    level, usual = diagnosis.level, diagnosis.reference
    if diagnosis.verdict == "not_measurable":
        return f"The mismatch cannot be measured: {diagnosis.reason}."
    if diagnosis.verdict == "identical":
        return (
            f"All {level.num_tokens} tokens have bitwise equal log-probs: true "
            "on-policy training and a bypass that copies them look alike."
        )
    if not diagnosis.findings:
        return (
            f"Mean |diff| is {level.mean_abs_diff:.4f} nat, usual up to "
            f"{usual.usual:.4g} for {usual.meaning}; no pattern."
        )
    first = diagnosis.findings[0]
    return f"{first.explanation} Next: {first.next_step}"
