"""The diagnosis in words: what differs and where; what reproduces it; what next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.checks import Check
from rounddiag.checks.contracts import LEVEL
from rounddiag.checks.log_probs import MEASURABLE
from rounddiag.checks.provable import recorded_sampling
from rounddiag.checks.rounds import KNOWN
from rounddiag.columns.phrases import phrase
from rounddiag.core.divergence import FACTOR_2
from rounddiag.findings.causes import CAUSES, NO_CAUSE, describe_families
from rounddiag.findings.detectors.failed_checks import SUPERSEDED, describe_failed
from rounddiag.findings.diagnosis import Diagnosis
from rounddiag.findings.finding import Finding
from rounddiag.findings.level import MIN_SAMPLES
from rounddiag.findings.place import Place
from rounddiag.findings.sample_sets import LISTS
from rounddiag.findings.two_kinds import find_two_kinds
from rounddiag.findings.verdict import Verdict, find_verdict
from rounddiag.findings.view import View
from rounddiag.wording import capitalize, pluralize

# With fewer large diffs, the headline has the ratio of the place instead.
_MIN_LARGE = 5
# The headline counts the large diffs of a place if at least this share of all is in it,
_MOST = 0.9
# and if the large diffs hold this part of the sum of |diff|.
_HELD = 0.5


def describe_place(where: Mapping[str, Any], indices: Array, view: View) -> str:
    """Return what differs, and where, as a clause.

    Examples
    --------
    A finding at 341 tokens reads "341 tokens differ by more than a factor of 2: all of
    them coordinates, on rank 3, from round 5 on, in 8 of 128 samples".
    """
    undone = f", with {where['undone']}" if "undone" in where else ""
    if "fact" in where:
        return f"{where['fact']}{undone}"
    total = view.num_samples
    place: Place | None = where.get("place")
    equal = _describe_elsewhere(where, place, indices, view)
    if place is not None and "onset" in where and place.is_of_rounds:
        place = None  # the onset says more
    num_large = int(where.get("num_large", 0))
    size = view.abs_diff[indices]
    if size[size > FACTOR_2].sum() < _HELD * size.sum():
        num_large = 0  # the story is the many small ones
    all_large = int((view.abs_diff > FACTOR_2).sum())
    if place is None:
        clauses = [*_tokens(indices, num_large, view), *_conditions(where)]
        samples = where.get("large_samples", where["samples"])
        if num_large < _MIN_LARGE:
            samples = where["samples"]
        scope = _scope(samples, view) if len(indices) < len(view) else ""
        return ", ".join(filter(None, [*clauses, scope])) + equal
    if num_large >= _MIN_LARGE and num_large >= _MOST * all_large:
        number = "all" if num_large == all_large else f"{num_large:,}"
        head = f"{pluralize(all_large, 'token')} differ by more than a factor of 2: "
        scope = _of_samples(place, len(where["large_samples"]), total)
        return f"{head}{number} of them {place.text}{scope}{equal}"
    tokens = pluralize(place.num_tokens, "token")
    scope = _of_samples(place, len(where["samples"]), total)
    if equal:
        head = f"{tokens} differ by {size.mean():.2g} nat on average"
        return f"{head}: {place.text}{scope}{equal}"
    head = f"{tokens} differ {place.times} times as much as equally likely ones"
    return f"{head}{undone}: {place.text}{scope}"


def _describe_elsewhere(
    where: Mapping[str, Any], place: Place | None, indices: Array, view: View
) -> str:
    """Return that all other tokens are equal, as before a cache, or agree; or empty."""
    outside = np.ones(len(view), dtype=bool)
    outside[indices] = False
    is_whole = not view.is_thinned and not view.num_nonfinite
    is_all = outside.all() or not outside.any()
    if not is_whole or is_all or view.abs_diff[outside].any():
        return f"; {where['elsewhere']}" if "elsewhere" in where else ""
    onset = where.get("onset")
    start = f"from round {onset.round} on" if onset else place.text if place else ""
    if start.startswith("from ") and start.endswith(" on") and "," not in start:
        before = start.removeprefix("from ").removesuffix(" on")
        return f"; all tokens before {before} are bitwise equal"
    return "; all other tokens are bitwise equal"


def _tokens(indices: Array, num_large: int, view: View) -> list[str]:
    if not len(indices):
        return ["no single tokens stand out"]
    if not view.abs_diff[indices].any():
        return [f"{pluralize(len(indices), 'token')} have equal log-probs"]
    is_whole = len(indices) == len(view)
    if num_large >= (1 if is_whole else _MIN_LARGE):
        verb = "differs" if num_large == 1 else "differ"
        return [f"{pluralize(num_large, 'token')} {verb} by more than a factor of 2"]
    if is_whole:
        return [_describe_all(view, float(view.abs_diff.mean()))]
    size = view.abs_diff[indices][view.abs_diff[indices] > 0]
    return [
        f"{pluralize(len(size), 'token')} differ by {size.mean():.2g} nat on average"
    ]


def _describe_all(view: View, mean: float) -> str:
    """Return how far tokens differ; all are affected if no uncertain one agrees."""
    kinds = find_two_kinds(view)
    if kinds is not None:
        return kinds.text
    if (view.abs_diff > 0)[view.uncertain].all():
        return f"all tokens are affected: they differ by {mean:.2g} nat on average"
    return f"tokens differ by {mean:.2g} nat on average"


def _conditions(where: Mapping[str, Any]) -> list[str]:
    onset, conditions = where.get("onset"), []
    if onset is not None:
        conditions.append(f"from round {onset.round} on")
        if onset.low != onset.high:
            conditions[-1] += f" (95 % interval: {onset.interval})"
        place: Place | None = where.get("place")
        if place is not None and place.context_start is not None:
            start = phrase("context_length", ">=", place.context_start)
            conditions.append(f"or just as well {start}")
    elif where.get("images_from") is not None:
        conditions.append("after the first image")
    if "condition" in where:
        conditions.append(str(where["condition"]))
    return conditions


def _scope(samples: Array, view: View) -> str:
    """Return how many samples, or whole groups, something is in; empty for all."""
    present = np.flatnonzero(view.num_per_sample > 0)
    is_in, group = np.isin(present, samples), view.facts.group
    if group is not None and is_in.sum() > 1:
        names, code = np.unique(group[present], return_inverse=True)
        share = np.bincount(code, weights=is_in) / np.bincount(code)
        if (
            len(names) < len(present)
            and np.isin(share, (0, 1)).all()
            and not is_in.all()
        ):
            return f"in {int(share.sum()):,} of {pluralize(len(names), 'group')}"
    return _samples(len(samples), len(present))


def _samples(num: int, total: int) -> str:
    return f"in {num:,} of {pluralize(total, 'sample')}" if 0 < num < total else ""


def _of_samples(place: Place, num: int, total: int) -> str:
    """Return the end of a clause: how many samples it is of; empty for all.

    In brackets after a place that lists the samples already.
    """
    scope = _samples(num, total)
    if scope and any(condition.column in LISTS for condition in place.conditions):
        return f" ({scope.removeprefix('in ')})"
    return f", {scope}" if scope else ""


def write_sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return what differs and where, and what else fails."""
    level = diagnosis.level
    bugs = [finding for finding in diagnosis if finding.is_bug]
    if diagnosis.updates:  # equal columns are no bug beside it
        bugs = [finding for finding in bugs if finding.cause != "identical_log_probs"]
    if diagnosis.verdict == "not_measurable":
        first = f"{capitalize(diagnosis.reason)}."
    elif diagnosis.verdict == "identical":
        is_drift = diagnosis.reference.is_drift
        reason = "no update yet" if is_drift else "aligned engines"
        first = (
            f"All {level.num_tokens:,} tokens have log-probs that are equal bit by bit:"
            f" {reason}, or a copy; if your trainer copies them, nothing was compared."
        )
    else:
        first = _sentence(bugs[0]) if bugs else _describe_level(diagnosis)
    updates = [*map(_sentence, diagnosis.updates)]
    # A wrong update comes first where log-probs are sound.
    is_sound = not bugs and diagnosis.verdict != "not_measurable"
    text = [*updates, first] if is_sound else [first, *updates]
    said = {finding.where.get("check") for finding in (*bugs[:1], *diagnosis.updates)}
    text += [
        _write_sentence(describe_failed(check), check.name)
        for check in diagnosis.checks.failed
        if check.name not in said and _is_news(check, diagnosis)
    ]
    return tuple(text)


