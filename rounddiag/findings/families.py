"""Families of causes: which of eight are possible at a place, each with its clue.

One batch cannot tell the causes of a family apart, and often not the families.
A family is listed if something speaks for it, and struck by what the file refutes: no
image, one round, equal log-probs before the place, a check that holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from rounddiag._typing import Array
from rounddiag.columns.predicates import Condition
from rounddiag.core.versions import Versions
from rounddiag.findings.causes import CAUSES, FAMILIES, Candidate
from rounddiag.findings.conditions import CACHES, PACKS, VERSIONS, WORKERS, read_roles
from rounddiag.findings.detectors.penalty import differs_at_seen_ids
from rounddiag.findings.detectors.temperature import follows_log_odds
from rounddiag.findings.detectors.truncation import lacks_mass, missing_mass
from rounddiag.findings.equal_tokens import MIN_UNSURE
from rounddiag.findings.level import MIN_SAMPLES
from rounddiag.findings.place import Place, find_places
from rounddiag.findings.sample_sets import (
    ALL_BUT_EVERY_NTH,
    BLOCK,
    EVERY_NTH,
    GROUPS,
    OWN_START,
)
from rounddiag.findings.two_kinds import TwoKinds
from rounddiag.findings.view import View

MAX_FAMILIES = 3  # of a finding, a convention: more are not read
# The most that rounding to bfloat16 changes a log-prob, in nats: half a step at a logit
# of 32 to 64, for the token and for its normaliser.
_ROUNDING = 0.25
_ROUNDING_ONLY = frozenset({"low_precision", "batch_shape"})
# Causes that spare the first tokens of a sample; that begin with the first one; that
# touch all tokens of a sample; and that touch only some rounds or samples.
_LATER = frozenset({"image_window", "context_masked"})
_FROM_START = frozenset({"prompt_mismatch", "packing_leak"})
_OF_ALL = frozenset({"stale_weights", "sync_broken", "lora_mismatch"})
_OF_SOME = frozenset({"mixed_weights", "packing_leak"})

# What conditions on columns are about, by the names of the columns.
_SCOPES = {
    "round": "rounds",
    "last_round": "rounds",
    "images_seen": "rounds",
    "decoding_step": "steps",
    "since_image": "steps",
    "context_length": "steps",
    OWN_START: "own",
    "role": "content",
    "token_id": "content",
    "application": "content",
    "first_tokens": "first",
    "after_image": "first",
    "last_tokens": "last",
    "last_of_longest": "last",
    BLOCK: "block",
    EVERY_NTH: "block",
    GROUPS: "block",
    "group_id": "block",
    ALL_BUT_EVERY_NTH: "pack",
}
_COLUMNS = (
    ("version", VERSIONS),
    ("pack", PACKS),
    ("cached", CACHES),
    ("worker", WORKERS),
)
_OF_SAMPLES = frozenset({"version", "pack", "cached", "worker", "block", "samples"})
# Facts of a run, as "name: value", and what they speak for.
_FACTS = (
    ("numerics", re.compile(r"kv_cache\w*: fp8"), "an FP8 KV cache"),
    ("numerics", re.compile(r"fp8|nvfp4|int8"), "weights of few bits"),
    ("weights", re.compile(r"lora|adapter"), "a LoRA"),
)
# Roles of the tokens of actions.
_ACTION = frozenset({"action", "coordinates", "typed text", "syntax"})
_OFF = frozenset({"", "0", "none", "null", "false", "off", "no", "disabled"})


@dataclass(frozen=True, kw_only=True)
class Spot:
    """Where a mismatch is, in the terms from which families follow.

    Attributes
    ----------
    scopes: Empty for all tokens, or where no place was found. Samples: of one `worker`
        or weight `version`, with a `cached` prefix, of a `pack`, a `block` (a run of
        rows, every n-th, whole groups), other `samples`; from a round (`rounds`), a
        token (`steps`) or a token of their `own` on, or up to a round (`early`); the
        `first` or `last` tokens of rounds; some `content`, such as `special` tokens.
    columns: What the place follows, or its samples have in common, by whether that is a
        worker, version, cache or pack.
    is_everywhere: Whether the tokens outside differ more than is usual too.
    is_part: Whether the place is a part of its rounds.
    has_images: Whether images come before it; None if the file does not say.
    always_images: Whether images come before each of its tokens.
    num_rounds: The largest number of rounds of a sample.
    mean_abs_diff: In nats, of uncertain tokens.
    is_equal_before: Whether all tokens of its samples before it are bitwise equal.
    misses_mass: Whether `a` gives the tokens of the batch less mass than it should.
    facts: What the facts of the run speak for, by family.
    impossible: Causes that a check, a relation or a record refutes.
    """

    scopes: frozenset[str]
    columns: Mapping[str, str]
    is_everywhere: bool
    is_part: bool
    has_images: bool | None
    always_images: bool
    num_rounds: int
    mean_abs_diff: float
    is_equal_before: bool
    misses_mass: bool
    facts: Mapping[str, str]
    impossible: frozenset[str]

    @classmethod
    def of(
        cls,
        view: View,
        tokens: Array,
        place: Place | TwoKinds | None,
        refuted: Collection[str],
    ) -> Spot:
        """Read where a place is, or all tokens where none was found."""
        conditions = place.conditions if isinstance(place, Place) else ()
        scopes: frozenset[str] = frozenset()
        if isinstance(place, Place):
            scopes = _scopes(conditions, _roles(view, place.over))
        elif isinstance(place, TwoKinds):
            scopes = _scopes_of_kinds(place)
        others = ~np.logical_or.reduce([tokens, *(p.tokens for p in find_places(view))])
        inside = view.uncertain & (tokens if place else True)
        size = view.abs_diff[inside]
        images = None if view.images is None else view.images[tokens]
        is_known = images is not None and not np.isnan(images).any()
        is_seen = images is not None and bool((images > 0).any())
        parts = {"first_tokens", "last_tokens", "after_image"}
        return cls(
            scopes=scopes,
            columns={**_read_lags(view, tokens), **_columns(place)},
            is_everywhere=_is_raised(view, others),
            is_part=any(c.column in parts for c in conditions),
            has_images=is_seen if is_known or is_seen else None,
            always_images=images is not None and bool((images > 0).all()),
            num_rounds=int(view.round.max(initial=0)) + 1,
            mean_abs_diff=float(size.mean()) if len(size) else 0.0,
            is_equal_before=_is_equal_before(view, tokens),
            misses_mass=missing_mass(view) is not None,
            facts=_read_facts(view),
            impossible=frozenset({*refuted, *_refuted(view)}),
        )

    @property
    def is_small(self) -> bool:
        """Whether rounding may make the mismatch."""
        return self.mean_abs_diff <= _ROUNDING

    @property
    def is_all(self) -> bool:
        """Whether all tokens may be affected."""
        return not self.scopes or self.is_everywhere or self.scopes == {"content"}

    def allows(self, name: str) -> bool:
        """Return whether nothing in the file refutes a cause."""
        no_image = CAUSES[name].with_image and self.has_images is False
        if name in self.impossible or no_image:
            return False
        if not self.is_small and name in _ROUNDING_ONLY:
            return False
        if "early" in self.scopes:
            return name not in _LATER | _OF_ALL
        if self.is_all:
            return name not in _LATER | _OF_SOME
        return not (self.scopes & {"rounds", "steps"} and name in _FROM_START)


def list_candidates(
    view: View,
    tokens: Array,
    place: Place | TwoKinds | None,
    refuted: Collection[str] = (),
) -> tuple[Candidate, ...]:
    """Return the causes of the families that are possible: one of each in turn.

    At most three families: first those that a record of the file speaks for.
    """
    spot = Spot.of(view, tokens, place, refuted)
    names = {
        family: [n for n in CAUSES if CAUSES[n].family == family and spot.allows(n)]
        for family in FAMILIES
    }
    clues: dict[str, str] = {}
    for family, clue in _clues(spot):
        if names[family] and len(clues) < MAX_FAMILIES:
            clues.setdefault(family, clue)
    rows = [
        [Candidate.of(name, clues[family]) for name in names[family]]
        for family in FAMILIES
        if family in clues
    ]
    return tuple(row for turn in zip_longest(*rows) for row in turn if row is not None)


def _clues(spot: Spot) -> Iterator[tuple[str, str]]:
    """Yield families with what speaks for them; records first, then the place."""
    scopes = spot.scopes
    yield from _clues_of_columns(spot)
    if "numerics" in spot.facts and not scopes & (_OF_SAMPLES | {"early", "first"}):
        before = "; all tokens before it are equal" * spot.is_equal_before
        yield "numerics", f"the facts name {spot.facts['numerics']}{before}"
    if "weights" in spot.facts and not scopes & {"rounds", "steps", "first", "last"}:
        yield "weights", f"the facts name {spot.facts['weights']}"
    if scopes & {"worker", "version"}:
        return  # inputs follow samples, not workers or versions
    if "early" in scopes:
        yield from _clues_of_start(spot)
    elif spot.is_all:
        yield from _clues_of_all(spot)
    if scopes & {"rounds", "steps"}:
        yield from _clues_of_later(spot)
    elif "own" in scopes:
        yield "numerics", "each sample turns at a token of its own"
        yield "ids", "each sample turns at a token of its own"
    elif scopes & _OF_SAMPLES:
        yield from _clues_of_samples(spot)
    yield from _ENDS.get("".join(scopes), ())


# What may differ where rounds begin or end.
_ENDS = {
    "first": (
        ("ids", "the template comes before it"),
        ("mask", "it is where rounds begin"),
    ),
    "last": (("mask", "it is where rounds end"), ("ids", "the template follows it")),
    "special": (
        ("ids", "the template writes these tokens"),
        ("mask", "the template writes these tokens"),
        ("sampling", "a sampler's settings can forbid these tokens"),
    ),
}


def _clues_of_columns(spot: Spot) -> Iterator[tuple[str, str]]:
    for kind, clue in spot.columns.items():
        if kind == "worker":
            yield "worker", clue
        if kind == "pack":
            yield "context", clue
            yield "positions", clue
        else:
            yield "weights", clue


def _clues_of_start(spot: Spot) -> Iterator[tuple[str, str]]:
    """Yield what may differ in the first rounds only: what the prompt is, or was."""
    if not spot.is_part:
        yield "weights", "later rounds differ less, as after an update"
    if spot.has_images:
        yield "context", "an image comes before it"
    yield "positions", "the first tokens after the prompt differ"
    yield "ids", "the first tokens after the prompt differ"


def _clues_of_later(spot: Spot) -> Iterator[tuple[str, str]]:
    """Yield what may differ from a round or token on, if earlier ones agree.

    Weights are not: the trainer's are the newest, and those of a sampler become newer.
    """
    is_turn = "rounds" in spot.scopes or spot.num_rounds > 1
    if is_turn:
        images = "images come before it"
        yield "context", images if spot.has_images else "observations come before it"
        yield "ids", "what was written before is read again"
        yield "positions", "they are counted on through what comes before it"
        return
    equal = "all tokens before it are equal" if spot.is_equal_before else ""
    yield "numerics", equal or "it begins within a round"
    yield "positions", "it begins at a length of the context"
    if not spot.is_equal_before:
        yield "ids", "it begins within a round"


def _clues_of_samples(spot: Spot) -> Iterator[tuple[str, str]]:
    """Yield what may differ in whole samples."""
    some = "only some samples differ"
    if "pack" in spot.scopes:
        yield "context", "the first row of each pack agrees"
        yield "positions", "the first row of each pack agrees"
    elif "block" in spot.scopes:
        yield "worker", "whole groups or rows side by side differ"
        if spot.has_images:
            yield "context", some
        else:
            yield "ids", some
    else:
        yield "ids", some
        if spot.has_images:
            yield "context", some
        yield "positions", some


def _clues_of_all(spot: Spot) -> Iterator[tuple[str, str]]:
    """Yield what may differ at all tokens."""
    if spot.misses_mass:
        yield "sampling", "hardly any diff is above 0"
    yield "weights", "no part is spared"
    if spot.is_small:
        size = f"{spot.mean_abs_diff:.2g} nat at uncertain tokens"
        yield "numerics", f"{size} is within reach of rounding"
    if spot.always_images:
        yield "context", "an image comes before every token"
        yield "positions", "an image comes before every token"
    else:
        yield "ids", "the prompt comes before every token"
    yield "sampling", "its size follows the log-probs"


def _scopes(conditions: Collection[Condition], roles: set[str]) -> frozenset[str]:
    """Return what a place is about, the tokens of which have these roles.

    Ends and starts say more than the samples, rounds or contents that have them. The
    last tokens of rounds are no end where only actions differ.
    """
    scopes = frozenset(map(_scope, conditions))
    if scopes == {"content"} and roles == {"special"}:
        return frozenset({"special"})
    if "last" in scopes and not set() < roles <= _ACTION:
        return frozenset({"last"})
    scopes = frozenset("content" if scope == "last" else scope for scope in scopes)
    if "early" in scopes:
        scopes -= {"first"}
    return scopes - {"content"} or scopes


def _roles(view: View, tokens: Array) -> set[str]:
    """Return the roles of some tokens; empty where roles are not known."""
    known = read_roles(view)
    if known is None:
        return set()
    names, codes = known
    return {names[code] for code in np.unique(codes[tokens])}


def _scopes_of_kinds(kinds: TwoKinds) -> frozenset[str]:
    """Return what two kinds of groups, samples or rounds are about."""
    first = "early" if kinds.differing[0] == 0 else "rounds"
    scopes = {"group": "block", "sample": "samples", "round": first}
    return frozenset({scopes[kinds.unit]})


def _scope(condition: Condition) -> str:
    """Return what a condition is about."""
    name = condition.column
    scope = _SCOPES.get(name)
    if scope in ("rounds", "steps"):
        is_first = condition.value in (0, False) and scope == "rounds"
        return "early" if condition.relation == "<=" or is_first else scope
    words = (scope for scope, word in _COLUMNS if word.search(name))
    return scope or next(words, "samples")


def _read_lags(view: View, tokens: Array) -> dict[str, str]:
    """Return a clue if exactly these tokens are of older weights than the trainer's."""
    versions = Versions.of(view.batch)
    if versions is None:
        return {}
    is_same = (versions.lag()[view.order] > 0) == tokens
    return (
        {"version": "these tokens alone are of older weights"} if is_same.all() else {}
    )


