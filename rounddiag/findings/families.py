"""The table of families of causes: where each is possible, and what is measured there.

One batch cannot tell the causes of a family apart, and often not the families. A family
is possible at the kinds of place that its row names, and listed if what the row
measures on the tokens of the place and on the rest speaks for it, with its numbers. It
is struck by what the file refutes: a check that holds, no image, one round, a relation
that the tokens of the place do not follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from typing import TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.columns.predicates import Condition
from rounddiag.core.divergence import FACTOR_2
from rounddiag.core.versions import Versions
from rounddiag.findings.causes import CAUSES, FAMILIES, FORMULAS, Candidate
from rounddiag.findings.conditions import CACHES, PACKS, VERSIONS, WORKERS, read_roles
from rounddiag.findings.detectors.grammar import measure_forced
from rounddiag.findings.detectors.penalty import best_split
from rounddiag.findings.detectors.temperature import follow_log_odds
from rounddiag.findings.detectors.truncation import find_missing, kept_mass
from rounddiag.findings.equal_tokens import MIN_UNSURE
from rounddiag.findings.excess import EXCESS_FACTORS, find_excesses, usual_size
from rounddiag.findings.level import MIN_SAMPLES, mean_of_sums
from rounddiag.findings.measure import Measure
from rounddiag.findings.place import Place, clusters, find_places, measure_ratio
from rounddiag.findings.sample_sets import (
    ALL_BUT_EVERY_NTH,
    BLOCK,
    EVERY_NTH,
    GROUPS,
    OWN_START,
)
from rounddiag.findings.two_kinds import TwoKinds
from rounddiag.findings.view import ROUNDING, View
from rounddiag.wording import percent, pluralize, with_minus

MAX_FAMILIES = 3  # of a finding, a convention: more are not read
# The most that rounding to bfloat16 changes a log-prob, in nats: half a step at a logit
# of 32 to 64, for the token and for its normaliser.
_REACH = 0.25
_LIKELY = np.log(0.9)  # rounding does not halve the probability of such a token
_MOST = 0.5  # of the sum of |diff|: what has more carries it
_SPARED = np.log(0.5)  # a part that differs less than half as much as others is spared
_MIN_OF_PART = 30  # tokens: fewer have no level
# What conditions on columns are about, by the names of the columns.
_SCOPES = {
    "round": "later",
    "last_round": "later",
    "images_seen": "later",
    "decoding_step": "within",
    "since_image": "within",
    "context_length": "position",
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
# Families of a place that follows a column of a kind; weights of every other kind.
_OF_RECORDS = {"worker": ("worker", "weights"), "pack": ("context", "positions")}
# Facts of a run, as "name: value", what they speak for, and where they do not.
_FACTS = (
    ("numerics", re.compile(r"kv_cache\w*: fp8"), "an FP8 KV cache"),
    ("numerics", re.compile(r"fp8|nvfp4|int8"), "weights of few bits"),
    ("weights", re.compile(r"lora|adapter"), "a LoRA"),
)
_NOT_OF_FACTS = {
    "numerics": _OF_SAMPLES | {"early", "first"},
    "weights": frozenset({"later", "within", "position", "first", "last"}),
}
# Roles of the tokens of actions.
_ACTION = frozenset(
    {"action", "coordinates", "typed text", "other arguments", "syntax"}
)
_OFF = frozenset({"", "0", "none", "null", "false", "off", "no", "disabled"})

# What was measured, as a clause, and its numbers.
Clue: TypeAlias = "tuple[str, tuple[Measure, ...]]"
_Measured: TypeAlias = "Callable[[Spot], Clue | None]"


@dataclass(frozen=True, kw_only=True, eq=False)
class Spot:
    """The tokens of a place, the rest, and what the place is about.

    Attributes
    ----------
    tokens, rest: bool arrays. The place, and the tokens that are in no place.
    scopes: What its conditions are about; empty where no place was found. Samples: of
        one `worker` or weight `version`, with a `cached` prefix, of a `pack`, a `block`
        (a run of rows, every n-th, whole groups), other `samples`. Tokens: from a round
        on (`later`), from a token on (`within`), from a `position` in the context on,
        from a token of their `own` on, or up to a round (`early`); the `first` or
        `last` tokens of rounds; some `content`, such as `special` tokens.
    names: The columns of its conditions.
    columns: The column that a place follows, or its samples have in common, by whether
        that is of a worker, version, cache or pack.
    """

    view: View
    tokens: Array
    rest: Array
    scopes: frozenset[str]
    names: frozenset[str]
    columns: Mapping[str, str]

    @classmethod
    def of(cls, view: View, tokens: Array, place: Place | TwoKinds | None) -> Spot:
        """Read where a place is, or all tokens where none was found."""
        conditions = place.conditions if isinstance(place, Place) else ()
        scopes: frozenset[str] = frozenset()
        if isinstance(place, Place):
            scopes = _scopes(conditions, _roles(view, place.over))
        elif isinstance(place, TwoKinds):
            scopes = _scopes_of_kinds(place)
        places = (other.tokens for other in find_places(view))
        return cls(
            view=view,
            tokens=tokens,
            rest=~np.logical_or.reduce([tokens, *places]),
            scopes=scopes,
            names=frozenset(condition.column for condition in conditions),
            columns={**_read_lags(view, tokens), **_columns(place)},
        )

    @cached_property
    def rows(self) -> View:
        """The tokens of the place as a view of their own."""
        return self.view.keep(self.tokens)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of place that it is: keys of the rows of `TABLE`."""
        scopes, size = self.scopes, set() if self.is_small else {"large"}
        if scopes & {"worker", "version"}:
            return (scopes & _OF_SAMPLES) | size  # inputs follow samples, not these
        kinds = ({*self.columns} | scopes) & {"pack", "cached"}
        is_all = not scopes or self.is_everywhere
        if "early" in scopes:
            kinds.add("early")
        elif is_all:
            is_few = not scopes and self.is_carried_by_few
            kinds.add("few" if is_few else "all")
        elif scopes == {"content"}:
            kinds.add("content")
        if scopes & {"later", "within"}:
            is_turn = "later" in scopes or self.view.round.any()
            kinds.add("later" if is_turn else "within")
        elif "position" in scopes:
            kinds.add("position")
        elif "own" in scopes:
            kinds.add("own")
        elif scopes & _OF_SAMPLES and not kinds & {"pack", "early"}:
            kinds.add("block" if "block" in scopes else "samples")
        if len(scopes) == 1:
            kinds |= scopes & {"first", "last", "special"}
        return frozenset(kinds | size)

    @cached_property
    def is_everywhere(self) -> bool:
        """Whether the tokens outside differ more than is usual for the kind of run."""
        view, rest = self.view, self.rest
        few = int((np.bincount(view.sample[rest]) > 0).sum()) < MIN_SAMPLES
        return not few and float(view.abs_diff[rest].mean()) > view.usual.usual

    @cached_property
    def excess(self) -> tuple[Array, float]:
        """The tokens far beyond equally likely ones, and their part of sum |diff|."""
        view = self.view
        if not self.tokens.all():
            return self.tokens, 1.0
        far = find_excesses(view)[EXCESS_FACTORS.index(10.0)]
        return far, float(view.abs_diff[far].sum() / view.abs_diff.sum())

    @property
    def is_carried_by_few(self) -> bool:
        """Whether tokens in few samples have most of the sum of |diff|."""
        far, share = self.excess
        num = int(self.view.samples_with(far).sum())
        return share > _MOST and num < _MOST * self.view.num_samples

    @cached_property
    def is_small(self) -> bool:
        """Whether rounding may make it: no likely token becomes half as likely."""
        rows = self.rows
        size = rows.abs_diff[rows.uncertain]
        likely = np.maximum(rows.log_prob_a, rows.log_prob_b) > _LIKELY
        is_near = not (rows.abs_diff[likely] > FACTOR_2).any()
        return is_near and not (len(size) and size.mean() > _REACH)

    @cached_property
    def images(self) -> tuple[int, int] | None:
        """The fewest and the most images before a token; None if not known."""
        images = self.rows.images
        if images is None or not len(images) or np.isnan(images).any():
            return None
        return int(images.min()), int(images.max())

    @cached_property
    def relations(self) -> dict[str, tuple[Measure, ...]]:
        """The settings of a sampler whose relation the tokens of the place follow."""
        rows, split = self.rows, best_split(self.rows)
        gap = 0.0 if split is None else split.gap
        measures = {
            "truncated_sampling": Measure(
                "part of |diff| that is missing mass", find_missing(rows)
            ),
            "temperature": Measure(
                "part of squares that follows the log-odds", follow_log_odds(rows)
            ),
            "logit_processor": Measure(
                "diff at ids seen before minus diff at fresh ids", gap, "nat"
            ),
        }
        known: dict[str, tuple[Measure, ...]]
        known = {name: (each,) for name, each in measures.items() if each.value}
        forced = measure_forced(rows) or measure_forced(self.view, self.tokens)
        if not forced:
            return known
        # No formula of all ids leaves a token alone that is unlikely, but a small top-p
        # or min-p.
        kept = Measure("kept mass", kept_mass(rows))
        return {"structured_output": forced, "truncated_sampling": (kept,)}

    @cached_property
    def later(self) -> Array:
        """The tokens of the last rounds of its samples, where the place is before."""
        view = self.view
        last = np.zeros((2, view.batch.num_samples), dtype=np.int64)
        np.maximum.at(last[0], view.sample, view.round)
        np.maximum.at(last[1], view.sample[self.tokens], view.round[self.tokens])
        is_before = view.samples_with(self.tokens)[view.sample]
        is_before &= (last[1] < last[0])[view.sample]
        return is_before & (view.round == last[0][view.sample]) & self.rest

    @cached_property
    def later_agree(self) -> bool:
        """Whether last rounds, after the place, agree as those of other samples do."""
        view, later = self.view, self.later
        if not later.any():
            return False
        others = self.rest & ~view.samples_with(self.tokens)[view.sample]
        if view.samples_with(others).sum() < MIN_SAMPLES:
            return float(view.abs_diff[later].mean()) <= view.usual.usual
        size, usual = usual_size(view, others)
        cluster = clusters(view)[later]
        return not measure_ratio(size[later], usual[later], cluster)[1] > 1

    @property
    def contrast(self) -> tuple[Measure, ...]:
        """Mean |diff| of the place and of the rest."""
        sizes = self.view.abs_diff
        parts = (("here", self.tokens), ("elsewhere", self.rest))
        return tuple(
            Measure(f"mean |diff| {name}", float(sizes[at].mean()), "nat")
            for name, at in parts
            if at.any()
        )


