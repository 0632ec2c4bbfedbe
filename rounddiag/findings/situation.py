"""What is known of a place that rules causes out: where it is, and what is there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from rounddiag._typing import Array
from rounddiag.columns.predicates import Condition
from rounddiag.findings.causes import CAUSES, Candidate, Cause, name_candidates
from rounddiag.findings.conditions import CACHES, PACKS, VERSIONS, WORKERS
from rounddiag.findings.detectors.penalty import differs_at_seen_ids
from rounddiag.findings.detectors.temperature import follows_log_odds
from rounddiag.findings.detectors.truncation import lacks_mass
from rounddiag.findings.level import MIN_SAMPLES, clustered_mean
from rounddiag.findings.place import Place, find_places, usual_size
from rounddiag.findings.sample_sets import (
    ALL_BUT_EVERY_NTH,
    BLOCK,
    EVERY_NTH,
    OWN_START,
)
from rounddiag.findings.view import View

_ROUNDS = frozenset({"round", "last_round", "images_seen"})
_STEPS = {"decoding_step": "step", "since_image": "step", "context_length": "length"}
_SAMPLES = frozenset({"some", "worker", "version", "cached", "nth", "pack"})
_FEW = 8  # first and last tokens of a sample
# More candidates are no help. The goal of the benches counts eight.
_MAX_CANDIDATES = 8
# Nats: half a step of bfloat16 at a logit of 32 to 64, of a token and its normaliser.
_ROUNDING = 0.25
# A mismatch in which no place was found may be of all tokens, or of some in each sample
# that no column describes.
_NO_PLACE = frozenset({"all", "own"})
_NAMES = {
    "content": frozenset({"role", "token_id", "application"}),
    "last": frozenset({"last_tokens", "last_of_longest"}),
    "first": frozenset({"first_tokens", "after_image"}),
    "own": frozenset({OWN_START}),
    "nth": frozenset({EVERY_NTH, ALL_BUT_EVERY_NTH}),
    "worker": frozenset({BLOCK}),
}


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Where a mismatch is, in the terms that rule causes out.

    Attributes
    ----------
    scopes: Empty where no place was found: then it is of all tokens, or of some that
        no column describes; whole samples: of one `worker` or block of rows, weight
        `version`, `pack` or `cached` prefix, every `nth`, or `some`; later rounds
        (`round`) or tokens (`step`, by the `length` of the context), from one of their
        `own` on, or `early`; the `first` or `last` tokens of rounds or samples; some
        `content`.
    is_everywhere: Whether the mismatch may be of all tokens: the place is only one
        content, or rounds or tokens of all samples, and others are above what is usual
        too.
    at_start: Whether the first tokens of the samples are affected; None if that is
        open.
    is_throughout: Whether the last tokens of the samples are affected as well.
    has_images: Whether there are images in the context; None if the file does not say.
    mean_abs_diff: At its uncertain tokens, in nats.
    refuted: Causes that a check, a relation or a record of the batch refutes.
    """

    scopes: frozenset[str]
    is_everywhere: bool
    at_start: bool | None
    is_throughout: bool
    has_images: bool | None
    mean_abs_diff: float
    refuted: frozenset[str] = frozenset()

    def allows(self, cause: Cause) -> bool:
        """Return whether a cause is possible there. It can only remove the cause."""
        has_no_image = cause.with_images and self.has_images is False
        is_far = cause.is_rounding and self.mean_abs_diff > _ROUNDING
        if has_no_image or is_far or not cause.scopes:
            return False
        if not self.scopes:
            return bool(cause.scopes & _NO_PLACE)
        if self.is_everywhere and "all" in cause.scopes:
            return True
        is_whole = cause.is_partial and self.is_throughout
        ends = (cause.at_start, self.at_start)
        if is_whole or (None not in ends and ends[0] is not ends[1]):
            return False
        has_one = not cause.one_of or bool(cause.one_of & self.scopes)
        return has_one and self.scopes <= cause.scopes

    @classmethod
    def of(
        cls,
        view: View,
        tokens: Array,
        place: Place | None,
        refuted: Collection[str] = (),
    ) -> Situation:
        """Read the situation of a place, or of all tokens where none was found."""
        scopes = _scopes(place) if place else set()
        others = ~np.logical_or.reduce([tokens, *(p.tokens for p in find_places(view))])
        size = view.abs_diff[tokens & view.uncertain]
        return cls(
            scopes=frozenset(scopes),
            is_everywhere=scopes <= {"content"}
            or (not scopes & _SAMPLES and _is_raised(view, others)),
            at_start=_at_start(view, tokens, scopes),
            is_throughout=_is_throughout(view, tokens, scopes),
            has_images=_has_images(view, tokens),
            mean_abs_diff=float(size.mean()) if len(size) else 0.0,
            refuted=frozenset({*refuted, *_refuted(view)}),
        )


