"""What explains the mismatch: the largest cause first, then the remainder."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.registry import DETECTORS, STAGES, Stage

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.finding import Evidence
    from rounddiag.findings.view import View

MAX_FINDINGS = 6
# Evidence below this score is not a finding.
MIN_SCORE = 0.3
MIN_TOKENS = 32
# Evidence that is not exact must hold at least this part of the sum of |diff|: of all
# tokens, or of the remaining ones if they are above the range.
MIN_SHARE = 0.03
# Least size of an effect at tokens on which it was not fitted, relative to the fit.
MIN_SLOPE, LARGE = 0.5, 5.0
# (score, confidence) by cause or stage, rising: the share of first findings that were
# right on `tests/faults`, 3,307 batches of the agents `test-2` to `test-4`, and of the
# dense `tune-0` and `test-1` (2026-11-22). Of those that rest on the level alone, 0.84
# were right; they stay below `CONFIDENT`, since a level alone is no verdict.
TABLE: dict[str, tuple[tuple[float, float], ...]] = {
    "exact": ((0.45, 0.4), (0.8, 0.8), (0.9, 0.97), (0.97, 0.985)),
    "fit": ((0.4, 0.3), (0.65, 0.64), (0.75, 0.75), (0.87, 0.95), (0.97, 0.985)),
    "place": ((0.6, 0.76), (0.72, 0.79), (0.8, 0.83), (0.9, 0.94), (0.95, 0.975)),
    "level": ((0.4, 0.48), (0.75, 0.75), (0.9, 0.95)),
}


@dataclass(frozen=True, eq=False)
class Explained:
    """Evidence, the tokens of the whole view that it concerns, and its share.

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
    """Return the causes in the order in which they were removed, and what is left.

    If an effect that could be fitted only after places were set aside shows in these
    places too, it concerns the whole batch. It is then removed from all tokens, and the
    search for places starts over.
    """
    found, left = _search(view, [])
    exact = [one for one in found if one.stage == "exact"]
    aside = np.zeros(len(view), dtype=bool)
    for one in found:
        if one.stage == "place":
            aside[one.indices] = True
        elif one.stage == "fit" and _shows(view, one.evidence, aside):
            return _search(view, [*exact, one])
    return found, left


def _shows(view: View, evidence: Evidence, tokens: Array) -> bool:
    """Return whether a fitted effect shows at tokens on which it was not fitted."""
    if evidence.effect is None or not tokens.any():
        return False
    effect, d = evidence.effect(view)[tokens], np.clip(view.d[tokens], -LARGE, LARGE)
    return bool((effect * d).sum() > MIN_SLOPE * (effect**2).sum())


def _search(view: View, known: list[Explained]) -> tuple[list[Explained], View]:
    """Remove what is known, then the largest cause, and search again."""
    total = bar = float(view.abs.sum())
    found: list[Explained] = []
    left, indices = view, np.arange(len(view))
    while len(found) < MAX_FINDINGS and (len(left) >= MIN_TOKENS or not found):
        if len(found) < len(known):
            one = known[len(found)]
            stage, evidence = one.stage, one.evidence
            chosen = np.isin(indices, one.indices)
        else:
            best = _best(left, {one.evidence.cause for one in found}, bar)
            if best is None:
                break
            stage, evidence = best
            chosen = evidence.tokens
        before = left
        if evidence.effect is not None:
            effect = evidence.effect(left)
            chosen, left = effect != 0, left.without(effect)
            part = float((before.abs - left.abs)[chosen].sum())
        else:
            part = float(left.abs[chosen].sum()) if evidence.adds_mismatch else 0.0
        share = min(max(part / total, 0.0), 1.0) if total > 0 else 0.0
        found.append(Explained(evidence, stage, indices[chosen], share))
        if stage == "exact":
            bar -= part  # the size of a wrong value tells nothing about the others
        if stage == "level":
            break
        if evidence.effect is None:
            left, indices = left.keep(~chosen), indices[~chosen]
    return found, left


def _best(view: View, known: set[str], total: float) -> tuple[Stage, Evidence] | None:
    """Return the evidence of the first stage that has any."""
    for stage in STAGES:
        detectors = [one for one in DETECTORS.values() if one.stage == stage]
        found = [
            _with_cause(evidence, detector.name)
            for detector in detectors
            for evidence in detector.evidence(view)
            if stage == "exact" or _matters(evidence, view, total)
        ]
        found = [
            one for one in found if one.score >= MIN_SCORE and one.cause not in known
        ]
        if found:
            return stage, max(found, key=lambda one: _rank(one, stage))
    return None


def _matters(evidence: Evidence, view: View, total: float) -> bool:
    """Return whether the tokens of some evidence hold enough of the mismatch."""
    whole = total
    if view.abs.mean() > view.usual.usual:
        whole = float(view.abs.sum())
    return float(view.abs[evidence.tokens].sum()) > MIN_SHARE * whole


def _rank(evidence: Evidence, stage: Stage) -> tuple[bool, float]:
    """Rank copies first: what they repeat must not count twice."""
    value = evidence.score
    if stage in ("place", "exact"):
        value = evidence.gain or evidence.score
    return not evidence.adds_mismatch, value


def _with_cause(evidence: Evidence, name: str) -> Evidence:
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