# Measures.


def _clue(text: str, name: str, value: float, unit: str = "") -> Clue:
    return text, (Measure(name, value, unit),)


def _say_contrast(spot: Spot) -> Clue:
    here, *elsewhere = spot.contrast
    rest = f", {elsewhere[0].value:.2g} elsewhere" if elsewhere else ""
    return f"{here.value:.2g} nat here{rest}", ()


def _count_samples(spot: Spot) -> Clue | None:
    inside, every = spot.rows.num_samples, spot.view.num_samples
    text = f"{inside:,} of {pluralize(every, 'sample')} differ"
    return _clue(text, "samples", inside, "samples")


def _count_images(spot: Spot) -> Clue | None:
    if not spot.images or not spot.images[1]:
        return None
    fewest, most = spot.images
    number = f"{most}" if fewest == most else f"{fewest} to {most}"
    verb = "comes" if most == 1 else "come"
    text = f"{number} {'image' if most == 1 else 'images'} {verb} before its tokens"
    return text, tuple(
        Measure(f"{name} images before a token", value)
        for name, value in (("fewest", fewest), ("most", most))
    )


def _count_context(spot: Spot) -> Clue | None:
    if spot.images and spot.images[1]:
        return _count_images(spot)
    rows = spot.rows
    mean = float((rows.position - rows.num_before).mean())
    if mean <= 0:
        return None
    name = "mean number of observed tokens before it"
    return _clue(f"{mean:,.0f} observed tokens come before it", name, mean)


