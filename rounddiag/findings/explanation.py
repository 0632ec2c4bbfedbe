"""What explains the mismatch: the largest cause first, then the remainder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.causes import CAUSES, next_step
from rounddiag.findings.conditions import CACHES, PACKS, VERSIONS, WORKERS
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.level import MIN_SAMPLES
from rounddiag.findings.measures import describe
from rounddiag.findings.naming import rank_causes
from rounddiag.findings.onset import find_onset
from rounddiag.findings.place import Place, find_places
from rounddiag.findings.registry import DETECTORS, STAGES, Stage
from rounddiag.findings.sample_sets import (
    ALL_BUT_EVERY_NTH,
    BLOCK,
    EVERY_NTH,
    GROUPS,
    OWN_START,
    SETS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag._typing import Array
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
# (score, probability) of the named cause, rising: the share of first findings of exact
# evidence, and of fitted effects, that were right on `tests/faults` (3,307 batches).
# Causes of places and of the level are ranked by `naming`.
TABLE: dict[str, tuple[tuple[float, float], ...]] = {
    "exact": ((0.45, 0.4), (0.8, 0.8), (0.9, 0.97), (0.97, 0.985)),
    "fit": ((0.4, 0.3), (0.65, 0.64), (0.75, 0.75), (0.87, 0.95), (0.97, 0.985)),
}
# A place is the story if tokens elsewhere differ by less than this part of what it
# differs by, both as multiples of equally likely tokens.
ELSEWHERE = 0.5


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
    causes : Series
        Probability of each cause, largest first.
    looks : mapping of str to str
        What the mismatch looks like, by measure; empty for evidence that names a cause.
    """

    evidence: Evidence
    stage: Stage
    indices: Array
    share: float
    causes: pd.Series[float]
    looks: Mapping[str, str]


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
    effect, d = evidence.effect(view)[tokens], np.clip(view.diff[tokens], -LARGE, LARGE)
    return bool((effect * d).sum() > MIN_SLOPE * (effect**2).sum())


def _search(view: View, known: list[Explained]) -> tuple[list[Explained], View]:
    """Remove what is known, then the largest cause, and search again."""
    total = bar = float(view.abs_diff.sum())
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
        causes, looks = _rank_causes(evidence, stage, left)
        if not evidence.next_step:
            step = next_step(str(causes.index[0]))
            evidence = replace(evidence, next_step=step)
        if evidence.effect is not None:
            effect = evidence.effect(left)
            chosen, left = effect != 0, left.without(effect)
            part = float((before.abs_diff - left.abs_diff)[chosen].sum())
        else:
            part = float(left.abs_diff[chosen].sum()) if evidence.adds_mismatch else 0.0
        share = min(max(part / total, 0.0), 1.0) if total > 0 else 0.0
        found.append(Explained(evidence, stage, indices[chosen], share, causes, looks))
        if stage == "exact":
            bar -= part  # the size of a wrong value tells nothing about the others
        if stage == "level":
            break
        if evidence.effect is None:
            left, indices = left.keep(~chosen), indices[~chosen]
    return found, left


def _best(view: View, known: set[str], total: float) -> tuple[Stage, Evidence] | None:
    """Return the evidence of the first stage that has any.

    With fewer than five samples only exact evidence counts: there is nothing to compare
    them with.
    """
    is_few = int((view.num_per_sample > 0).sum()) < MIN_SAMPLES
    for stage in STAGES:
        if is_few and stage != "exact":
            return None
        found = [
            one
            for one in _evidence(view, stage, total)
            if one.score >= MIN_SCORE and one.cause not in known
        ]
        place = next(iter(find_places(view)), None) if stage != "exact" else None
        if place is not None and stage == "fit":
            found = [one for one in found if _shows_outside(view, one, place)]
        best = max(found, key=lambda one: _rank(one, stage), default=None)
        if place is not None and stage == "place":
            if best is None and _is_everywhere(view, place):
                best = _of_level(view, total)
            best = _with_place(view, place, best)
        if best is not None:
            return stage, best
    return None


