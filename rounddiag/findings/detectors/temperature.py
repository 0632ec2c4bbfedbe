"""`temperature`: one side divides its logits by another temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.excess import mean_by_bin
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.level import clustered_mean
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag.findings.view import Array, View

# Correlation of the signed diff with (o + r) / 2, plus the entropy where it is recorded.
# Other weights, other contexts and noise reach 0.15; without entropy a missing picture
# reaches 0.3.
MIN_CORRELATION = 0.4
# Samples whose own slope has the sign of all.
MIN_AGREEMENT = 0.8
MIN_TOKENS = 30
MIN_PER_SAMPLE = 8
LARGE = 5.0


@register("temperature", stage="fit")
def temperature(view: View) -> Evidence | None:
    """Fit d = (1 - 1/T)(o + H), to first order in 1 - 1/T.

    Where the batch has no entropy H, the mean diff as a function of the log-prob
    stands in for it, and T comes from the curve of a distribution with a flat rest.
    """
    if view.fitted is not None:
        return None  # one effect of sampling a batch
    chosen = view.uncertain
    if chosen.sum() < MIN_TOKENS:
        return None
    middle = (view.o + view.r) / 2
    if view.entropy is not None:
        middle = middle + view.entropy
    x, d = middle[chosen], np.clip(view.d[chosen], -LARGE, LARGE)
    if x.std() == 0 or d.std() == 0:
        return None
    correlation = float(np.corrcoef(x, d)[0, 1])
    agreement = _agreement(x, d, view.sample[chosen], np.sign(correlation))
    if abs(correlation) < MIN_CORRELATION or agreement < MIN_AGREEMENT:
        return None
    value, low, high, fitted = (
        _with_entropy(view, chosen)
        if view.entropy is not None
        else _without_entropy(view, chosen)
    )
    effect = np.zeros(len(view))
    effect[chosen] = fitted
    left = np.abs(view.d[chosen] - fitted).sum() / max(view.abs[chosen].sum(), 1e-300)
    how = "" if view.entropy is not None else " (approximate: no entropy is recorded)"
    return Evidence(
        score=float(np.clip(0.5 + abs(correlation) / 2 + 0.1, 0, 0.98)),
        tokens=chosen,
        effect=effect,
        where={"temperature": value},
        measures=(
            Measure(name="temperature", value=value, low=low, high=high),
            Measure(name="correlation of diff with the log-prob", value=correlation),
            Measure(name="samples that agree", value=agreement, unit="share"),
            Measure(name="share of |diff| left", value=float(left), unit="share"),
        ),
        explanation=(
            f"The diff follows the log-prob itself, in all samples alike: consistent with "
            f"`{view.b}` at {value:.3g} ({low:.3g} to {high:.3g}) times the temperature "
            f"of `{view.a}`{how}."
        ),
        next_step=(
            "Set both temperatures to 1, or divide the trainer's logits by the sampler's "
            "temperature; in vLLM check logprobs_mode (raw or processed)."
        ),
    )


def _agreement(x: Array, d: Array, sample: Array, sign: float) -> float:
    """Return the share of samples whose own slope has a sign, weighted by tokens."""
    num = np.bincount(sample)
    count = np.maximum(num, 1)
    x = x - (np.bincount(sample, weights=x) / count)[sample]
    slope = np.bincount(sample, weights=x * d)
    there = num >= MIN_PER_SAMPLE
    if not there.any():
        return 1.0
    return float((num * (slope * sign > 0))[there].sum() / num[there].sum())


def _with_entropy(view: View, chosen: Array) -> tuple[float, float, float, Array]:
    """Fit the slope of d on o + H; where r is the sharper side both ends count."""
    entropy = view.entropy
    if entropy is None:
        raise TypeError
    x, d = (view.o + entropy)[chosen], view.d[chosen]
    # The entropy is the trainer's; to second order the slope on o + H is biased by the
    # change of the entropy, which the middle of both log-probs takes out.
    middle = x - d / 2
    weight = 1 / (np.abs(middle) + 0.1)
    slope = float((weight * middle * d).sum() / (weight * middle**2).sum())
    part = weight * middle * (d - slope * middle)
    _, error = clustered_mean(part, view.sample[chosen])
    error = error * len(part) / float((weight * middle**2).sum())
    # d = (1 - 1/T) (o + r) / 2 + ..., so 1/T = (1 - s/2) / (1 + s/2).
    low, value, high = (_ratio(slope + k * error) for k in (-1.96, 0.0, 1.96))
    return value, low, high, slope * middle


def _ratio(slope: float) -> float:
    slope = float(np.clip(slope, -1.9, 1.9))
    return (1 + slope / 2) / (1 - slope / 2)


_RESTS = (1, 3, 10, 30, 100)
_GRID = np.exp(np.linspace(np.log(0.4), np.log(2.5), 93))


def _without_entropy(view: View, chosen: Array) -> tuple[float, float, float, Array]:
    o, d = view.o[chosen], view.d[chosen]
    steps = np.quantile(o, np.linspace(0.01, 0.99, 40))
    seen = mean_by_bin(o, np.clip(d, -LARGE, LARGE), steps)
    best = (np.inf, 1.0)
    fits = []
    for rest in _RESTS:
        losses = [float(((seen - _curve(steps, t, rest)) ** 2).sum()) for t in _GRID]
        at = int(np.argmin(losses))
        fits.append(_GRID[at])
        best = min(best, (losses[at], float(_GRID[at])))
    fitted = mean_by_bin(o, d, o)
    return best[1], float(min(fits)), float(max(fits)), fitted


def _curve(o: Array, t: float, rest: int) -> Array:
    """Return o - r where the rest of the mass lies evenly on some other tokens."""
    others = np.log(np.maximum(-np.expm1(np.minimum(o, -1e-9)), 1e-12)) - np.log(rest)
    total = np.logaddexp(o / t, others / t + np.log(rest))
    curve: Array = o - (o / t - total)
    return curve
