"""`temperature`: one side divides its logits by another temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.detectors.penalty import best_split
from rounddiag.findings.excess import mean_by_bin
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.level import clustered_mean
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from rounddiag._typing import Array
    from rounddiag.findings.view import View

    # A temperature, its interval, and the diff that it gives to the tokens of a view.
    _Fit: TypeAlias = tuple[float, float, float, Callable[[View], Array]]

# Correlation of the signed diff with (o + r) / 2, plus the entropy where it is
# recorded. Noise and other contexts reach 0.3, weights that are far off 0.6.
MIN_CORRELATION, WITH_ENTROPY = 0.62, 0.7
# Samples whose own slope has the sign of all.
MIN_AGREEMENT = 0.8
# Short samples have noisy slopes: where all tokens together leave no doubt.
HIGH, LEAST_AGREEMENT = 0.6, 0.6
MIN_TOKENS = 30
# The slope of the diff on the log-prob, in standard errors clustered by sample.
MIN_Z = 6.0
MIN_LEVEL = 3e-4  # nats: below is the rounding of float32
# A split by ids seen before that explains more than this is a penalty.
MAX_SEEN = 0.12
MIN_PER_SAMPLE, MIN_SAMPLES = 8, 6
LARGE = 5.0
# Tokens above this log-prob have few rivals, so a temperature moves them along one
# curve. What it leaves there of the sum of |diff| / |log-prob|: other temperatures
# reach 0.24 without entropy, another activation 0.27, truncation 0.30.
LIKELY = -1.2
MAX_LEFT = 0.25


@register("temperature", stage="fit")
def temperature(view: View) -> Evidence | None:
    """Fit d = (1 - 1/T)(o + H), to first order in 1 - 1/T.

    Where the batch has no entropy H, the mean diff as a function of the log-prob
    stands in for it, and T comes from the curve of a distribution with a flat rest.
    """
    chosen = view.uncertain & _agreeing(view)
    line = _line(view, chosen)
    if line is None:
        return None
    correlation, agreement, z = line
    fit = _with_entropy if view.entropy is not None else _without_entropy
    value, low, high, effect = fit(view, chosen, z)
    if low <= 1 <= high:
        return None  # the interval holds two equal temperatures
    chosen = view.uncertain
    left = np.abs(view.d - effect(view))[chosen].sum()
    left /= max(view.abs[chosen].sum(), 1e-300)
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
            "The diff follows the log-prob itself, in all samples alike: "
            "consistent with "
            f"`{view.b}` at {value:.3g} ({low:.3g} to {high:.3g}) times the "
            "temperature "
            f"of `{view.a}`{how}."
        ),
        next_step=(
            "Set both temperatures to 1, or divide the trainer's logits by the "
            "sampler's "
            "temperature; in vLLM check logprobs_mode (raw or processed)."
        ),
    )


def _agreeing(view: View) -> Array:
    """Return the tokens of samples whose own diff follows the log-prob as most do.

    A temperature is one of all samples. Those with another fault on top would hide it,
    as long as they are fewer.
    """
    chosen = view.uncertain
    sample = view.sample[chosen]
    x, d = _middle(view)[chosen], np.clip(view.d[chosen], -LARGE, LARGE)
    num = np.bincount(sample, minlength=view.batch.num_samples)
    x, d = (
        one - (np.bincount(sample, one, len(num)) / np.maximum(num, 1))[sample]
        for one in (x, d)
    )
    both, xx, dd = (np.bincount(sample, one, len(num)) for one in (x * d, x * x, d * d))
    own = both / np.maximum(np.sqrt(xx * dd), 1e-300)
    there = num >= MIN_PER_SAMPLE
    if there.sum() < MIN_SAMPLES:
        return np.ones(len(view), dtype=bool)
    usual = float(np.median(own[there]))
    if abs(usual) < _least(view):
        return np.ones(len(view), dtype=bool)
    agrees: Array = (own * np.sign(usual) > abs(usual) / 2) | ~there
    return agrees[view.sample]


def _middle(view: View) -> Array:
    """Return the mean of both log-probs, less its expectation where it is known."""
    middle = (view.o + view.r) / 2
    return middle if view.entropy is None else middle + view.entropy


def _least(view: View) -> float:
    return MIN_CORRELATION if view.entropy is None else WITH_ENTROPY


def _line(view: View, chosen: Array) -> tuple[float, float, float] | None:
    """Return how well the diff follows the log-prob, over all and within samples.

    The third number is the slope in standard errors.
    """
    split = best_split(view)
    is_penalty = split is not None and split.partial > MAX_SEEN
    if view.fitted is not None or is_penalty or chosen.sum() < MIN_TOKENS:
        return None
    x, d = _middle(view)[chosen], np.clip(view.d[chosen], -LARGE, LARGE)
    if x.std() == 0 or d.std() == 0 or np.abs(d).mean() < MIN_LEVEL:
        return None
    sample = view.sample[chosen]
    correlation = float(np.corrcoef(x, d)[0, 1])
    agreement = _agreement(x, d, sample, np.sign(correlation))
    least = MIN_AGREEMENT if abs(correlation) < HIGH else LEAST_AGREEMENT
    z = _z(x, d, sample)
    is_weak = abs(correlation) < _least(view) or abs(z) < MIN_Z
    if not is_weak and agreement >= least:
        return correlation, agreement, z
    if view.entropy is not None:
        return None
    agreement = _agreement_with_curve(view, chosen)
    # The error of a line says nothing of a curve.
    return None if agreement < MIN_AGREEMENT else (correlation, agreement, np.inf)


def _z(x: Array, d: Array, sample: Array) -> float:
    """Return the slope of d on x in standard errors, clustered by sample."""
    x, d = x - x.mean(), d - d.mean()
    slope = (x * d).sum() / (x**2).sum()
    part = np.bincount(sample, weights=x * (d - slope * x))
    return float(slope * (x**2).sum() / max(np.sqrt((part**2).sum()), 1e-300))


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


def _agreement_with_curve(view: View, chosen: Array) -> float:
    """Return the share of samples, by tokens, whose likely tokens lie on one curve.

    A sampler that is far colder draws few unlikely tokens: no line shows, a curve does.
    """
    likely = chosen & (np.minimum(view.o, view.r) > LIKELY)
    if likely.sum() < MIN_TOKENS:
        return 0.0
    some = np.flatnonzero(likely)
    some = some[:: max(1, -(-len(some) // _MAX_TOKENS))]
    o, d = view.o[some], np.clip(view.d[some], -LARGE, LARGE)
    weight = 1 / (0.02 + np.abs(o))
    whole = weight * np.abs(d)
    rests = (
        weight * np.abs(d - _curve(o, t, np.full(len(o), rest)))
        for rest in _RESTS[:3]
        for t in _GRID[1:-1]
    )
    rest = min(rests, key=np.sum)
    if rest.sum() > MAX_LEFT * whole.sum():
        return 0.0
    by_sample = [np.bincount(view.sample[some], weights=one) for one in (rest, whole)]
    num = np.bincount(view.sample[some])
    return float((num * (by_sample[0] < by_sample[1] / 2)).sum() / num.sum())


_RESTS = (1.0, 3.0, 10.0, 30.0, 100.0)
_GRID = np.exp(np.linspace(np.log(0.3), np.log(3.0), 93))
_STEP = float(_GRID[1] / _GRID[0])
_MAX_TOKENS = 4_000
# How flat the rest is stays open between curves that fit nearly as well as the best.
_NEARLY = 3.0


def _with_entropy(view: View, chosen: Array, z: float) -> _Fit:
    """Fit T where each token's entropy says how flat the rest of its mass is."""
    del z
    o, d, size = view.o[chosen], view.d[chosen], _rest_size(view)[chosen]
    some = slice(None, None, max(1, -(-len(o) // _MAX_TOKENS)))
    value = _best(o[some], d[some], size[some])
    fitted = _curve(o, value, size)
    slope = (_curve(o, value * 1.01, size) - fitted) / (0.01 * value)
    weight = _weight(fitted)
    _, error = clustered_mean(weight * slope * (d - fitted), view.sample[chosen])
    error = error * len(o) / max(float((weight * slope**2).sum()), 1e-12)

    def effect(view: View) -> Array:
        curve = _curve(view.o, value, _rest_size(view))
        return np.where(view.uncertain, curve, 0.0)

    return value, value - 1.96 * error, value + 1.96 * error, effect


def _rest_size(view: View) -> Array:
    """Return over how many other tokens the rest of the mass is spread, if evenly."""
    entropy = view.entropy
    if entropy is None:
        raise TypeError
    p = np.exp(np.minimum(view.o, -1e-9))
    rest = -np.expm1(np.minimum(view.o, -1e-9))
    entropy_of_rest = (entropy + p * view.o) / rest + np.log(rest)
    size: Array = np.exp(np.clip(entropy_of_rest, 0.0, 12.0))
    return size


def _best(o: Array, d: Array, size: Array) -> float:
    """Return the temperature of least squares, between the points of the grid too."""
    return _lowest(np.array([_loss(o, d, size, t) for t in _GRID]))


def _lowest(losses: Array) -> float:
    """Return the temperature at the vertex of a parabola through the least losses."""
    at = int(np.clip(losses.argmin(), 1, len(_GRID) - 2))
    a, b, c = losses[at - 1 : at + 2]
    shift = 0.5 * (a - c) / max(a - 2 * b + c, 1e-12)
    return float(_GRID[at] * _STEP ** np.clip(shift, -1, 1))


def _loss(o: Array, d: Array, size: Array, t: float) -> float:
    fitted = _curve(o, t, size)
    return float((_weight(d) * np.clip(d - fitted, -LARGE, LARGE) ** 2).sum())


def _weight(fitted: Array) -> Array:
    weight: Array = 1 / (np.abs(fitted) + 0.05)
    return weight


def _without_entropy(view: View, chosen: Array, z: float) -> _Fit:
    """Fit T to the mean diff at each log-prob, for rests of several sizes.

    The interval holds the fits of all sizes that fit nearly as well, each with the
    error of the slope.
    """
    o, d = view.o[chosen], view.d[chosen]
    steps = np.quantile(o, np.linspace(0.01, 0.99, 40))
    seen = mean_by_bin(o, np.clip(d, -LARGE, LARGE), steps)
    fits = []
    for rest in _RESTS:
        size = np.full(len(steps), rest)
        losses = np.array([((seen - _curve(steps, t, size)) ** 2).sum() for t in _GRID])
        fits.append((float(losses.min()), _lowest(losses)))
    best = min(fits)
    near = [t for loss, t in fits if loss <= _NEARLY * best[0]]
    errors = [1.96 * abs(t - 1) / abs(z) for t in (min(near), max(near))]

    def effect(view: View) -> Array:
        return np.where(view.uncertain, mean_by_bin(o, d, view.o), 0.0)

    return best[1], min(near) - errors[0], max(near) + errors[1], effect


def _curve(o: Array, t: float, size: Array) -> Array:
    """Return o - r where the rest of the mass lies evenly on `size` other tokens."""
    rest = np.log(np.maximum(-np.expm1(np.minimum(o, -1e-9)), 1e-12))
    total = np.logaddexp(o / t, rest / t + (1 - 1 / t) * np.log(size))
    curve: Array = o - (o / t - total)
    return curve
