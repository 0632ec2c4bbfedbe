"""`truncated_sampling`: the sampler's log-probs are of a truncated distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.grammar import MIN_ALONE, NEARLY_ALL
from rounddiag.findings.finding import Evidence
from rounddiag.findings.level import mean_of_sums
from rounddiag.findings.measure import Measure
from rounddiag.findings.noise import fitting_half
from rounddiag.findings.place import find_places
from rounddiag.findings.registry import register
from rounddiag.findings.view import LARGEST_DIFF
from rounddiag.wording import percent

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# Least missing mass, as a part of the sum of |diff|: (1 - kept) / -log(kept) for a
# sampler that keeps half of the mass. It is larger for one that keeps more; for one
# that keeps less, the sum of |diff| is hardly anything else.
MIN_MISSING = 0.5 / float(np.log(2))
# Conventions: 4 or 12 standard errors, 15 or 60 tokens and a share of 0.01 or 0.04
# change no answer of `tests.faults.bench --set`.
_MIN_Z = 8.0  # the missing mass, in its standard errors
_MIN_TOKENS = 30  # uncertain ones: fewer have no standard error to rely on
# Nats. Larger diffs count as this: exp(diff) of one would outweigh hundreds below 0.
LARGEST = 5.0
_TINY = 1e-300  # keeps divisions by 0 away


@register("truncated_sampling", kind="reversal")
def truncated_sampling(view: View) -> Evidence | None:
    """Find tokens whose mean of exp(diff) is below 1.

    Tokens are drawn from the sampler's distribution. The mean of exp(diff) over
    them is the trainer's mass where the sampler's is not 0: 1 for two complete
    distributions, and the kept mass if the sampler's was truncated.
    """
    mass = missing_mass(view)
    if mass is None:
        return None
    lost, error, missing = mass
    chosen = view.uncertain
    d = np.minimum(view.diff[chosen], LARGEST)
    # If truncation keeps a single token, its log-prob is exactly 0.
    alone = int(((view.log_prob_b == 0) & chosen).sum())
    if alone < MIN_ALONE * chosen.sum() and _may_lack_context(view, d):
        return None
    part_kept, bound = 1 - lost, np.exp(np.quantile(d, 0.01))
    return Evidence(
        tokens=chosen,
        effect=_lost,
        measures=(
            Measure(
                "kept mass",
                part_kept,
                low=part_kept - 1.96 * error,
                high=part_kept + 1.96 * error,
            ),
            Measure("part of |diff| that is missing mass", missing),
            Measure("smallest kept mass (1 %)", float(bound)),
            Measure("tokens with r exactly 0", alone, "tokens"),
        ),
        shown=(
            f"`{view.a}` gives the tokens {percent(lost)} less mass than `{view.b}` "
            "does, where two whole distributions have the same on average: consistent "
            f"with log-probs over {100 * part_kept:.3g} % of the mass, as top-p or "
            f"top-k leave (99 % of tokens keep more than {bound:.2f})."
        ),
        next_step=(
            "Set top_p = 1 and top_k = -1, or replay the kept ids in the trainer; with "
            "vLLM compare logprobs_mode raw and processed."
        ),
    )


def missing_mass(view: View) -> tuple[float, float, float] | None:
    """Return the mass that `a` lacks, its standard error, and its part of mean |diff|.

    None if two complete distributions can explain as much.
    """
    if "missing_mass" not in view.memo:
        view.memo["missing_mass"] = _missing_mass(view)
    return view.memo["missing_mass"]


def _missing_mass(view: View) -> tuple[float, float, float] | None:
    if view.is_fitted or view.uncertain.sum() < _MIN_TOKENS:
        return None  # a fitted effect leaves less than a complete distribution
    lost, error, missing = _mass(view)
    if lost < _MIN_Z * error or not _is_missing(view):
        return None
    half = fitting_half(view, view.uncertain)
    if not all(_is_missing(view.keep(part)) for part in (half, ~half)):
        return None
    return lost, error, missing


def _is_missing(view: View) -> bool:
    size = view.abs_diff[view.uncertain]
    possible = float(-np.expm1(-size).sum() / max(size.sum(), _TINY))
    return not size.any() or _mass(view)[2] > min(MIN_MISSING, NEARLY_ALL * possible)


def _mass(view: View) -> tuple[float, float, float]:
    num, masses, sizes = sums_of_mass(view)
    lost, error = mean_of_sums(masses, num)
    return lost, error, lost / max(float(sizes.sum() / num.sum()), _TINY)


def sums_of_mass(view: View) -> Array:
    """Return sums by sample over uncertain tokens: of 1, 1 - exp(diff) and |diff|."""
    if "sums_of_mass" not in view.memo:
        d = np.minimum(view.diff[view.uncertain], LARGEST)
        sums = view.sums_of(view.uncertain, -np.expm1(d), np.abs(d))
        view.memo["sums_of_mass"] = sums
    return view.memo["sums_of_mass"]


def find_missing(view: View) -> float:
    """Return which part of |diff| is missing mass; 0 below half of the relation."""
    if view.is_fitted or view.uncertain.sum() < _MIN_TOKENS:
        return 0.0
    lost, error, missing = _mass(view)
    return missing * (missing > MIN_MISSING / 2 and lost > _MIN_Z / 2 * error)


def kept_mass(view: View) -> float:
    """Return the mean of exp(diff) of uncertain tokens: what truncation would keep."""
    return 1 - _mass(view)[0]


def _lost(view: View) -> Array:
    return np.where(view.uncertain, np.clip(view.diff, -LARGEST_DIFF, 0.0), 0.0)


def _may_lack_context(view: View, d: Array) -> bool:
    """Return whether context that one engine lacks would explain the missing mass."""
    below = -float(d.sum() / max(np.abs(d).sum(), _TINY))
    if view.has_images and below < NEARLY_ALL:
        return True
    # Truncation concerns all tokens: those outside of a place lack mass as well.
    return any(
        not place.is_of_content or not _is_missing(view.keep(~place.tokens))
        for place in find_places(view)
    )
