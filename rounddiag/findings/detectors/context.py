"""`image_window`, `dropped_image`, `context_masked`: one engine read less context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.findings.finding import Alternative, Evidence, Measure
from rounddiag.findings.pattern import onset, strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.pattern import Pattern
    from rounddiag.findings.view import View

_WINDOW = Alternative(
    cause="image_window",
    would_tell="Record the images that each engine saw, a round.",
)
_MASKED = Alternative(
    cause="context_masked",
    would_tell="Score one round with the tool results removed.",
)
_DROPPED = Alternative(
    cause="dropped_image",
    would_tell="Score without images: if old does not change, it never saw them.",
)
_TOKENS = Alternative(
    cause="retokenised",
    would_tell="Compare the engine's prompt ids of a later round with the saved ids.",
)
_MIXED = Alternative(
    cause="mixed_weights",
    would_tell="Record the weight version of each round.",
)


@register("image_window")
def image_window(view: View) -> Iterator[Evidence]:
    """Find a step at one round, in all samples."""
    for pattern in strong_patterns(view, "round", "image"):
        yield _step(view, pattern)
    if view.fitted is not None:
        return
    for pattern in strong_patterns(view, "slope"):
        if pattern.where["rises"] and pattern.where["is_flat"]:
            yield _step(view, pattern)


def _step(view: View, pattern: Pattern) -> Evidence:
    has_images = view.images is not None and bool((view.images > 0).any())
    first = onset(pattern.cells, pattern.gap)
    if pattern.family != "slope" and first > 1:
        first = min(first, int(view.round[pattern.tokens].min()))
    tokens = view.round >= first
    if has_images and first > 1:
        cause = "image_window"
        others = (_DROPPED, _MASKED, _TOKENS, _MIXED)
        meaning = (
            f"consistent with a window of {first} images, or older images that one "
            "engine no longer sees"
        )
        step = (
            "Score one late round with the last k images only: the k that reproduces "
            "`old` is the window. Record the image count of each engine's request."
        )
    else:
        cause = "context_masked"
        others = (_TOKENS, _MIXED)
        others = (_WINDOW, _DROPPED, *others) if has_images else others
        meaning = "consistent with observations that one engine does not attend to"
        step = (
            f"Score round {first} with the tool results removed. If that equals `old`, "
            "they are masked out of attention."
        )
    inside, outside = view.abs[tokens].mean(), view.abs[~tokens].mean()
    return Evidence(
        cause=cause,
        score=_score(pattern),
        gain=pattern.worth,
        tokens=tokens,
        where={"rounds_from": first},
        measures=(
            Measure(name="mean |diff| from there", value=float(inside), unit="nat"),
            Measure(name="mean |diff| before", value=float(outside), unit="nat"),
            Measure(name="ratio, of tokens as likely", value=pattern.ratio),
            Measure(name="t, clustered by sample", value=pattern.t),
        ),
        explanation=(
            f"From round {first} on |diff| is {pattern.ratio:.3g} times as large "
            f"({inside:.3g} against {outside:.3g} nat), in all samples: {meaning}."
        ),
        alternatives=others,
        next_step=step,
    )


def _score(pattern: Pattern) -> float:
    return float(min(0.6 + abs(pattern.gap) / 5, 0.95))
