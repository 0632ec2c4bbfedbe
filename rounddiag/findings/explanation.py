"""What explains the mismatch: the largest cause first, then what is left of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.registry import DETECTORS, STAGES, Stage, look

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.finding import Evidence
    from rounddiag.findings.view import View

MAX_FINDINGS = 6
# Evidence below this score is not a finding.
MIN_SCORE = 0.3
MIN_TOKENS = 32
# Evidence that is not exact names a part of the sum of |diff| that is at least this: of
# all tokens, or of those left as long as they are above the range.
MIN_SHARE = 0.03
# (score, confidence) by cause or stage, rising: the share of first findings that were
# right on `tests/faults`, the agents `tune-0` and `test-0` pooled, 1,269 batches with a
# fault (2026-11-22). Between 0.6 and 0.8 the second half was 20 points below the first.
TABLE: dict[str, tuple[tuple[float, float], ...]] = {
    "exact": ((0.45, 0.4), (0.8, 0.8), (0.9, 0.95), (0.97, 0.985)),
    "fit": ((0.4, 0.3), (0.65, 0.64), (0.75, 0.72), (0.85, 0.87), (0.97, 0.97)),
    "place": ((0.63, 0.62), (0.72, 0.67), (0.8, 0.77), (0.9, 0.92), (0.95, 0.97)),
    "level": ((0.4, 0.4), (0.75, 0.72), (0.9, 0.92)),
}


@dataclass(frozen=True, eq=False)
class Explained:
    """Evidence, the tokens of the whole view that it goes with, and its share.

    Attributes
    ----------
    evidence : Evidence
    stage : {"exact", "fit", "place", "level"}
    indices : int64 array
        Tokens of the view that was explained.
    share : float
        Of the sum of |diff| of that view.
    """

    evidence: Evidence
    stage: Stage
    indices: Array
    share: float


def explain(view: View) -> tuple[list[Explained], View]:
    """Return the causes in the order in which they were taken out, and what is left."""
    total = float(view.abs.sum())
    found: list[Explained] = []
    left, indices = view, np.arange(len(view))
    while len(found) < MAX_FINDINGS:
        known = {one.evidence.cause for one in found}
        best = _best(left, known, total)
        if best is None:
            break
        stage, evidence = best
        chosen = evidence.tokens
        sum_before = float(left.abs[chosen].sum())
        if evidence.effect is not None:
            after = left.without(evidence.effect)
            part = sum_before - float(after.abs[chosen].sum())
            found.append(_explained(evidence, stage, indices[chosen], part, total))
            left = after
            continue
        part = sum_before if evidence.adds_mismatch else 0.0
        found.append(_explained(evidence, stage, indices[chosen], part, total))
        if stage == "level":
            break
        left, indices = left.keep(~chosen), indices[~chosen]
        if len(left) < MIN_TOKENS:
            break
    return found, left


def _explained(
    evidence: Evidence, stage: Stage, indices: Array, part: float, total: float
) -> Explained:
    share = min(max(part / total, 0.0), 1.0) if total > 0 else 0.0
    return Explained(evidence, stage, indices, share)


def _best(view: View, known: set[str], total: float) -> tuple[Stage, Evidence] | None:
    """Return the evidence of the first stage that has any."""
    for stage in STAGES:
        detectors = [one for one in DETECTORS.values() if one.stage == stage]
        found = [
            _named(evidence, detector.name)
            for detector in detectors
            for evidence in look(detector, view)
            if stage == "exact" or _matters(evidence, view, total)
        ]
        found = [
            one for one in found if one.score >= MIN_SCORE and one.cause not in known
        ]
        if found:
            return stage, max(found, key=lambda one: _rank(one, stage))
    return None


def _matters(evidence: Evidence, view: View, total: float) -> bool:
    """Whether the tokens of some evidence hold a part of the mismatch worth a name."""
    whole = total
    if view.abs.mean() > view.usual.usual:
        whole = float(view.abs.sum())
    return float(view.abs[evidence.tokens].sum()) > MIN_SHARE * whole


def _rank(evidence: Evidence, stage: Stage) -> tuple[bool, float]:
    """Rank copies and the like first: what they repeat must not count twice."""
    value = evidence.score
    if stage in ("place", "exact"):
        value = evidence.gain or evidence.score
    return not evidence.adds_mismatch, value


def _named(evidence: Evidence, name: str) -> Evidence:
    from dataclasses import replace

    return evidence if evidence.cause else replace(evidence, cause=name)


def confidence(cause: str, stage: str, score: float) -> float:
    """Return the share of findings with such a score that were right on the bench.

    Examples
    --------
    >>> confidence("one_of_my_own", "none", 0.9)
    0.9
    """
    table = TABLE.get(cause) or TABLE.get(stage)
    if not table:
        return float(min(max(score, 0.0), 1.0))
    scores = [step[0] for step in table]
    at = bisect_right(scores, score)
    if at == 0:
        return table[0][1] * score / max(scores[0], 1e-9)
    if at == len(table):
        return table[-1][1]
    (low, first), (high, second) = table[at - 1], table[at]
    return first + (second - first) * (score - low) / (high - low)
