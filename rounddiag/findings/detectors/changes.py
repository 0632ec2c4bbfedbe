"""|diff| that changes along a sample: growing, decaying, or from one token on.

A slope: `position_ids`, `model_mismatch`, `prompt_mismatch`. A step: other weights, a
decode path, the length limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.causes import list_alternatives
from rounddiag.findings.excess import decoding_step
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.pattern import at_limit, is_power, strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag._typing import Array
    from rounddiag.findings.pattern_candidates import Pattern
    from rounddiag.findings.view import View


# A layer that computes differently looks like a layer with other weights.
WEIGHTS = ("stale_weights", "sync_broken", "lora_mismatch")


@register("position_ids")
def slopes(view: View) -> Iterator[Evidence]:
    """Find |diff| that grows, or decays, with the decoding step."""
    if view.is_fitted:
        return  # a fitted effect leaves slopes of its own
    has_images = view.has_images
    others: tuple[str, ...]
    for pattern in strong_patterns(view, "slope"):
        if pattern.where["rises"] and pattern.where["is_flat"]:
            continue  # begins after the first round: lost context, not positions
        rises, follows = pattern.where["rises"], pattern.where["follows"]
        if follows != "position":
            cause, others = "stale_cache", ()
            meaning = f"|diff| grows with `{follows}`"
            step = "Reset the prefix cache after each weight update, and score again."
        elif rises:
            cause = "position_ids" if has_images else "model_mismatch"
            others = ("position_ids", *WEIGHTS)
            if has_images:
                others = ("model_mismatch", "dropped_image", "image_expansion")
            meaning = "|diff| grows with the position"
            step = (
                "Save the position ids of both engines and compare them from the first "
                "image on; compare the RoPE settings of both models."
            )
        else:
            yield fading_evidence(view, pattern)
            continue
        yield Evidence(
            cause=cause,
            score=float(min(0.5 + abs(pattern.gap) / 5, 0.85)),
            gain=pattern.worth,
            tokens=np.ones(len(view), dtype=bool),
            where={"follows": follows, "rises": rises},
            measures=(
                Measure(name="ratio over 80 % of the range", value=pattern.ratio),
                Measure(name="t, clustered by sample", value=pattern.t),
            ),
            explanation=(
                f"{meaning}, by a factor of {np.exp(abs(pattern.gap)):.3g} over the "
                "middle 80 % of tokens, in all samples."
            ),
            alternatives=list_alternatives(*others),
            next_step=step,
        )


def fading_evidence(view: View, pattern: Pattern) -> Evidence:
    """Return the evidence that |diff| is largest at the first tokens and decays."""
    others: tuple[str, ...] = ("stale_cache", "stale_weights")
    if view.has_images:
        others = (*others, "dropped_image", "position_ids", "image_expansion")
    return Evidence(
        cause="prompt_mismatch",
        score=float(min(0.5 + abs(pattern.gap) / 5, 0.85)),
        gain=pattern.worth,
        tokens=np.ones(len(view), dtype=bool),
        where={"follows": "position", "rises": False},
        measures=(
            Measure(name="ratio of the first tokens", value=np.exp(abs(pattern.gap))),
            Measure(name="t, clustered by sample", value=pattern.t),
        ),
        explanation=(
            "|diff| is largest at the first tokens and decays, by a factor of "
            f"{np.exp(abs(pattern.gap)):.3g}, in all samples."
        ),
        alternatives=list_alternatives(*others),
        next_step=(
            "Compare the engine's prompt ids with the saved ones: a second BOS, a "
            "system prompt, another template."
        ),
    )


# A step within this many generated tokens is the start of a decay.
FADES = 8
# A smaller share of all tokens is the start of the responses, not other weights.
MIN_BEFORE = 0.29
# In a decay, |diff| falls by this part of the gap between the first and the second half
# of the tokens before the step.
FALL = 0.35
# Share of a group's samples that are affected, and of the affected samples that are in
# such groups.
MOST = 0.75


@register("mixed_weights")
def mixed_weights(view: View) -> Iterator[Evidence]:
    """Find samples that differ from one decoding step on."""
    for pattern in strong_patterns(view, "step"):
        if is_power(pattern):
            yield _rounded_positions_evidence(pattern)
            continue
        if at_limit(view, pattern.tokens):
            yield truncation_evidence(view, pattern)
            continue
        place, unit = pattern.where["place"], pattern.where["unit"]
        if place <= FADES:
            continue  # only the first tokens differ from the others: no switch
        is_short = pattern.tokens.mean() < MIN_BEFORE
        if not pattern.where["is_after"] and (is_short or _fades(pattern)):
            yield fading_evidence(view, pattern)
            continue
        side = "from" if pattern.where["is_after"] else "up to"
        yield _change(
            view,
            pattern,
            "mixed_weights",
            f"{side} {place} {unit}, in all samples that get there",
            ("stale_cache", "decode_path"),
        )
    for pattern in strong_patterns(view, "change"):
        if at_limit(view, pattern.tokens):
            yield truncation_evidence(view, pattern)
            continue
        samples = np.asarray(pattern.where["samples"])
        whole = _in_whole_groups(view, samples)
        cause = "decode_path" if whole else "mixed_weights"
        others = ("mixed_weights" if whole else "decode_path", "stale_cache")
        scope = f"in {len(samples)} samples"
        scope += ", whole groups of them" if whole else ""
        yield _change(
            view, pattern, cause, f"{scope}, each from a different token on", others
        )


def _in_whole_groups(view: View, samples: Array) -> bool:
    """Return whether most of the samples are nearly all of their groups."""
    group = view.facts.group
    if group is None:
        return False
    num = np.bincount(group)
    hit = np.bincount(group[samples], minlength=len(num))
    whole = (num > 1) & (hit >= MOST * num)
    return bool(hit[whole].sum() >= MOST * len(samples)) and not whole.all()


def _fades(pattern: Pattern) -> bool:
    """Return whether |diff| decays before the step, and does not drop at it."""
    cells, inside = pattern.cells, pattern.inside
    step = decoding_step(cells.view)[cells.first]
    weight = np.where(inside, cells.num, 0.0)
    order = np.argsort(step, kind="stable")
    half = np.zeros(len(step), dtype=bool)
    half[order] = np.cumsum(weight[order]) <= weight.sum() / 2
    first, second = inside & half, inside & ~half
    if not first.any() or not second.any():
        return False
    fall = cells.mean_excess(first) - cells.mean_excess(second)
    return bool(fall > FALL * pattern.gap)


def _rounded_positions_evidence(pattern: Pattern) -> Evidence:
    place = pattern.where["place"]
    return Evidence(
        cause="position_ids",
        score=float(min(0.6 + abs(pattern.gap) / 5, 0.93)),
        gain=pattern.worth,
        tokens=pattern.tokens,
        where=dict(pattern.where),
        measures=(
            Measure(name="first position", value=place),
            Measure(name="ratio for equally likely tokens", value=pattern.ratio),
            Measure(name="t, clustered by sample", value=pattern.t),
        ),
        explanation=(
            f"|diff| is {pattern.ratio:.3g} times as large from context position "
            f"{place} on, a power of two: consistent with position ids that went "
            "through bfloat16."
        ),
        alternatives=list_alternatives("model_mismatch", "mixed_weights"),
        next_step=(
            "Keep position ids in int64 from the processor to the model, and save them "
            "with the batch."
        ),
    )


def _change(
    view: View,
    pattern: Pattern,
    cause: str,
    place: str,
    others: tuple[str, ...],
) -> Evidence:
    tokens = pattern.tokens
    inside, outside = view.abs[tokens].mean(), view.abs[~tokens].mean()
    steps = {
        "mixed_weights": "Record the weight version of each round; score the tail with "
        "the weights of the step before and of this one.",
        "decode_path": "Score 16 of these rows with the sampler by prefill "
        "(prompt_logprobs). If that agrees with old, its decode path is wrong.",
    }
    return Evidence(
        cause=cause,
        score=float(min(0.6 + abs(pattern.gap) / 5, 0.93)),
        gain=pattern.worth,
        tokens=tokens,
        where=dict(pattern.where),
        measures=(
            Measure(name="mean |diff| from there", value=float(inside), unit="nat"),
            Measure(name="mean |diff| before", value=float(outside), unit="nat"),
            Measure(name="ratio for equally likely tokens", value=pattern.ratio),
            Measure(name="t, clustered by sample", value=pattern.t),
        ),
        explanation=(
            f"The mean |diff| is {inside:.3g} nat {place} and {outside:.3g} nat before:"
            f" {pattern.ratio:.3g} times as large for tokens that are equally likely."
        ),
        alternatives=list_alternatives(*others),
        next_step=steps[cause],
    )


@register("truncated_round")
def truncated_round(view: View) -> Iterator[Evidence]:
    """Find the last tokens of the longest samples."""
    for pattern in strong_patterns(view, "limit"):
        yield truncation_evidence(view, pattern)


def truncation_evidence(view: View, pattern: Pattern) -> Evidence:
    """Return the evidence that the ends of the longest samples are off."""
    tokens = pattern.tokens
    samples = np.unique(view.sample[tokens])
    return Evidence(
        cause="truncated_round",
        score=float(min(0.6 + abs(pattern.gap) / 5, 0.9)),
        gain=pattern.worth,
        tokens=tokens,
        where={"samples": samples},
        measures=(
            Measure(name="ratio for equally likely tokens", value=pattern.ratio),
            Measure(name="samples at the limit", value=len(samples)),
        ),
        explanation=(
            f"|diff| is {pattern.ratio:.3g} times as large in the last tokens of "
            f"{len(samples)} samples that reach the length limit."
        ),
        next_step="Compare how each engine treats the tokens at the length limit.",
    )