def _is_news(check: Check, diagnosis: Diagnosis) -> bool:
    """Return whether neither the verdict nor a finding says what a failed check says.

    Values that a check takes for fills may be those of swapped rows or of a mask.
    """
    if check.name in (KNOWN.name, MEASURABLE.name):
        return False
    causes = {finding.cause for finding in diagnosis}
    return check.cause not in SUPERSEDED or check.cause in causes


def _sentence(finding: Finding) -> str:
    return _write_sentence(finding.location, finding.where.get("check"))


def _write_sentence(clause: str, check: str | None) -> str:
    end = f' (failed check "{check}").' if check else "."
    return f"{capitalize(clause)}{end}"


def _describe_level(diagnosis: Diagnosis) -> str:
    level, is_drift = diagnosis.level, diagnosis.reference.is_drift
    if level.mean_abs_diff == 0:
        return f"All {level.num_tokens:,} tokens compared have bitwise equal log-probs."
    noise = "Drift within the step" if is_drift else "Noise"
    openings = {"healthy": noise, "noisy": f"{noise} above the usual range"}
    verdict = _verdict_on_level(diagnosis)
    opening = openings.get(verdict, f"More than {noise.lower()}")
    mean = f"mean |diff| is {level.mean_abs_diff:.2g} nat"
    if level.num_samples < MIN_SAMPLES:
        number = {1: "one sample"}.get(
            level.num_samples, f"{level.num_samples} samples"
        )
        return f"{opening}: {mean}, and {number} cannot be compared with others."
    if level.kl > (limit := diagnosis.reference.limit_kl):
        mean += f", and the k3 estimate of KL {level.kl:.3g}, above {limit:.3g}"
    if verdict == "healthy":
        return f"{opening}: {mean}, and no place stands out."
    return f"{opening}: {mean}; no place stands out."