def _count_written(spot: Spot) -> Clue | None:
    mean = float(spot.rows.num_before.mean())
    name = "mean number of generated tokens before it"
    text = f"{mean:,.0f} tokens written before it are read again"
    return _clue(text, name, mean) if mean else None


def _find_context(spot: Spot) -> Clue | None:
    rows, lengths = spot.rows, spot.view.facts.prompt_length
    at = rows.position if lengths is None else rows.position + lengths[rows.sample]
    text = "response" if lengths is None else "context"
    first, name = int(at.min()), f"first position in the {text}"
    return _clue(f"it begins at position {first:,} of the {text}", name, first)


def _start_differs(spot: Spot) -> Clue | None:
    """Measure round 0: what comes before every token comes before it."""
    view = spot.view
    size = view.abs_diff[spot.tokens & (view.round == 0)]
    if not len(size):
        return None
    mean = float(size.mean())
    text = f"round 0 differs by {mean:.2g} nat"
    return _clue(text, "mean |diff| of round 0", mean, "nat")


def _start_after_images(spot: Spot) -> Clue | None:
    return _count_images(spot) if spot.images and spot.images[0] else None


def _images_again(spot: Spot) -> Clue | None:
    return None if spot.later_agree else _count_images(spot)


def _compare_later(spot: Spot) -> Clue | None:
    columns = {"first_tokens", "last_tokens", "after_image"}
    size = spot.view.abs_diff[spot.later]
    if not len(size) or spot.names & columns:
        return None
    here, mean = spot.contrast[0], float(size.mean())
    text = f"{here.value:.2g} nat become {mean:.2g} in last rounds"
    return _clue(text, "mean |diff| of last rounds", mean, "nat")


