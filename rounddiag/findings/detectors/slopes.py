"""`position_ids`, `model_mismatch`, `prompt_mismatch`: |diff| grows or decays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.causes import list_alternatives
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

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
            alternatives=list_alternatives(*others),
            next_step=step,
        )


def fading(view: View, pattern: Pattern) -> Evidence:
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
