"""`image_window`, `dropped_image`, `context_masked`: one engine read less context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Alternative, Evidence, Measure
from rounddiag.findings.level import clustered_mean
from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.pattern_candidates import onset
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.pattern_candidates import Pattern
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
    has_images = view.has_images
    first = onset(pattern.cells, pattern.gap)
    if pattern.family != "slope" and first > 1:
        first = min(first, int(view.round[pattern.tokens].min()))
    tokens = view.round >= first
    others: tuple[Alternative, ...]
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
            f"From round {first} on the mean |diff| is {inside:.3g} nat, before"
            f" {outside:.3g}: {pattern.ratio:.3g} times as large for tokens that are"
            f" equally likely, in all samples: {meaning}."
        ),
        alternatives=others,
        next_step=step,
    )


def _score(pattern: Pattern) -> float:
    return float(min(0.6 + abs(pattern.gap) / 5, 0.95))


# All tokens of a batch with images are off, and old is below rollout on balance.
MIN_BALANCE = 0.45
MIN_Z = 5.0
LARGE = 3.0
_NO_PLACE = (
    Alternative(
        cause="image_expansion",
        would_tell="Record the engine's prompt length and image tokens of each round.",
    ),
    Alternative(
        cause="position_ids", would_tell="Save the position ids of both engines."
    ),
    Alternative(
        cause="prompt_mismatch",
        would_tell="Compare the engine's prompt ids with the saved ones.",
    ),
    Alternative(
        cause="stale_cache", would_tell="Record image hashes and encoder versions."
    ),
    Alternative(
        cause="wrong_image",
        would_tell="Score some rows with their neighbours' images.",
    ),
)


@register("dropped_image", stage="level")
def dropped_image(view: View) -> Evidence | None:
    """Find a batch with images in which old is below rollout throughout."""
    if not view.has_images or view.fitted is not None:
        return None
    chosen = view.uncertain
    if not chosen.any():
        return None
    d = np.clip(view.d[chosen], -LARGE, LARGE)
    balance = -float(d.sum() / max(np.abs(d).sum(), 1e-300))
    mean, error = clustered_mean(d, view.sample[chosen])
    if balance < MIN_BALANCE or -mean < MIN_Z * error:
        return None
    return Evidence(
        score=float(min(0.68 + balance / 2, 0.93)),
        tokens=np.ones(len(view), dtype=bool),
        measures=(
            Measure(name="share of |diff| that is negative", value=(1 + balance) / 2),
            Measure(
                name="mean diff",
                value=mean,
                unit="nat",
                low=mean - 1.96 * error,
                high=mean + 1.96 * error,
            ),
        ),
        explanation=(
            f"`{view.a}` finds the text less likely from the first token on "
            f"({mean:.3g} nat on average), in a batch with images: consistent with "
            "images that it did not see as the sampler did."
        ),
        alternatives=_NO_PLACE,
        next_step=(
            "Score 8 rows without images. If `old` does not change, the trainer never "
            "saw them; else compare image token counts and position ids."
        ),
    )
