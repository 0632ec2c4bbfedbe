"""`position_ids`, `model_mismatch`, `prompt_mismatch`: |diff| grows or decays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Alternative, Evidence, Measure
from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.pattern_candidates import Pattern
    from rounddiag.findings.view import View

_CACHE = Alternative(
    cause="stale_cache",
    would_tell="Record cached tokens a round; reset the prefix cache and score again.",
)
_DROPPED = Alternative(
    cause="dropped_image",
    would_tell="Score without images: if old does not change, it never saw them.",
)
_MODEL = Alternative(
    cause="model_mismatch",
    would_tell="Score 8 rows with transformers in float32, at step 0.",
)
_STALE = Alternative(
    cause="stale_weights",
    would_tell="Save step 0 and a later step.",
)
# A layer that computes otherwise is a layer with other weights.
WEIGHTS = (
    _STALE,
    Alternative(cause="sync_broken", would_tell="A checksum by layer after the sync."),
    Alternative(cause="lora_mismatch", would_tell="Score with the adapter merged."),
)
_EXPANSION = Alternative(
    cause="image_expansion",
    would_tell="Record the engine's prompt length of each round.",
)
_POSITIONS = Alternative(
    cause="position_ids",
    would_tell="Save the position ids of both engines.",
)


@register("position_ids")
def slopes(view: View) -> Iterator[Evidence]:
    """Find |diff| that grows, or decays, with the decoding step."""
    if view.is_fitted:
        return  # what a fit leaves has slopes of its own
    has_images = view.has_images
    others: tuple[Alternative, ...]
    for pattern in strong_patterns(view, "slope"):
        if pattern.where["rises"] and pattern.where["is_flat"]:
            continue  # begins after the first round: less context, not positions
        rises, follows = pattern.where["rises"], pattern.where["follows"]
        if follows != "position":
            cause, others = "stale_cache", ()
            meaning = f"|diff| grows with `{follows}`"
            step = "Reset the prefix cache after each weight update, and score again."
        elif rises:
            cause = "position_ids" if has_images else "model_mismatch"
            others = (_POSITIONS, *WEIGHTS)
            if has_images:
                others = (_MODEL, _DROPPED, _EXPANSION)
            meaning = "|diff| grows with the position"
            step = (
                "Save the position ids of both engines and compare them from the first "
                "image on; compare the RoPE settings of both models."
            )
        else:
            yield fading(view, pattern)
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
            alternatives=others,
            next_step=step,
        )


def fading(view: View, pattern: Pattern) -> Evidence:
    """Return the evidence that |diff| is largest at the first tokens and decays."""
    others: tuple[Alternative, ...] = (_CACHE, _STALE)
    if view.has_images:
        others = (*others, _DROPPED, _POSITIONS, _EXPANSION)
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
        alternatives=others,
        next_step=(
            "Compare the engine's prompt ids with the saved ones: a second BOS, a "
            "system prompt, another template."
        ),
    )
