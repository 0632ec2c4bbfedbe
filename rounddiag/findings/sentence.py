"""The diagnosis in words: what differs and where; how sure the cause is; what next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.findings.causes import CAUSES, family
from rounddiag.findings.level import MIN_SAMPLES
from rounddiag.findings.place import FACTOR_2
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag._typing import Array
    from rounddiag.findings.diagnosis import Diagnosis
    from rounddiag.findings.finding import Finding
    from rounddiag.findings.place import Place
    from rounddiag.findings.view import View

# Fewer large diffs are no headline: the ratio is.
_MIN_LARGE = 5
# All large diffs are in a place if at least this share is; "all" from the second on.
_MOST, _ALL = 0.9, 0.995
_PROBABLE, _NAMED = 0.5, 0.1
# The large diffs are the story if they hold this part of the sum of |diff|.
_HELD = 0.5
# A level this near to the end of its range is said to be near it.
_NEAR = 1.15


def describe_place(where: Mapping[str, Any], indices: Array, view: View) -> str:
    """Return what differs, and where, as a clause.

    Examples
    --------
    A finding at 341 tokens reads "341 tokens differ by more than a factor of 2: all
    coordinates, rank 3, from round 5 on, in 8 of 128 samples".
    """
    if "fact" in where:
        return str(where["fact"])
    total = int((view.num_per_sample > 0).sum())
    place: Place | None = where.get("found")
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
        scope = _samples(len(samples), total, is_found=len(indices) < len(view))
        return ", ".join(filter(None, [*clauses, scope]))
    scope = _samples(place.num_samples, total)
    if num_large >= _MIN_LARGE and num_large >= _MOST * all_large:
        every = "all " if num_large >= _ALL * all_large else f"{num_large:,} of them "
        head = f"{pluralize(all_large, 'token')} differ by more than a factor of 2: "
        return ", ".join(filter(None, [f"{head}{every}{place.text}", scope]))
    ratio = f"{place.ratio:.0f}" if place.ratio >= _ALL * 10 else f"{place.ratio:.1f}"
    head = (
        f"{pluralize(place.num_tokens, 'token')} differ {ratio} times as much as "
        f"equally likely ones: {place.text}"
    )
    return ", ".join(filter(None, [head, scope]))


def _tokens(indices: Array, num_large: int, view: View) -> list[str]:
    if not len(indices):
        return ["no single tokens stand out"]
    if not view.abs_diff[indices].any():
        return [f"{pluralize(len(indices), 'token')} have equal log-probs"]
    if num_large >= _MIN_LARGE:
        return [f"{pluralize(num_large, 'token')} differ by more than a factor of 2"]
    if len(indices) == len(view):
        mean = float(view.abs_diff.mean())
        return [f"all tokens are affected: they differ by {mean:.2g} nat on average"]
    mean = float(view.abs_diff[indices].mean())
    return [f"{pluralize(len(indices), 'token')} differ by {mean:.2g} nat on average"]


def _conditions(where: Mapping[str, Any]) -> list[str]:
    """Return the conditions that a detector knows, in words."""
    onset, found = where.get("onset"), []
    if onset is not None:
        found.append(f"from round {onset.round} on")
        if onset.low != onset.high:
            found[-1] += f" ({onset.interval})"
    elif where.get("images_from") is not None:
        found.append("after the first image")
    if "column" in where and "value" in where:
        name = str(where["column"]).replace("_", " ")
        found.append(f"{name} {where['value']}")
    return found


def _samples(num: int, total: int, *, is_found: bool = True) -> str:
    if not 0 < num < total or not is_found:
        return ""
    return f"in {num:,} of {pluralize(total, 'sample')}"


def write_headline(diagnosis: Diagnosis) -> str:
    """Return what differs and where, as one sentence."""
    level = diagnosis.level
    if diagnosis.verdict == "not_measurable":
        return f"The mismatch cannot be measured: {diagnosis.reason}."
    is_drift = diagnosis.reference.is_drift
    if diagnosis.verdict == "identical":
        reason = "no update yet" if is_drift else "true on-policy training"
        return (
            f"All {level.num_tokens:,} tokens have bitwise equal log-probs: {reason}, "
            "or a copy."
        )
    certain = [one for one in diagnosis if one.is_certain]
    if certain:
        text = certain[0].location
        return f"{text[:1].upper()}{text[1:]}."
    noise = "Drift within the step" if is_drift else "Noise"
    openings = {"healthy": noise, "noisy": f"{noise} above the usual range"}
    opening = openings.get(diagnosis.verdict, f"More than {noise.lower()}")
    mean = f"mean |diff| is {level.mean_abs_diff:.2g} nat"
    if level.num_samples < MIN_SAMPLES:
        number = {1: "one sample"}.get(
            level.num_samples, f"{level.num_samples} samples"
        )
        return f"{opening}: {mean}, and {number} cannot be compared with others."
    if diagnosis.verdict == "healthy":
        return f"{opening}: {mean}, and no place stands out."
    return f"{opening}: {mean} in all rounds and samples; no place stands out."


def write_advice(diagnosis: Diagnosis) -> str:
    """Return how sure the cause is, what is usual, and the next step."""
    if diagnosis.verdict == "not_measurable":
        return ""
    if diagnosis.verdict == "identical":
        return f"Next: {diagnosis[0].next_step}" if len(diagnosis) else ""
    certain = [one for one in diagnosis if one.is_certain]
    if not certain:
        return _advise_on_level(diagnosis)
    first = certain[0]
    parts = [_probable(first)]
    others = [one for one in certain[1:] if one.cause not in (first.cause, "unknown")]
    if others:
        parts.append(f"Also {', '.join(CAUSES.get(o.cause, o.cause) for o in others)}.")
    elif len(certain) > 1:
        parts.append(f"{pluralize(len(certain) - 1, 'more place')} beside it.")
    unrelated = first.where.get("not_with", ())
    if unrelated:
        parts.append(f"It does not follow {_either(unrelated)}.")
    parts += [near] if (near := _near_limit(diagnosis).strip()) else []
    if first.next_step:
        parts.append(f"Next: {first.next_step}")
    return " ".join(parts)


def _either(names: Sequence[str]) -> str:
    listed = ", ".join(names[:-1])
    return f"{listed} or {names[-1]}" if listed else names[-1]


def _probable(finding: Finding) -> str:
    """Return the causes with their probabilities, or their family."""
    named = finding.causes.drop("unknown", errors="ignore")
    named = named[named >= _NAMED]
    listed = [
        f"{CAUSES.get(str(cause), str(cause).replace('_', ' '))} ({value:.0%})"
        for cause, value in named.head(2).items()
    ]
    if not listed:
        return "No known cause fits."
    if finding.confidence >= _PROBABLE and finding.cause != "unknown":
        return f"Probably {', or '.join(listed)}."
    families = finding.causes.groupby(
        [family(str(one)) for one in finding.causes.index]
    )
    best = families.sum().drop("", errors="ignore")
    name, value = str(best.idxmax()), float(best.max())
    if value >= _PROBABLE:
        return f"Probably {name} ({value:.0%}): {', or '.join(listed)}."
    return f"No known cause fits well; the nearest is {listed[0]}."


def _near_limit(diagnosis: Diagnosis) -> str:
    """Say which verdict the batch would nearly have."""
    near = {diagnosis.at_limits(factor) for factor in (1 / _NEAR, _NEAR)}
    others = sorted(near - {diagnosis.verdict})
    return f" It is close to {_either(others)}." if others else ""


def _advise_on_level(diagnosis: Diagnosis) -> str:
    level, usual = diagnosis.level, diagnosis.reference
    kind = f"a {usual.meaning}{' (assumed)' if diagnosis.kind_is_assumed else ''}"
    text = f"Up to {usual.usual:.2g} nat is usual for {kind}"
    if np.isfinite(level.low):
        text += f"; the 95 % interval is {level.low:.2g} to {level.high:.2g}"
    text += "." + _near_limit(diagnosis)
    if usual.is_drift:
        if diagnosis.verdict != "healthy":
            text += (
                " Next: compare the share of clipped tokens per round"
                ' (`metric="clip_share"`), and the learning rate and the number of'
                " updates of a step."
            )
        return text
    likely = [one for one in diagnosis if one.cause != "unknown"]
    if diagnosis.verdict != "healthy" and likely:
        text += f" {_probable(likely[0])}"
    if diagnosis.verdict != "healthy":
        text += (
            " Next: pass a batch known to be sound as `healthy=`, or name the kind of "
            "run as `kind=`."
        )
    return text
