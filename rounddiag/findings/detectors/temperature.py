"""`temperature`: the two sides divide their logits by different temperatures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rounddiag._typing import Array
from rounddiag.findings.detectors.penalty import MIN_PARTIAL, best_split
from rounddiag.findings.detectors.truncation import find_missing
from rounddiag.findings.finding import Evidence
from rounddiag.findings.level import log_odds
from rounddiag.findings.measure import Measure
from rounddiag.findings.noise import fitting_half
from rounddiag.findings.registry import register
from rounddiag.findings.view import View
from rounddiag.wording import percent

# The line must explain this part of the sum of squares, on the half of the clusters on
# which it was not fitted. With 0.25 or 0.75 no answer changes
# (`tests.faults.bench --set`).
MIN_EXPLAINED = 0.5
# A temperature moves the log-odds of all likely tokens one way. This part must move
# that way: noise turns the others (two standard deviations).
SAME_SIGN = 0.95
# Least share of the tokens in samples that agree: whose own correlation of the gap with
# the log-odds is this part of the typical one.
MIN_AGREEMENT, _PART = 0.6, 0.7
# Fewest uncertain tokens of a batch, and of a sample; fewest such samples. Conventions:
# half or twice the last two change no answer of `tests.faults.bench --set`.
_MIN_TOKENS, MIN_PER_SAMPLE, _MIN_SAMPLES = 30, 8, 6
# The slope, in standard errors clustered by sample; 3 or 12 change no answer.
_MIN_Z = 6.0
MIN_LEVEL = 3e-4  # nats: smaller diffs may be rounding of float32
_LARGE = 5.0  # log-odds: a larger gap counts as this; 3 or 10 change no answer
# Log-probs nearer to 0 than this, in nats, are mostly rounding.
_SURE = -1e-6
# Without a recorded entropy: by how much log n grows with the log-odds. It is 0.05 to
# 0.33 on the bench, and -0.28 to -0.05 for normal logits of many sizes.
GROWTH, LEAST_GROWTH, MOST_GROWTH = 0.15, -0.3, 0.33
# The range of log n, as the share of its tokens, and its largest value without entropy.
# With entropy, log n may be so far from the entropy of the other tokens, in nats.
BAND, MAX_LOG_N = (0.1, 0.9), 8.0
LEAST_REST, MOST_REST = -1.0, 1.5


@register("temperature", kind="reversal")
def temperature(view: View) -> Evidence | None:
    """Fit a line to the log-odds of both columns.

    With a temperature T of `b` over that of `a`, log-odds(b) = log-odds(a) / T
    + (1 / T - 1) log n, where n is over how many other tokens the rest of the mass is
    spread. The entropy tells n; without it the slope is the ratio of the spreads, and
    log n is what the line leaves.
    """
    line = _Line.from_view(view)
    if line is None or line.low <= 1 <= line.high:
        return None
    chosen = view.uncertain
    left = np.abs(view.diff - line.effect(view))[chosen].sum()
    left /= max(view.abs_diff[chosen].sum(), 1e-300)
    how = "" if view.entropy is not None else " (approximate: no entropy is recorded)"
    value, low, high = line.value, line.low, line.high
    return Evidence(
        tokens=chosen,
        effect=line.effect,
        where={"temperature": value},
        measures=(
            Measure("temperature", value, low=low, high=high),
            Measure("part of the other half explained", line.explained),
            Measure("samples that agree", line.agreement, "share"),
            Measure("share of |diff| left", float(left), "share"),
        ),
        shown=(
            "The diff follows the log-odds themselves in"
            f" {percent(line.agreement)} of these samples: consistent with"
            f" `{view.b}` at {value:.3g} ({low:.3g} to {high:.3g}) times the"
            f" temperature of `{view.a}`{how}."
        ),
        next_step=(
            "Set both temperatures to 1, or divide the trainer's logits by the "
            "sampler's temperature; in vLLM check logprobs_mode (raw or processed)."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A temperature with its interval, and the band of log n that it is allowed.

    With entropy the band is beside the log n of each token.
    """

    value: float
    low: float
    high: float
    explained: float
    agreement: float
    band: tuple[float, float]

    @classmethod
    def from_view(cls, view: View) -> _Line | None:
        """Fit the samples that agree; None where the log-odds follow no line."""
        split = best_split(view)
        is_penalty = split is not None and split.partial > MIN_PARTIAL
        if view.is_fitted or is_penalty or find_missing(view):
            return None
        chosen = _measurable(view)
        if chosen.sum() < _MIN_TOKENS or view.abs_diff[chosen].mean() < MIN_LEVEL:
            return None
        sums = sums_of_line(view)
        agrees, agreement = _select_agreeing(sums)
        _, z = _fit_line(sums[:, agrees])
        if agreement < MIN_AGREEMENT or abs(z) < _MIN_Z:
            return None
        chosen &= agrees[view.sample]
        odds, others = _log_odds(view, chosen)
        x, y = (odds + others) / 2, np.clip(others - odds, -_LARGE, _LARGE)
        explained = _explain(x, y, fitting_half(view, chosen)[chosen])
        if not explained > MIN_EXPLAINED:
            return None
        likely = y[np.minimum(odds, others) > 0]
        if not len(likely) or not (likely * np.sign(z) > 0).mean() > SAME_SIGN:
            return None
        log_n = _log_n(view)[chosen]
        if view.entropy is not None:
            rate = _median((others - odds) / (odds + log_n), np.abs(odds + log_n))
            ends, limits = [rate], (LEAST_REST, MOST_REST)
        else:
            apparent = _spread(others) / _spread(odds) - 1
            growths = (GROWTH, LEAST_GROWTH, MOST_GROWTH)
            rate, *ends = (apparent / (1 + growth) for growth in growths)
            limits = (0.0, MAX_LOG_N)
        error = 1.96 * abs(rate / z)
        values = [
            1 / max(1 + end + sign * error, 0.05) for end in ends for sign in (-1, 1)
        ]
        low, high = np.quantile((others - (1 + rate) * odds) / rate - log_n, BAND)
        return cls(
            value=1 / (1 + rate),
            low=min(values),
            high=max(values),
            explained=explained,
            agreement=agreement,
            band=(max(float(low), limits[0]), min(float(high), limits[1])),
        )

    def effect(self, view: View) -> Array:
        """Return the part of each token's diff that the temperature can explain.

        Inside the band the temperature explains all of it. Far beyond, another fault
        adds to it, and the temperature gets its average part.
        """
        log_n, odds = _log_n(view), log_odds(view.log_prob_a)
        first, second = (
            view.log_prob_a + np.logaddexp(0, n - (odds + n) / self.value)
            for n in (np.maximum(log_n + edge, 0) for edge in self.band)
        )
        middle, half = (first + second) / 2, np.abs(second - first) / 2
        nearest = np.clip(view.diff, middle - half, middle + half)
        fitted = nearest - np.clip(view.diff - nearest, -half, half)
        return np.where(_measurable(view), fitted, 0.0)


