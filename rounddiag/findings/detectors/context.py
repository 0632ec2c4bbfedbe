"""Steps of |diff| at a round, or at the first image, in all samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.findings.finding import Evidence, contrast_measures
from rounddiag.findings.onset import onset, steps_at_rounds
from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.pattern_candidates import Pattern
    from rounddiag.findings.view import View


@register("context_masked")
def steps_of_rounds(view: View) -> Iterator[Evidence]:
    """Find a step at one round, in all samples."""
    for pattern in steps_at_rounds(view):
        yield _step(view, pattern)


def _step(view: View, pattern: Pattern) -> Evidence:
    change = onset(pattern)
    first = change.round
    return Evidence(
        score=1.0,
        gain=pattern.worth,
        tokens=view.round >= first,
        where={"rounds_from": first, "onset": change},
        measures=contrast_measures(pattern, change.after, change.before),
        explanation=(
            f"From round {first} on the mean |diff| is {change.after:.3g} nat, before"
            f" {change.before:.3g}: {pattern.ratio:.3g} times as large for tokens that "
            "are equally likely, in all samples."
        ),
    )


@register("dropped_image")
def steps_at_images(view: View) -> Iterator[Evidence]:
    """Find tokens that differ once an image is in their context."""
    for pattern in strong_patterns(view, "image"):
        if pattern.where["images_from"] != 1:
            continue
        tokens = pattern.tokens
        inside, outside = (float(view.abs[one].mean()) for one in (tokens, ~tokens))
        yield Evidence(
            score=1.0,
            gain=pattern.worth,
            tokens=tokens,
            where={"images_from": 1},
            measures=contrast_measures(pattern, inside, outside),
            explanation=(
                f"The mean |diff| is {inside:.3g} nat at tokens with an image in their "
                f"context and {outside:.3g} at those without."
            ),
        )
