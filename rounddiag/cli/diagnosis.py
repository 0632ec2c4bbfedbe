"""The verdict, the level and the findings of a diagnosis as text for a terminal."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from rounddiag.wording import pluralize, printable

if TYPE_CHECKING:
    from rounddiag.checks import Checks
    from rounddiag.findings import Diagnosis

_HEADINGS = ("confidence", "share", "cause", "where")


def describe_diagnosis(diagnosis: Diagnosis) -> str:
    """Return the verdict in a sentence, the level with its range, and the findings.

    Parameters
    ----------
    diagnosis : Diagnosis

    Returns
    -------
    str
        Two paragraphs, or one where there are no findings: a table with one row per
        finding, best first. `share` is the part of the sum of |diff|.
    """
    head = f"{diagnosis.verdict}: {printable(diagnosis.text)}\n{_level(diagnosis)}"
    return "\n\n".join(filter(None, [head, _table(diagnosis)]))


def describe_failed_checks(checks: Checks) -> str:
    """Return one line per failed check."""
    failed = [f"failed check: {one.name}: {one.detail}" for one in checks.failed]
    return "\n".join(failed)


def _level(diagnosis: Diagnosis) -> str:
    level, usual = diagnosis.level, diagnosis.reference
    counts = (
        f"{pluralize(level.num_tokens, 'token')} of "
        f"{pluralize(level.num_samples, 'sample')}"
    )
    if isnan(level.mean_abs_diff):
        return f"level: none; {counts} with a finite diff"
    assumed = ", assumed" if diagnosis.kind_is_assumed else ""
    return (
        f"level: mean |diff| {level.mean_abs_diff:.4g} nat (95 % interval "
        f"{level.low:.4g} to {level.high:.4g}; {counts})\n"
        f"range: up to {usual.usual:.4g} nat is usual, above {usual.limit:.4g} nat is "
        f"not noise ({printable(usual.meaning)}{assumed})"
    )


def _table(diagnosis: Diagnosis) -> str:
    """Return one line per finding, the last column of any width."""
    if not len(diagnosis):
        return ""
    rows = [
        (f"{one.confidence:.2f}", f"{one.share:.0%}", one.cause, printable(one.place))
        for one in diagnosis
    ]
    width = max(len(cause) for _, _, cause, _ in [_HEADINGS, *rows])
    return "\n".join(
        f"{confidence:>10}  {share:>5}  {cause:<{width}}  {place}"
        for confidence, share, cause, place in [_HEADINGS, *rows]
    )