def sums_of_line(view: View) -> Array:
    """Return sums by sample: of 1, x, y, x^2, xy and y^2, a row each.

    x is the mean of both log-odds, less its mean, and y the gap between them.
    """
    if "sums_of_line" not in view.memo:
        chosen = _measurable(view)
        odds, others = _log_odds(view, chosen)
        x, y = (odds + others) / 2, np.clip(others - odds, -_LARGE, _LARGE)
        x -= x.sum() / max(len(x), 1)
        sums = view.sums_of(chosen, x, y, x * x, x * y, y * y)
        view.memo["sums_of_line"] = sums
    return view.memo["sums_of_line"]


def follow_log_odds(view: View) -> float:
    """Return which part of the squares follows the log-odds; 0 below half of it."""
    sums = sums_of_line(view)
    if view.is_fitted or sums[0].sum() < _MIN_TOKENS:
        return 0.0
    part, z = _fit_line(sums)
    return part * (part > MIN_EXPLAINED / 2 and abs(z) > _MIN_Z)


def _log_odds(view: View, chosen: Array) -> tuple[Array, Array]:
    return log_odds(view.log_prob_a[chosen]), log_odds(view.log_prob_b[chosen])


def _explain(x: Array, y: Array, fit: Array) -> float:
    if min(fit.sum(), (~fit).sum()) < MIN_PER_SAMPLE or x[fit].std() == 0:
        return 0.0
    rest = y[~fit] - np.polyval(np.polyfit(x[fit], y[fit], 1), x[~fit])
    whole = y[~fit] - y[~fit].mean()
    return 1 - float((rest**2).sum() / max((whole**2).sum(), 1e-300))


def _measurable(view: View) -> Array:
    return view.uncertain & (np.maximum(view.log_prob_a, view.log_prob_b) < _SURE)


def _log_n(view: View) -> Array:
    """Return the entropy of the other tokens where it is known, else 0."""
    if view.entropy is None:
        return np.zeros(len(view))
    o = np.minimum(view.log_prob_a, -1e-9)
    rest = -np.expm1(o)
    entropy: Array = (view.entropy + np.exp(o) * o) / rest + np.log(rest)
    return np.clip(entropy, 0.0, 12.0)


def _select_agreeing(sums: Array) -> tuple[Array, float]:
    """Return the samples whose gap follows x as in most, and the share of their tokens.

    A temperature applies to all samples. A minority with a further fault would hide it.
    """
    num = sums[0]
    xx, xy, yy = about_means(sums)
    both = np.sqrt(np.maximum(xx * yy, 0))
    own = np.divide(xy, both, out=np.zeros_like(xy), where=both > 0)
    is_judged = num >= MIN_PER_SAMPLE
    if is_judged.sum() < _MIN_SAMPLES:
        return np.ones(len(num), dtype=bool), 1.0
    usual = float(np.median(own[is_judged]))
    agrees = own * np.sign(usual) > _PART * abs(usual)
    share = float(num[agrees & is_judged].sum() / num[is_judged].sum())
    return agrees | ~is_judged, share


def about_means(sums: Array) -> tuple[Array, Array, Array]:
    """Return the sums of x^2, xy and y^2 about the means, from those about 0."""
    num, x, y, xx, xy, yy = sums
    num = np.maximum(num, 1)
    return xx - x * x / num, xy - x * y / num, yy - y * y / num


def _fit_line(sums: Array) -> tuple[float, float]:
    """Return the part of the squares of y that a line explains, and its slope.

    The slope is in standard errors, clustered by sample.
    """
    every = sums.sum(axis=1)
    square, cross, squares = map(float, about_means(every))
    if square * squares <= 0:
        return 0.0, 0.0
    num, x, y, xx, xy, _ = sums
    mean_x, mean_y, slope = every[1] / every[0], every[2] / every[0], cross / square
    part = xy - mean_x * y - mean_y * x + num * mean_x * mean_y
    part -= slope * (xx - 2 * mean_x * x + num * mean_x**2)
    z = cross / max(np.sqrt((part**2).sum()), 1e-300)
    return cross**2 / (square * squares), float(z)


def _median(values: Array, weight: Array) -> float:
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])


def _spread(values: Array) -> float:
    """Return the width of the middle 80 %, beyond which other faults lie."""
    low, high = np.quantile(values, [0.1, 0.9])
    return float(max(high - low, 1e-12))