def _least_part(spot: Spot) -> Clue | None:
    """Measure the role, round or sample that differs least; None if it is spared."""
    view = spot.view
    size = np.log(view.abs_diff + ROUNDING)
    away = size - view.of_equally_likely(size)
    roles = read_roles(view)
    parts = [("sample", view.sample), ("round", view.round)]
    parts += [("role", roles[1])] if roles else []
    least = np.inf
    for _, codes in parts:
        num = np.bincount(codes)
        mean = np.bincount(codes, weights=away) / np.maximum(num, 1)
        least = min(least, mean[num >= _MIN_OF_PART].min(initial=np.inf))
    if not _SPARED <= least < np.inf:
        return None
    name = "least ratio of a part to equally likely tokens"
    names = ", ".join(name for name, _ in parts[:-1]) + f" or {parts[-1][0]}"
    text = f"no {names} is spared: the least differs"
    text += f" {np.exp(least):.2g} times as much as equally likely tokens"
    return _clue(text, name, float(np.exp(least)))


def _count_few(spot: Spot) -> Clue | None:
    far, share = spot.excess
    tokens = f"{pluralize(int(far.sum()), 'token')} ({percent(float(far.mean()))})"
    measure = Measure("tokens", int(far.sum()), "tokens")
    if share == 1:
        return f"{tokens} alone differ so much", (measure,)
    text = f"{tokens} carry {percent(share)} of the sum of |diff|"
    return text, (measure, Measure("share of the sum of |diff|", share))