def _scopes(place: Place) -> set[str]:
    """Return what a place is about.

    Ends and starts say more than the samples, rounds or contents that have them.
    """
    scopes = {_scope(one) for one in place.conditions}
    if "last" in scopes:
        return {"last"}
    if "early" in scopes:
        scopes -= {"first"}
    return scopes - {"content"} or scopes


def _is_raised(view: View, tokens: Array) -> bool:
    """Return whether some tokens differ more than is usual for the kind of run."""
    few = int((np.bincount(view.sample[tokens]) > 0).sum()) < MIN_SAMPLES
    return not few and float(view.abs_diff[tokens].mean()) > view.usual.usual


def _at_start(view: View, tokens: Array, scopes: set[str]) -> bool | None:
    """Return whether the first tokens of the samples are affected."""
    if not scopes or scopes == {"early"}:
        return True if scopes else None
    if scopes & {"round", "step", "length", "own"}:
        return False
    if scopes & {"first", "last", "content"}:
        return None
    return _is_affected(view, tokens, view.num_before < _FEW)


def _is_throughout(view: View, tokens: Array, scopes: set[str]) -> bool:
    """Return whether the first and the last tokens of the samples are affected."""
    if not scopes:
        return False
    if not scopes & {"first", "last", "content"}:
        outside = np.bincount(view.sample[~tokens], minlength=view.batch.num_samples)
        inside = np.bincount(view.sample[tokens], minlength=view.batch.num_samples)
        if ((inside > 0) & (outside > 0)).any():
            return False
    last = np.full(view.batch.num_samples, -1)
    np.maximum.at(last, view.sample, view.num_before)
    ends = last[view.sample] - view.num_before < _FEW
    at_start = _at_start(view, tokens, scopes)
    return bool(at_start and _is_affected(view, tokens, ends))


def _is_affected(view: View, tokens: Array, part: Array) -> bool | None:
    """Return whether a part of a place is affected as the whole is.

    It is if its mean is above that of equally likely tokens elsewhere by two standard
    errors, and is not if it is below half of the excess of all by as much.
    """
    size, usual = usual_size(view, ~tokens)
    chosen = tokens & part & view.uncertain
    if not chosen.any():
        return None
    whole = float(size[tokens].sum() / usual[tokens].sum())
    excess, error = clustered_mean((size - usual)[chosen], view.sample[chosen])
    least = (whole - 1) / 2 * float(usual[chosen].mean())
    if excess > 2 * error:
        return True
    return False if excess + 2 * error < least else None


def _scope(one: Condition) -> str:
    """Return what a condition is about."""
    name = one.column
    if name in _ROUNDS or name in _STEPS:
        is_first = one.value in (0, False) and name in ("round", "last_round")
        is_early = one.relation == "<=" or is_first
        return "early" if is_early else _STEPS.get(name, "round")
    for scope, names in _NAMES.items():
        if name in names:
            return scope
    words = (("version", VERSIONS), ("pack", PACKS), ("cached", CACHES))
    for scope, word in (*words, ("worker", WORKERS)):
        if word.search(name):
            return scope
    return "some"


def _has_images(view: View, tokens: Array) -> bool | None:
    """Return whether some tokens have an image in their context."""
    if view.images is None:
        return None
    images = view.images[tokens]
    is_unknown = bool(np.isnan(images).any())
    return bool((images > 0).any()) or (None if is_unknown else False)


def _refuted(view: View) -> set[str]:
    """Return causes that the whole batch refutes."""
    relations = {
        "temperature": follows_log_odds,
        "truncated_sampling": lacks_mass,
        "logit_processor": differs_at_seen_ids,
    }
    refuted = {name for name, relation in relations.items() if not relation(view)}
    if view.facts.memo.get("stated_kind") and not view.usual.is_routed:
        refuted.add("moe_routing")
    if int(view.round.max(initial=0)) == 0:
        refuted.add("context_masked")
    if view.images is not None and (view.images <= 1).all():
        refuted.add("image_window")
    return refuted


def list_candidates(found: Situation) -> tuple[Candidate, ...]:
    """Return the causes that are possible there, those with most incidents first.

    Of more than eight, those with most incidents for each kind of place that they can
    have. Causes of images come last if the file does not say whether there are any.
    """
    possible = [
        name
        for name, one in CAUSES.items()
        if name not in found.refuted and found.allows(one)
    ]

    def is_unknown(name: str) -> bool:
        return CAUSES[name].with_images and found.has_images is None

    possible.sort(key=lambda name: (is_unknown(name), -CAUSES[name].density))
    kept = possible[:_MAX_CANDIDATES]
    kept.sort(key=lambda name: (is_unknown(name), -CAUSES[name].incidents))
    return name_candidates(kept)
