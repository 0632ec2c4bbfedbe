"""What explains the mismatch: facts, reversals, places, and what is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rounddiag.core.versions import Versions
from rounddiag.findings.causes import FORMULAS, NEXT_STEP, NO_CAUSE, Candidate
from rounddiag.findings.conditions import (
    VERSIONS,
    columns_of_tokens,
    explains,
    same_partition,
)
from rounddiag.findings.detectors.bias import undo_bias
from rounddiag.findings.detectors.failed_checks import failed_checks
from rounddiag.findings.detectors.grammar import measure_forced, say_forced
from rounddiag.findings.families import list_candidates
from rounddiag.findings.finding import Evidence
from rounddiag.findings.level import MIN_SAMPLES, Level
from rounddiag.findings.measure import Measure
from rounddiag.findings.onset import find_onset
from rounddiag.findings.place import find_places
from rounddiag.findings.reference import DENSE
from rounddiag.findings.registry import DETECTORS
from rounddiag.findings.sample_sets import GROUPS, LISTS
from rounddiag.findings.some_rows import settings_of_sets
from rounddiag.findings.two_kinds import TwoKinds, find_two_kinds, split_units
from rounddiag.wording import join_names, pluralize

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rounddiag._typing import Array
    from rounddiag.findings.finding import FindingKind
    from rounddiag.findings.place import Place
    from rounddiag.findings.registry import Shown
    from rounddiag.findings.view import View

MAX_FINDINGS = 6  # of a batch, a convention: more are not read
# A fitted effect must hold outside of the first place too: the diff there has at least
# half of the predicted slope. Larger diffs, in nats, count as `_LARGE`. 0.25 or
# 0.75, and 2.5 or 10, change no answer of `tests.faults.bench --set`.
MIN_SLOPE, _LARGE = 0.5, 5.0
# Nats by which an engine differs on a token that the other one finds likely, and that
# rounding does not reach: martingale's rule, found on a real run.
_FAR = 2.0
# A fault can leave tokens behind, such as those of rows that are too short to be
# recognised. They must not be taken for another fault: the zeros of a moved mask look
# like fills, and a few tokens of a swapped row fit with a lag.
_LEFT_OF = {
    "mask_offset": {"filled_log_probs"},
    "mask_too_wide": {"filled_log_probs"},
    "swapped_rows": {"filled_log_probs", "mask_too_wide"}
    | {"shifted_log_probs", "retokenised"},
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Explained:
    """Evidence, the tokens of the whole view that it concerns, and its share.

    Attributes
    ----------
    indices: int64 array. Tokens of the view that was explained.
    share: Of the sum of |diff| of that view.
    p: Of a place that was tested.
    undone: float64 array or None. Of a fitted reversal, the part of `diff` that it
        undoes at its tokens.
    """

    kind: FindingKind
    evidence: Evidence
    indices: Array
    share: float
    candidates: tuple[Candidate, ...] = ()
    p: float | None = None
    undone: Array | None = None

    def after(self, explained: Collection[Explained]) -> Explained:
        """Say in the names of its numbers which fitted reversal they come after."""
        causes = [part.evidence.cause for part in explained if part.undone is not None]
        if not causes:
            return self
        text = f"{causes[0].replace('_', ' ')} undone"

        def named(measures: tuple[Measure, ...]) -> tuple[Measure, ...]:
            return tuple(replace(row, name=f"{row.name}, {text}") for row in measures)

        evidence = self.evidence
        return replace(
            self,
            evidence=replace(
                evidence,
                measures=named(evidence.measures),
                where={**evidence.where, "undone": text},
            ),
            candidates=tuple(
                replace(row, clue=f"{row.clue}, {text}", evidence=named(row.evidence))
                for row in self.candidates
            ),
        )


def explain(view: View, refuted: Collection[str] = ()) -> tuple[list[Explained], View]:
    """Return what explains a view, largest share first, and the view of what is left.

    Failed checks come first, all of them; then other facts and rows or tokens in the
    wrong place, sampling formulas of all tokens, and places. With fewer than five
    samples only facts count: there is nothing to compare the samples with.
    """
    total = max(float(view.abs_diff.sum()), 1e-300)
    is_few = view.num_samples < MIN_SAMPLES
    left, indices = view, np.arange(len(view))
    explained: list[Explained] = []

    def take(kind: Shown, evidence: Evidence) -> None:
        nonlocal left, indices
        taken, rest = _undo(left, kind, evidence, total)
        taken = taken.after(explained)
        explained.append(replace(taken, indices=indices[taken.indices]))
        if len(rest) < len(left):
            indices = indices[~evidence.tokens]
        left = rest

    for failed in failed_checks(view):
        take("fact", replace(failed, tokens=failed.tokens[indices]))
    for formulas in (False, True, False):
        num = len(explained)
        while len(explained) < MAX_FINDINGS and (
            not formulas or _may_be_formula(left, view, explained)
        ):
            known = {part.evidence.cause for part in explained}
            best = _best(left, known, formulas=formulas, only_facts=is_few)
            if best is None:
                break
            take(*best)
        if formulas and len(explained) == num:
            break  # no formula explained a token: the others are as they were
    if not is_few:
        places = [*_places(left, total, refuted)][: MAX_FINDINGS - len(explained)]
        explained += [
            replace(place.after(explained), indices=indices[place.indices])
            for place in places
        ]
        inside = [np.empty(0, dtype=int), *(place.indices for place in places)]
        sound = np.ones(len(left), dtype=bool)
        sound[np.concatenate(inside)] = False
        left, indices = left.keep(sound), indices[sound]
    sure = _confident(left, indices, total, refuted)
    explained += [part.after(explained) for part in sure]
    if not any(part.share > 0 for part in explained) and view.abs_diff.any():
        explained += _level(view, refuted)
    # The largest share first, notes last.
    explained.sort(key=lambda part: (part.evidence.severity == "note", -part.share))
    return explained, left


def _may_be_formula(part: View, whole: View, known: Collection[Explained]) -> bool:
    """Return whether most samples are left: a formula holds in all of them.

    None leaves a token alone that the other engine finds unlikely, or brings values
    that no model gives: where most are such, the column has no log-probs.
    """
    impossible = sum(each.evidence.where.get("part_impossible", 0.0) for each in known)
    is_most = 2 * part.num_samples > whole.num_samples
    return is_most and 2 * impossible <= 1 and not measure_forced(whole)


def _confident(
    view: View, indices: Array, total: float, refuted: Collection[str]
) -> list[Explained]:
    """Return the tokens that one engine is sure of and the other is not, as a fact.

    Rounding makes none in a dense model: the largest |diff| of the sound pair of
    `reference.SHAPE` is 0.53 nat. A router can, and so can weights of few bits.
    """
    likely = np.maximum(view.log_prob_a, view.log_prob_b) >= np.log(0.5)
    tokens = likely & (view.abs_diff > _FAR)
    if not tokens.any():
        return []
    num_clusters = len(np.unique(view.cluster[tokens]))
    is_bug = view.facts.memo.get("stated_kind") in DENSE and num_clusters > 1
    num = pluralize(int(tokens.sum()), "token")
    shown = "Rounding in a dense model makes none; a router of experts can."
    if is_bug:
        shown = f"Rounding in {view.usual.meaning} makes no such token."
    evidence = Evidence(
        cause=NO_CAUSE,
        severity="bug" if is_bug else "note",
        tokens=tokens,
        adds_mismatch=is_bug,
        where={
            "fact": f"{num} that one engine finds likely, and the other less likely by"
            f" more than {_FAR:g} nats"
        },
        shown=shown + say_forced(view.keep(tokens)),
        next_step=NEXT_STEP,
    )
    level = _undo(view, "fact", evidence, total)[0]
    possible = list_candidates(view, tokens, None, refuted)
    return [replace(level, indices=indices[level.indices], candidates=possible)]


def explain_updates(view: View) -> list[Explained]:
    """Return the facts that make an update wrong, of log-probs that compare nothing."""
    updates = (update for update in failed_checks(view) if update.severity == "update")
    return [_undo(view, "fact", update, 1.0)[0] for update in updates]


def _undo(
    view: View, kind: Shown, evidence: Evidence, total: float
) -> tuple[Explained, View]:
    chosen, undone = evidence.tokens, None
    if evidence.effect is not None:
        effect = evidence.effect(view)
        left, undone = view.without(effect), effect[chosen]
        part = float((view.abs_diff - left.abs_diff)[chosen].sum())
    else:
        left = view.keep(~chosen) if evidence.severity == "bug" else view
        part = float(view.abs_diff[chosen].sum()) * evidence.adds_mismatch
    explained = Explained(
        kind=kind,
        evidence=evidence,
        indices=np.flatnonzero(chosen),
        share=min(max(part / total, 0.0), 1.0),
        candidates=tuple(map(Candidate.of, evidence.candidates)),
        undone=undone,
    )
    return explained, left


def _best(
    view: View, known: set[str], *, formulas: bool, only_facts: bool
) -> tuple[Shown, Evidence] | None:
    """Return the evidence that explains most, with its kind; copies first.

    What copies repeat must not count twice.
    """
    if len(view) == 0:
        return None
    shown = [
        (
            detector.kind,
            evidence if evidence.cause else replace(evidence, cause=detector.name),
        )
        for detector in DETECTORS.values()
        if (detector.name in FORMULAS) == formulas
        and not (only_facts and detector.kind != "fact")
        for evidence in detector.evidence(view)
    ]
    if formulas and not shown:
        shown = [("reversal", evidence) for evidence in settings_of_sets(view)]

    def size(pair: tuple[Shown, Evidence]) -> tuple[bool, float]:
        return not pair[1].adds_mismatch, float(view.abs_diff[pair[1].tokens].sum())

    done = known.union(*(_LEFT_OF.get(name, ()) for name in known))
    shown = [
        pair
        for pair in shown
        if pair[1].cause not in done
        and not any(_is_left_of(view, pair[1], other) for _, other in shown)
        and _is_everywhere(view, pair[1])
    ]
    return max(shown, key=size, default=None)


def _is_left_of(view: View, evidence: Evidence, other: Evidence) -> bool:
    """Return whether another fault brings what looks like one, the larger or not.

    Zeros beside a mask that covers more than the model wrote are those of observations.
    """
    if evidence.cause not in _LEFT_OF.get(other.cause, ()):
        return False
    if not (evidence.tokens & ~other.tokens).any():
        return True
    is_zero = (view.log_prob_a == 0) | (view.log_prob_b == 0)
    return other.cause != "swapped_rows" and bool(is_zero[evidence.tokens].all())


def _is_everywhere(view: View, evidence: Evidence) -> bool:
    """Return whether a fitted effect shows outside of the first place."""
    if evidence.effect is None:
        return True
    place = next(iter(find_places(view)), None)
    if place is None or not (evidence.tokens & ~place.tokens).any():
        return True
    outside = evidence.tokens & ~place.tokens
    effect = evidence.effect(view)[outside]
    d = np.clip(view.diff[outside], -_LARGE, _LARGE)
    return bool((effect * d).sum() > MIN_SLOPE * (effect**2).sum())


def _places(view: View, total: float, refuted: Collection[str]) -> Iterator[Explained]:
    """Yield the places of a view; one of older versions is a fact."""
    for place in find_places(view):
        kinds = _kinds_of(view, place)
        tokens, where = _describe_where(view, place, kinds)
        explained = Explained(
            kind="place",
            evidence=Evidence(
                cause=NO_CAUSE,
                tokens=tokens,
                shown="",
                where=where,
                measures=(
                    Measure("tokens", int(tokens.sum()), "tokens"),
                    Measure(
                        "ratio for equally likely tokens",
                        place.ratio,
                        low=place.low,
                        high=place.high,
                    ),
                ),
            ),
            indices=np.flatnonzero(tokens),
            share=float(view.abs_diff[tokens].sum()) / total,
        )
        evidence = explained.evidence
        if (constant := undo_bias(view, tokens)) is not None:
            constant = replace(constant, where=where)
            yield replace(explained, kind="reversal", evidence=constant)
        elif older := _older_weights(view, place):
            cause, shown = older
            versions = replace(evidence, cause=cause, shown=shown)
            yield replace(explained, kind="fact", evidence=versions)
        else:
            possible = list_candidates(view, tokens, place, refuted)
            step = possible[0].test if possible else NEXT_STEP
            yield replace(
                explained,
                evidence=replace(evidence, next_step=step),
                candidates=possible,
                p=kinds.p if kinds is not None and place.p is None else place.p,
            )


def _describe_where(
    view: View, place: Place, kinds: TwoKinds | None
) -> tuple[Array, dict[str, object]]:
    """Return the tokens of a place, or of all rounds from its onset on, and its words.

    Rounds that are of two kinds, with sound ones in between, are a fact instead.
    """
    where: dict[str, object] = {"place": place}
    if place.common_values:
        where["common_values"] = place.common_values
    if kinds is not None and (place.common_values or kinds.unit != "group"):
        where["elsewhere"] = f"the others {kinds.elsewhere}"
    elif kinds is not None:
        where["fact"] = kinds.text
    onset = find_onset(view, place)
    if onset is None:
        return place.tokens, where
    onset_only = {"rounds_from": onset.round, "onset": onset}
    if not place.is_of_rounds:
        return place.tokens, where | onset_only
    rounds = split_units(view, "round", view.round)
    if rounds is not None and rounds.has_gaps:
        return rounds.tokens, {**where, "fact": rounds.text}
    return view.round >= onset.round, where | onset_only


def _kinds_of(view: View, place: Place) -> TwoKinds | None:
    if not {condition.column for condition in place.conditions} <= LISTS | {GROUPS}:
        return None
    kinds = find_two_kinds(view)
    is_place = kinds is not None and (kinds.tokens == place.tokens).all()
    return kinds if is_place else None


def _older_weights(view: View, place: Place) -> tuple[str, str] | None:
    """Return the cause, and how it shows, of a place that only versions describe.

    Lower versions differ more. If versions change within samples, weights were mixed.
    """
    name = place.conditions[0].column
    if len(place.conditions) > 1 or not VERSIONS.search(name):
        return None
    values = _versions(view, name)
    known = np.isfinite(values)
    inside, outside = values[place.tokens & known], values[~place.tokens & known]
    if not (len(inside) and len(outside) and inside.max() < outside.max()):
        return None
    versions = Versions.of(view.batch)
    if versions is not None and (versions.lag()[view.order][place.tokens] <= 0).any():
        return None  # the sampler was not behind the trainer
    alike = _columns_alike(view, values)
    if _is_described_otherwise(view, place, (name, *alike)):
        return None
    spread = np.full(view.batch.num_samples, np.nan)
    spread[view.sample[known]] = values[known]
    is_mixed = bool((values != spread[view.sample])[known].any())
    text = (
        f"Tokens {place.text} differ {place.times} times as much as equally likely"
        " ones of newer weights, and no other column has exactly these samples"
    )
    if alike:
        names = join_names([f"`{name}`" for name in alike], len(alike))
        text += f", except {names}: one value for each version"
    return "mixed_weights" if is_mixed else "stale_weights", f"{text}."


def _versions(view: View, name: str) -> Array:
    column = view.batch.columns.of_file(name)
    rows = {"sample": view.sample, "round": view.segment, "token": view.order}
    values = pd.to_numeric(pd.Series(column.filled[rows[column.scope]]), "coerce")
    return values.to_numpy(np.float64, na_value=np.nan)


def _is_described_otherwise(view: View, place: Place, names: Collection[str]) -> bool:
    """Return whether a column other than these has a value of exactly these samples."""
    inside = view.samples_with(place.tokens)[view.sample]
    for column in columns_of_tokens(view):
        is_plain = column.scope == "sample" and "=" in column.relations
        if is_plain and column.name not in names and not VERSIONS.search(column.name):
            code = column.codes[place.tokens][0]
            if code >= 0 and ((column.codes == code) == inside).all():
                return True
    return False


def _columns_alike(view: View, versions: Array) -> list[str]:
    """Return the columns of samples with one value for each version."""
    codes = np.unique(versions, return_inverse=True)[1]
    return [
        name
        for name, column in view.batch.columns.samples.items()
        if not VERSIONS.search(name)
        and not explains(name)
        and same_partition(codes, column.codes()[0][view.sample])
    ]


def _level(view: View, refuted: Collection[str]) -> list[Explained]:
    level = Level.from_view(view)
    usual = view.usual
    if level.mean_abs_diff <= usual.usual and level.kl <= usual.limit_kl:
        return []
    kinds = find_two_kinds(view)
    everything = np.ones(len(view), dtype=bool) if kinds is None else kinds.tokens
    possible = list_candidates(view, everything, kinds, refuted)
    evidence = Evidence(
        cause=NO_CAUSE,
        tokens=everything,
        shown="",
        where={} if kinds is None else {"fact": kinds.text},
        measures=(
            Measure(
                "mean |diff|",
                level.mean_abs_diff,
                "nat",
                low=level.low,
                high=level.high,
            ),
        ),
        next_step=possible[0].test if possible else NEXT_STEP,
    )
    return [
        Explained(
            kind="level" if kinds is None else "place",
            evidence=evidence,
            indices=np.flatnonzero(everything),
            share=float(view.abs_diff[everything].sum() / view.abs_diff.sum()),
            candidates=possible,
            p=None if kinds is None else kinds.p,
        )
    ]