def _lean(spot: Spot) -> Clue | None:
    """Measure that small differences have the mean of rounding.

    To second order, the mean difference at tokens that the sampler drew is half of the
    mean square, below 0: none above 0 is that of rounding.
    """
    rows = spot.rows
    chosen = rows.uncertain
    if "large" in spot.kinds or chosen.sum() < MIN_UNSURE:
        return None
    d = rows.diff[chosen]
    sizes, sums = rows.sums_of(chosen, d)
    mean, error = mean_of_sums(sums, sizes)
    square = float((d**2).mean())
    # Few samples may agree by chance: the error is that of single tokens at least.
    error = np.maximum(error, float(d.std()) / np.sqrt(len(d)))
    if not -2 * error - square <= mean <= 2 * error:
        return None
    size = float(np.abs(d).mean())
    text = f"{size:.2g} nat at uncertain tokens, {with_minus(f'{mean:.2g}')} with their"
    text += " signs, is within reach of rounding"
    return text, (
        Measure("mean |diff| at uncertain tokens", size, "nat"),
        Measure("mean diff at uncertain tokens", mean, "nat"),
    )


def _equal_before(spot: Spot) -> Clue | None:
    """Measure how many tokens before it in its samples are bitwise equal: all."""
    view = spot.view
    first = np.full(view.batch.num_samples, -1)
    at = np.flatnonzero(spot.tokens)[::-1]
    first[view.sample[at]] = view.num_before[at]
    before = view.num_before < first[view.sample]
    is_enough = int((before & view.uncertain).sum()) >= MIN_UNSURE
    if not is_enough or view.abs_diff[before].any():
        return None
    num = int(before.sum())
    text = f"all {num:,} tokens before it are equal"
    return _clue(text, "equal tokens before it", num, "tokens")


def _lean_of_signs(spot: Spot) -> Clue | None:
    mean = float(spot.rows.diff.mean())
    text = f"the mean diff is {with_minus(f'{mean:.2g}')} nat"
    return _clue(text, "mean diff", mean, "nat")


def _likeliness(spot: Spot) -> Clue | None:
    mean = float(np.maximum(spot.rows.log_prob_a, spot.rows.log_prob_b).mean())
    text = f"its tokens have {with_minus(f'{mean:.2g}')} nat on average"
    return _clue(text, "mean of the higher log-prob", mean, "nat")


def _relation(spot: Spot) -> Clue | None:
    measures = tuple(chain.from_iterable(spot.relations.values()))
    text = "; ".join(
        f"{name.replace('_', ' ')}: {', '.join(map(str, each))}"
        for name, each in spot.relations.items()
    )
    return (text, measures) if measures else None


def _forced(spot: Spot) -> Clue | None:
    return _relation(spot) if "structured_output" in spot.relations else None


def _unless(other: _Measured, measure: _Measured) -> _Measured:
    return lambda spot: None if other(spot) else measure(spot)


# A row per family: the kinds of place where it is possible, and what is measured there.
# If more than three are possible, the first rows are listed.
TABLE: dict[str, dict[str, _Measured]] = {
    "worker": {"block": _count_samples},
    "sampling": {
        **dict.fromkeys(("all", "samples", "block", "worker", "content"), _relation),
        **dict.fromkeys(("few", "early", "later", "within", "position"), _forced),
        **dict.fromkeys(("own", "first", "last"), _forced),
        "special": _lean_of_signs,
    },
    "numerics": {
        **dict.fromkeys(("all", "early", "later", "samples", "content"), _lean),
        **dict.fromkeys(
            ("within", "position"), lambda spot: _equal_before(spot) or _lean(spot)
        ),
        "own": _say_contrast,
        "few": _count_few,
    },
    "weights": {"early": _compare_later, "all": _least_part},
    "context": {
        "pack": _say_contrast,
        "early": _images_again,
        "all": _start_after_images,
        "content": _count_images,
        **dict.fromkeys(("later", "position"), _count_context),
        "block": _count_images,
        "samples": _count_images,
    },
    "positions": {
        "pack": _say_contrast,
        "early": _start_differs,
        "all": _start_after_images,
        **dict.fromkeys(("later", "within", "position"), _find_context),
        "samples": _count_samples,
    },
    "ids": {
        "early": _start_differs,
        "all": _unless(_start_after_images, _start_differs),
        "few": _count_few,
        "content": _say_contrast,
        **dict.fromkeys(("later", "position"), _count_written),
        "within": _unless(_equal_before, _count_written),
        "own": _say_contrast,
        "block": _unless(_count_images, _count_samples),
        "samples": _count_samples,
        "first": _likeliness,
        "last": _likeliness,
        "special": _likeliness,
    },
    "mask": dict.fromkeys(("few", "first", "last", "special"), _likeliness),
}


