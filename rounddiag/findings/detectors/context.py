"""`image_window`, `dropped_image`, `context_masked`: one engine saw less context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.causes import list_alternatives
from rounddiag.findings.detectors.changes import WEIGHTS
from rounddiag.findings.excess import ExcessCells
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.level import clustered_mean
from rounddiag.findings.onset import Onset, onset, steps_at_rounds
from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.pattern_candidates import Pattern
    from rounddiag.findings.view import View


@register("image_window")
def image_window(view: View) -> Iterator[Evidence]:
    """Find a step at one round, in all samples."""
    for pattern in steps_at_rounds(view):
        yield _step(view, pattern)
    for pattern in strong_patterns(view, "image"):
        if pattern.where["images_from"] == 1:
            yield _dropped_image_evidence(view, pattern)


def _step(view: View, pattern: Pattern) -> Evidence:
    change = onset(pattern)
    first = change.round
    tokens = view.round >= first
    cause, others, meaning, step = _interpret_step(view, pattern, change)
    inside, outside = change.after, change.before
    return Evidence(
        cause=cause,
        score=_score(pattern),
        gain=pattern.worth,
        tokens=tokens,
        where={"rounds_from": first, "onset": change},
        measures=(
            Measure(name="first round", value=first, low=change.low, high=change.high),
            Measure(name="mean |diff| from there", value=inside, unit="nat"),
            Measure(name="mean |diff| before", value=outside, unit="nat"),
            Measure(name="ratio for equally likely tokens", value=pattern.ratio),
            Measure(name="t, clustered by sample", value=pattern.t),
        ),
        explanation=(
            f"From round {first} on the mean |diff| is {inside:.3g} nat, before"
            f" {outside:.3g}: {pattern.ratio:.3g} times as large for tokens that are"
            f" equally likely, in all samples: {meaning}."
        ),
        alternatives=list_alternatives(*others),
        next_step=step,
    )


def _interpret_step(
    view: View, pattern: Pattern, change: Onset
) -> tuple[str, tuple[str, ...], str, str]:
    """Return the cause of a step at a round, what else it may be, and the next step."""
    first, has_images = change.round, view.has_images
    if not _is_sound_before(view, pattern, change):
        others: tuple[str, ...] = ("position_ids", *WEIGHTS)
        if has_images:
            others = ("model_mismatch", "dropped_image", "image_expansion")
        meaning = (
            "the rounds before differ too, so this is consistent with positions or a "
            "model that differ from the start"
        )
        step = (
            "Save the position ids of both engines and compare them; compare the RoPE "
            "settings of both models."
        )
        cause = "position_ids" if has_images else "model_mismatch"
        return cause, (*others, "context_masked", "retokenised"), meaning, step
    if has_images and first > 1:
        meaning = (
            f"consistent with a window of {first} images, or older images that one "
            "engine no longer sees"
        )
        step = (
            "Score one late round with the last k images only: the k that reproduces "
            "`old` is the window. Record the image count of each engine's request."
        )
        others = ("dropped_image", "context_masked", "retokenised", "mixed_weights")
        return "image_window", others, meaning, step
    meaning = "consistent with observations that one engine does not attend to"
    step = (
        f"Score round {first} with the tool results removed. If that equals `old`, "
        "they are masked out of attention."
    )
    images = ("image_window", "dropped_image") if has_images else ()
    others = (*images, "retokenised", "mixed_weights")
    return "context_masked", others, meaning, step


# Lost context multiplies the |diff| of equally likely tokens by at least exp of this,
# where it leaves the usual range. With other positions or another model, |diff| grows
# more slowly.
MIN_STEP = 0.95
# A smaller step is lost context if |diff| grows with the position after it, as more is
# lost, but not before it. Growth is in standard errors, clustered by sample.
MIN_FLAT_STEP, GROWTH = 0.5, 1.5


def _is_sound_before(view: View, pattern: Pattern, change: Onset) -> bool:
    """Return whether the rounds before the onset are normal and the step is sharp."""
    is_sharp = pattern.gap > MIN_STEP
    if change.before > (view.usual.limit if is_sharp else view.usual.usual):
        return False
    is_late = view.has_images and change.round > 1
    if is_sharp or change.after <= view.usual.usual or is_late:
        return True
    before = view.round < change.round
    early, late = (_growth(view.keep(tokens)) for tokens in (before, ~before))
    is_later = view.round.max() > change.round
    return (
        pattern.gap > MIN_FLAT_STEP
        and early < GROWTH
        and (late > GROWTH or not is_later)
    )


def _growth(view: View) -> float:
    """Return how |diff| grows with the position, in standard errors."""
    cells = ExcessCells.from_view(view)
    return cells.slope(cells.view.position[cells.first].astype(float)).t


def _dropped_image_evidence(view: View, pattern: Pattern) -> Evidence:
    """Return the evidence that tokens differ once an image is in their context."""
    tokens = pattern.tokens
    inside, outside = (float(view.abs[one].mean()) for one in (tokens, ~tokens))
    return Evidence(
        cause="dropped_image",
        score=_score(pattern),
        gain=pattern.worth,
        tokens=tokens,
        where={"images_from": 1},
        measures=(
            Measure(name="mean |diff| with images", value=inside, unit="nat"),
            Measure(name="mean |diff| without images", value=outside, unit="nat"),
            Measure(name="ratio for equally likely tokens", value=pattern.ratio),
            Measure(name="t, clustered by sample", value=pattern.t),
        ),
        explanation=(
            f"The mean |diff| is {inside:.3g} nat at tokens with an image in their "
            f"context and {outside:.3g} at those without: consistent with images that "
            "one engine did not see, or saw differently."
        ),
        alternatives=list_alternatives(*_NO_PLACE),
        next_step=_WITHOUT,
    )


def _score(pattern: Pattern) -> float:
    return float(min(0.6 + abs(pattern.gap) / 5, 0.95))


# In a batch with images where all tokens differ, old is below rollout by more than a
# normally distributed diff of this size. Since tokens are drawn from the sampler, such
# a diff has a mean of half its variance: a balance of 0.63 times its root mean square.
MIN_BALANCE = 0.45
NORMAL, FACTOR = 0.63, 1.5
MIN_Z = 5.0
LARGE = 3.0
_WITHOUT = (
    "Score 8 rows without images. If `old` does not change, the trainer never saw "
    "them; else compare image token counts and position ids."
)
_NO_PLACE = (
    *("image_window", "image_expansion", "position_ids"),
    *("prompt_mismatch", "stale_cache", "wrong_image"),
)


@register("dropped_image", stage="level")
def dropped_image(view: View) -> Evidence | None:
    """Find a batch with images in which old is below rollout throughout."""
    if not view.has_images or view.is_fitted:
        return None
    chosen = view.uncertain
    if not chosen.any():
        return None
    d = np.clip(view.d[chosen], -LARGE, LARGE)
    balance = -float(d.sum() / max(np.abs(d).sum(), 1e-300))
    mean, error = clustered_mean(d, view.sample[chosen])
    least = max(MIN_BALANCE, FACTOR * NORMAL * float(np.sqrt((d**2).mean())))
    if balance < least or -mean < MIN_Z * error:
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
            f"`{view.a}` assigns lower probability to the text from the first token on "
            f"({mean:.3g} nat on average), in a batch with images: consistent with "
            "images that it did not see, or saw differently from the sampler."
        ),
        alternatives=list_alternatives(*_NO_PLACE),
        next_step=_WITHOUT,
    )