def _is_everywhere(view: View, place: Place) -> bool:
    """Return whether a place without a name lies in a batch that is above the range.

    Not if the place exceeds what is elsewhere by more than this exceeds the range.
    """
    if _has_known_shape(place):
        return False
    elsewhere = float(view.abs_diff[~place.tokens].mean()) / view.usual.usual
    return elsewhere > max(1.0, ELSEWHERE * (place.ratio - 1))


def _of_level(view: View, total: float) -> Evidence | None:
    """Return the best evidence from the level of the whole batch."""
    found = _evidence(view, "level", total)
    return max(found, key=lambda one: one.score, default=None)


def _evidence(view: View, stage: Stage, total: float) -> list[Evidence]:
    """Return what the detectors of a stage find that holds enough of the mismatch."""
    return [
        _with_cause(evidence, detector.name)
        for detector in DETECTORS.values()
        if detector.stage == stage
        for evidence in detector.evidence(view)
        if stage == "exact" or _matters(evidence, view, total)
    ]


def _shows_outside(view: View, evidence: Evidence, place: Place) -> bool:
    """Return whether a fitted effect, or outliers, are more than one place."""
    outside = ~place.tokens
    if evidence.effect is not None:
        return _shows(view, evidence, outside)
    if evidence.tokens.mean() > 1 / 2:
        return True
    mine = view.abs_diff * evidence.tokens
    return bool(mine[outside].sum() > ELSEWHERE * mine.sum())


def _with_place(view: View, place: Place, best: Evidence | None) -> Evidence:
    """Return the evidence of a place; that of a detector if it has the same tokens."""
    if best is None:
        return _place_evidence(view, place)
    if best.tokens[place.over].mean() > 1 / 2:
        return replace(best, where={"found": place, **best.where})
    return _place_evidence(view, place)


def _place_evidence(view: View, place: Place) -> Evidence:
    """Return a place as evidence whose cause is open."""
    tokens, where = place.tokens, _where(view, place)
    onset = find_onset(view, place)
    if onset is not None:
        tokens = view.round >= onset.round
        where = {"rounds_from": onset.round, "onset": onset}
    outside = float(view.abs_diff[~tokens].mean())
    return Evidence(
        cause="unknown",
        score=1.0,
        gain=place.log_likelihood_ratio,
        tokens=tokens,
        where={"found": place, **where},
        measures=(
            Measure(name="tokens", value=place.num_tokens, unit="tokens"),
            Measure(
                name="ratio for equally likely tokens",
                value=place.ratio,
                low=place.low,
                high=place.high,
            ),
            Measure(name="mean |diff| elsewhere", value=outside, unit="nat"),
            Measure(name="probability by chance", value=place.p),
        ),
        explanation=(
            f"{place.num_tokens:,} tokens ({place.text}) differ {place.ratio:.3g} times"
            " as much as equally likely tokens elsewhere."
        ),
    )


def _where(view: View, place: Place) -> dict[str, object]:
    """Return what the measures read of the conditions of a place."""
    found: dict[str, object] = {}
    for one in place.conditions:
        if one.column == OWN_START:
            found["samples"] = np.unique(view.sample[place.tokens])
        elif one.column in (BLOCK, GROUPS):
            found["set"] = "block" if one.column == BLOCK else "groups"
        elif one.column in (EVERY_NTH, ALL_BUT_EVERY_NTH):
            found["period"] = int(str(one.value))
            found |= {"all_but": 0} if one.column == ALL_BUT_EVERY_NTH else {}
        elif len(place.conditions) > 1 or one.column in SETS or one.relation == "<=":
            continue
        elif one.column == "images_seen":
            found["images_from"] = one.value
        elif one.column == "decoding_step":
            found |= {"place": one.value, "unit": "generated tokens", "is_after": True}
        elif one.column == "context_length":
            found |= {"place": one.value, "unit": _CONTEXT, "is_after": True}
        elif one.relation == "=" or CACHES.search(one.column):
            found |= {"column": one.column, "value": one.value}
    return found