def list_candidates(
    view: View,
    tokens: Array,
    place: Place | TwoKinds | None,
    refuted: Collection[str] = (),
) -> tuple[Candidate, ...]:
    """Return the causes of the families that are possible: one of each in turn.

    At most three families: first those that a record of the file speaks for.
    """
    spot = Spot.of(view, tokens, place)
    struck = {*refuted, *_refuted(spot)}
    names = {
        family: [
            name
            for name, cause in CAUSES.items()
            if cause.family == family
            and name not in struck
            and not cause.not_at & spot.kinds
        ]
        for family in FAMILIES
    }
    clues: dict[str, Clue] = {}
    for family, clue in _clues(spot):
        if names[family] and len(clues) < MAX_FAMILIES:
            clues.setdefault(family, clue)
    rows = []
    # A relation that few causes leave says more than where a place is.
    is_forced = "structured_output" in spot.relations
    for family in sorted(FAMILIES, key=lambda name: is_forced and name != "sampling"):
        if family in clues:
            text, numbers = clues[family]
            evidence = (*numbers, *spot.contrast)
            rows.append([Candidate.of(n, text, evidence) for n in names[family]])
    return tuple(row for turn in zip_longest(*rows) for row in turn if row is not None)


def _clues(spot: Spot) -> Iterator[tuple[str, Clue]]:
    """Yield families with what was measured; those that a record names come first."""
    here, _ = _say_contrast(spot)
    for kind, record in spot.columns.items():
        for family in _OF_RECORDS.get(kind, ("weights",)):
            yield family, (f"{record}; {here}", ())
    for family, fact in _read_facts(spot.view).items():
        if not spot.kinds & _NOT_OF_FACTS[family]:
            more, numbers = _equal_before(spot) or (here, ())
            yield family, (f"the facts name {fact}; {more}", numbers)
    for family, measures in TABLE.items():
        for kind, measure in measures.items():
            clue = measure(spot) if kind in spot.kinds else None
            if clue is not None:
                yield family, clue


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
    known = read_roles(view)
    if known is None:
        return set()
    names, codes = known
    return {names[code] for code in np.unique(codes[tokens])}


def _scopes_of_kinds(kinds: TwoKinds) -> frozenset[str]:
    first = "early" if kinds.differing[0] == 0 else "later"
    scopes = {"group": "block", "sample": "samples", "round": first}
    return frozenset({scopes[kinds.unit]})


def _scope(condition: Condition) -> str:
    name = condition.column
    scope = _SCOPES.get(name)
    if scope in ("later", "within", "position"):
        is_first = condition.value in (0, False) and scope == "later"
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


def _read_facts(view: View) -> dict[str, str]:
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


def _refuted(spot: Spot) -> set[str]:
    view = spot.view
    refuted = (FORMULAS | {"structured_output"}) - spot.relations.keys()
    if view.facts.memo.get("stated_kind") and not view.usual.is_routed:
        refuted |= {"moe_routing"}
    if not view.round.any():
        refuted |= {"context_masked"}
    if spot.images and not spot.images[1]:
        refuted |= {name for name, cause in CAUSES.items() if cause.with_image}
    if view.images is not None and (view.images <= 1).all():
        refuted |= {"image_window"}
    if view.batch.contexts is None:
        refuted |= {"rewritten_history"}
    return {*refuted}
