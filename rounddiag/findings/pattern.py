"""Which patterns of places are strong: thresholds by family, and how they compete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.excess import ENDS, ExcessCells

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

from rounddiag.findings.pattern_candidates import (
    MIN_TOKENS,
    POWERS,
    VERSIONS,
    Pattern,
    patterns,
)

# Thresholds of a place pattern: the smallest gap (its exp is a ratio), and the worth in
# nats. Healthy batches of the bench stay below.
THRESHOLDS: dict[str, tuple[float, float]] = {
    "round": (0.5, 14.0),
    "image": (0.5, 14.0),
    "step": (0.5, 16.0),
    "power": (0.5, 16.0),
    "until": (0.28, 28.0),
    "slope": (0.65, 16.0),
    "fall": (0.35, 18.0),
    "column": (0.35, 12.0),
    "version": (0.22, 15.0),
    "block": (0.4, 13.0),
    "groups": (0.4, 20.0),
    "rows": (0.55, 20.0),
    "period": (0.35, 10.0),
    "change": (0.8, 30.0),
    "round_start": (0.5, 12.0),
    "limit": (1.0, 12.0),
}
MIN_T = 5.0
FAR_GAP = 1.4  # of some samples: inside is 4 times as large
SHARED_GAP = 0.8  # of rounds and steps of all samples
# A fault of all samples does not single out a rank, a pack or a block of neighbours.
# With this many standard errors it is a further fault, whatever the level of the
# others.
_CHOSEN = ("column", "block", "period")
SURE_T = 12.0
# A slope that explains this part of what a step explains is the simpler pattern.
STEADY = {"step": 0.75, "until": 0.86, "power": 1.0, "round": 0.9, "image": 0.9}
# A round or a power of two that explains a step nearly as well is preferred, and so is
# a period to samples chosen one by one.
SAME_ROUND = 0.85
LOWER = 0.7


def strong_patterns(view: View, *families: str) -> list[Pattern]:
    """Return the patterns of these families that are unlikely by chance."""
    found = _patterns(view)
    slope = max((one.worth for one in found if one.family == "slope"), default=0.0)
    by_step = max((one.worth for one in found if one.family == "step"), default=0.0)
    by_power = max((one.worth for one in found if is_power(one)), default=0.0)
    by_round = max(
        (one.worth for one in found if one.family in ("round", "image")), default=0.0
    )
    by_period = max((one.worth for one in found if one.family == "period"), default=0.0)
    # A level above the usual is not noise: less is needed to locate it.
    is_high = float(view.abs.mean()) > view.usual.usual if len(view) else False
    return [
        one
        for one in found
        if one.family in families
        and _is_strong(one, LOWER if is_high and _is_shared(one) else 1.0)
        and _spares_others(view, one)
        and slope < STEADY.get(_kind(one), np.inf) * one.worth
        and not (
            one.family == "step"
            and not is_power(one)
            and one.where["is_after"]
            and by_round > SAME_ROUND * one.worth
        )
        and not (
            one.family == "step"
            and one.where["is_after"]
            and not is_power(one)
            and by_power > SAME_ROUND * one.worth
        )
        and not (one.family == "change" and by_step > SAME_ROUND * one.worth)
        and not (one.family == "rows" and by_period > SAME_ROUND * one.worth)
        and not (one.family == "limit" and max(slope, by_round) > one.worth)
    ]


def is_power(pattern: Pattern) -> bool:
    """Return whether it begins at a context position from which bfloat16 is coarser."""
    where = pattern.where
    return (
        pattern.family == "step"
        and bool(where["is_after"])
        and where["unit"] == "context positions"
        and where["place"] in POWERS
    )


def _is_shared(pattern: Pattern) -> bool:
    """Return whether a pattern concerns all samples."""
    return pattern.family in ("round", "image", "step", "slope")


def _kind(pattern: Pattern) -> str:
    """Return the family by which a pattern is judged."""
    family = pattern.family
    if family == "column" and VERSIONS.search(str(pattern.where["column"])):
        return "version"
    if family == "slope" and not pattern.where["rises"]:
        return "fall"
    if family == "step" and not pattern.where["is_after"]:
        return "until"
    return "power" if is_power(pattern) else family


def _is_strong(pattern: Pattern, factor: float) -> bool:
    gap, worth = THRESHOLDS[_kind(pattern)]
    return (
        abs(pattern.t) > MIN_T
        and abs(pattern.gap) > factor * gap
        and pattern.worth > factor * worth
    )


def _spares_others(view: View, pattern: Pattern) -> bool:
    """Return whether tokens outside are within the limit, or far below those inside."""
    large = SHARED_GAP if _is_shared(pattern) else FAR_GAP
    if pattern.family == "step" and not pattern.where["is_after"]:
        large = FAR_GAP
    if pattern.family == "slope" or pattern.gap > large:
        return True
    if pattern.family in _CHOSEN and pattern.t > SURE_T:
        return True
    outside = ~pattern.tokens
    return bool(view.abs[outside].mean() <= view.usual.limit)


def _patterns(view: View) -> tuple[Pattern, ...]:
    if "patterns" not in view.memo:
        found: tuple[Pattern, ...] = ()
        if len(view) >= MIN_TOKENS and view.abs.any():
            found = tuple(patterns(ExcessCells.from_view(view)))
        view.memo["patterns"] = found
    kept: tuple[Pattern, ...] = view.memo["patterns"]
    return kept


def at_limit(view: View, tokens: Array, part: float = 0.9) -> bool:
    """Return whether most tokens are the last ones of samples of maximum length."""
    lengths = view.batch.lengths.cpu().numpy()
    longest = lengths >= 0.98 * lengths.max()
    if not 1 < longest.sum() < len(lengths) or not tokens.any():
        return False
    left = lengths[view.sample[tokens]] - view.position[tokens]
    near = longest[view.sample[tokens]] & (left <= 2 * ENDS[-1])
    return bool(near.mean() > part)