_CONTEXT = "context positions"
# Columns of places that faults have by themselves, whatever is written there.
_SHAPES = SETS | {"round", "first_tokens", "decoding_step", "context_length"}
_SHAPES |= {"last_of_longest", "images_seen"}


def _has_known_shape(place: Place) -> bool:
    """Return whether a known cause has such places."""
    columns = {one.column for one in place.conditions}
    if columns <= _SHAPES:
        return True
    words = (VERSIONS, WORKERS, CACHES, PACKS)
    return len(columns) == 1 and any(word.search(min(columns)) for word in words)


def _rank_causes(
    evidence: Evidence, stage: Stage, view: View
) -> tuple[pd.Series[float], dict[str, str]]:
    """Return the probabilities of the causes of some evidence, and what it looks like.

    Exact evidence, fitted effects and detectors of the user name a cause themselves.
    """
    if stage in ("exact", "fit") or evidence.cause not in CAUSES:
        first = confidence(stage, evidence.score)
        return share_out(first, evidence), {}
    looks = describe(view, evidence)
    causes = rank_causes(looks, has_images=view.has_images)
    place = evidence.where.get("found")
    if (
        place is not None
        and place.is_of_text
        and _is_alone(view, place, evidence, looks)
    ):
        # No known cause follows what is written: the table has no such place.
        causes = causes / 2
        causes["unknown"] = causes.get("unknown", 0.0) + 0.5
        causes = causes.sort_values(ascending=False, kind="stable")
    return causes, looks


def _is_alone(
    view: View, place: Place, evidence: Evidence, looks: Mapping[str, str]
) -> bool:
    """Return whether a place of text is the whole story.

    It is not if it has the first tokens of samples, from which a mismatch fades, or if
    tokens outside of it begin somewhere to differ.
    """
    columns = {one.column for one in place.conditions}
    if "first_tokens" in columns and looks.get("begins") == "fades":
        return False
    rest = ~place.tokens
    others = replace(evidence, tokens=np.ones(int(rest.sum()), dtype=bool), where={})
    return describe(view.keep(rest), others).get("begins", "everywhere") == "everywhere"


def share_out(first: float, evidence: Evidence) -> pd.Series[float]:
    """Give a cause its probability, and the others what is left."""
    import pandas as pd

    others = [one.cause for one in evidence.alternatives if one.cause != evidence.cause]
    left = 1 - first
    each = left / (len(others) + 1)
    values = {evidence.cause: first, **dict.fromkeys(others, each), "unknown": each}
    return pd.Series(values, name="probability").sort_values(
        ascending=False, kind="stable"
    )


def _matters(evidence: Evidence, view: View, total: float) -> bool:
    """Return whether the tokens of some evidence hold enough of the mismatch."""
    whole = total
    if view.abs_diff.mean() > view.usual.usual:
        whole = float(view.abs_diff.sum())
    return float(view.abs_diff[evidence.tokens].sum()) > MIN_SHARE * whole


def _rank(evidence: Evidence, stage: Stage) -> tuple[bool, float]:
    """Rank copies first: what they repeat must not count twice."""
    value = evidence.score
    if stage in ("place", "exact"):
        value = evidence.gain or evidence.score
    return not evidence.adds_mismatch, value


def _with_cause(evidence: Evidence, name: str) -> Evidence:
    return evidence if evidence.cause else replace(evidence, cause=name)


def confidence(stage: str, score: float) -> float:
    """Return the share of findings with such a score that were right on the bench.

    Examples
    --------
    >>> confidence("place", 0.9)
    0.9
    """
    if stage not in TABLE:
        return float(min(max(score, 0.0), 1.0))
    scores, shares = zip((0.0, 0.0), *TABLE[stage], strict=True)
    return float(np.interp(score, scores, shares))