def _verdict_on_level(diagnosis: Diagnosis) -> Verdict:
    """Return the verdict on the mismatch alone, whatever the update is."""
    others = [finding for finding in diagnosis if finding.severity != "update"]
    return find_verdict(diagnosis.level, diagnosis.reference, others)


def write_advice(diagnosis: Diagnosis) -> str:
    """Return the cause and how it was shown, or what is possible and what tests it."""
    updates = [
        f"The update is wrong: {CAUSES[finding.cause].meaning}."
        f" Next: {finding.next_step}"
        for finding in diagnosis.updates
    ]
    text = [*updates, diagnosis.mass, _advise(diagnosis), diagnosis.consequence]
    return " ".join(filter(None, text))


# Names and values in `meta["sampling"]` without which a sampler is the whole model at
# temperature 1.
_WHOLE = {
    "temperature": (1,),
    "top_p": (None, 1),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "repetition_penalty": (None, 1),
}


def describe_mass(view: View) -> str:
    """Return that the mean of exp(old - rollout) is above 1; empty if it may be 1.

    It is 1 over ids that were drawn from the recorded distribution, whatever the other
    engine is: the file must state that this is the sampler's. A bet of half of what one
    has on each token multiplies it by 200 with a probability of 1/200 at most (Ville).
    A mean below 1 proves nothing: the few large terms may be missing.
    """
    if (view.a, view.b) != ("old", "rollout"):
        return ""
    sampling = recorded_sampling(view.batch)
    is_whole = sampling.get("temperature") is not None and all(
        sampling.get(name) in values for name, values in _WHOLE.items()
    )
    is_processed = "processed" in str(sampling.get("logprobs_mode"))
    if not (is_whole or is_processed) or not len(view):
        return ""
    with np.errstate(over="ignore"):  # as infinite
        ratio = np.exp(view.diff)
    if not np.log1p((ratio - 1) / 2).sum() > -np.log(LEVEL):
        return ""
    return (
        f"The mean of exp(old - rollout) is {ratio.mean():.3g}, and 1 for ids that the"
        " sampler drew: the ids or the mask are not the sampler's."
    )