def _columns(place: Place | TwoKinds | None) -> dict[str, str]:
    """Return the clue of each column that tells workers, versions, caches or packs."""
    clues: dict[str, str] = {}
    if not isinstance(place, Place):
        return clues
    kinds = {kind for kind, _ in _COLUMNS}
    for condition in place.conditions:
        if (kind := _scope(condition)) in kinds and condition.column not in _SCOPES:
            clues[kind] = f"it follows `{condition.column}`"
    for value in place.common_values:
        if (kind := _scope(value.condition)) in kinds:
            clues.setdefault(kind, value.text)
    return clues


def _is_raised(view: View, tokens: Array) -> bool:
    """Return whether some tokens differ more than is usual for the kind of run."""
    few = int((np.bincount(view.sample[tokens]) > 0).sum()) < MIN_SAMPLES
    return not few and float(view.abs_diff[tokens].mean()) > view.usual.usual


def _is_equal_before(view: View, tokens: Array) -> bool:
    """Return whether the tokens before a place in its samples are bitwise equal."""
    first = np.full(view.batch.num_samples, -1)
    at = np.flatnonzero(tokens)[::-1]
    first[view.sample[at]] = view.num_before[at]
    before = view.num_before < first[view.sample]
    is_enough = int((before & view.uncertain).sum()) >= MIN_UNSURE
    return is_enough and not view.abs_diff[before].any()


def _read_facts(view: View) -> dict[str, str]:
    """Return what the facts of a run speak for, by family."""
    facts = view.batch.meta.get("facts")
    facts = facts if isinstance(facts, Mapping) else {}
    items = [(str(name), str(value).lower()) for name, value in facts.items()]
    lines = [f"{name.lower()}: {value}" for name, value in items if value not in _OFF]
    clues: dict[str, str] = {}
    for family, word, clue in _FACTS:
        if any(map(word.search, lines)):
            clues.setdefault(family, clue)
    if view.facts.memo.get("stated_kind") and view.usual.is_routed:
        clues.setdefault("numerics", "experts")
    return clues


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
    if view.batch.contexts is None:
        refuted.add("rewritten_history")
    return refuted