def _advise(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict == "not_measurable":
        return ""
    if diagnosis.verdict == "identical":
        equal = [
            finding for finding in diagnosis if finding.cause == "identical_log_probs"
        ]
        return f"Next: {equal[0].next_step}" if equal else ""
    bugs = [finding for finding in diagnosis if finding.is_bug]
    if not bugs:
        return _advise_on_level(diagnosis)
    first, *others = bugs
    parts = [_name(first)]
    by_location = (first.cause, NO_CAUSE, "identical_log_probs")
    names = dict.fromkeys(
        finding.location if finding.cause in by_location else _meaning(finding)
        for finding in others
        if finding.kind != "place"
        and "check" not in finding.where  # the headline has those
    )
    if names:
        parts.append(f"Also {', '.join(names)}.")
    places = sum(finding.kind == "place" for finding in others)
    if places:
        verb = "stands" if places == 1 else "stand"
        parts.append(f"{pluralize(places, 'more place')} {verb} out.")
    if first.kind != "place":
        parts.append(f"Next: {first.next_step}")
    return " ".join(parts)


def _name(finding: Finding) -> str:
    if finding.kind in ("fact", "reversal"):
        name = "cause not known" if finding.cause == NO_CAUSE else _meaning(finding)
        return f"{capitalize(name)}. {finding.shown}"
    if not finding.candidates:
        return f"Cause not known. Next: {finding.next_step}"
    possible = ", ".join(describe_families(finding.candidates))
    text = f"Cause not known; possible: {possible}"
    call = finding.prove_command or finding.prove_call
    return f"{text}; `{call}` tests them." if call else f"{text}. {finding.next_step}"


def _meaning(finding: Finding) -> str:
    row = CAUSES.get(finding.cause)
    return row.meaning if row else finding.cause.replace("_", " ")


def _describe_checks(diagnosis: Diagnosis) -> str:
    checks = diagnosis.checks
    text = f"{pluralize(len(checks.passed), 'check')} passed"
    untested = [check for check in checks.not_testable if check.kind != "note"]
    fields = [
        name.strip("` ").replace("_", " ")
        for check in untested
        if check.is_missing
        for name in check.field.split(",")
    ]
    if fields:
        listed = ", ".join(dict.fromkeys(fields))
        text += f"; not tested: {listed} (not in the file)"
    if num := sum(not check.is_missing for check in untested):
        verb = "is" if num == 1 else "are"
        text += f"; {num} more {verb} not testable (`rd.check` says why)"
    return f"{text}."


def _advise_on_level(diagnosis: Diagnosis) -> str:
    level, usual = diagnosis.level, diagnosis.reference
    kind = f"{usual.meaning}{' (assumed)' if diagnosis.kind_is_assumed else ''}"
    text = f"Up to {usual.usual:.2g} nat is usual for {kind}"
    if usual.basis:
        text += f", {usual.basis}"
    text += "."
    if np.isfinite(level.low):
        interval = f"{level.low:.2g} to {level.high:.2g} nat"
        text += f" The 95 % interval of the mean is {interval}."
    if usual.is_drift:
        text += (
            " Before the first update both are of one engine: a difference may then be"
            " that of the shape of its batches (micro-batches, packing)."
        )
    if _verdict_on_level(diagnosis) == "healthy":
        return f"{text} {_describe_checks(diagnosis)}"
    if usual.is_drift:
        return (
            f"{text} Next: compare the share of clipped tokens per round"
            ' (`metric="clip_share"`), and the learning rate and the number of updates'
            " of a step."
        )
    named = next(
        (finding for finding in diagnosis if finding.kind in ("level", "place")), None
    )
    if named is not None:
        text += f" {_name(named)}"
    return (
        f"{text} Next: pass a batch known to be sound as `healthy=`, or name the kind"
        " of run as `kind=`."
    )
