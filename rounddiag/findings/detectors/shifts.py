"""`shifted_log_probs` and `retokenised`: a column lags behind the tokens."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from rounddiag.findings.finding import Evidence
from rounddiag.findings.measure import Measure
from rounddiag.findings.noise import Noise, fitting_half
from rounddiag.findings.registry import register
from rounddiag.findings.view import LARGEST_DIFF
from rounddiag.wording import pluralize, with_minus

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

LAGS = (1, -1, 2, -2, 3, -3)  # tokens
# Lags that no known fault causes: they show how well a lag fits by chance.
CONTROLS = (5, -5, 7, -7, 9, -9)
# What the lag removes, over what the best of the controls does. With 2 or 6 no answer
# changes (`tests.faults.bench --set`).
MIN_TIMES_CHANCE = 3
# A stretch is shifted where the lag leaves less than this part of mean |diff|,
_REST = 0.5
# and where mean |diff| is above so many nats, over at least so many tokens: 3 or 8
# tokens change no answer.
_MIN_DIFF = 0.1
_MIN_TOKENS = 4
# Least sum of |diff| that a lag must remove from a stretch, in nats: a few tokens fit
# with some lag by chance. With 2, one claim is wrong; 8 changes nothing.
MIN_GAIN = 4.0
# Once a lag is established, other stretches need only so many tokens and nats.
MIN_TOKENS_SAME_LAG = 2
MIN_GAIN_SAME_LAG = 0.5
MIN_ALL = 8  # tokens of all stretches together
_ROUNDING = 1e-9  # of sums in another order
# Tokens at the start of a shifted stretch that may agree without the lag by chance.
SLACK = 3
_LAG_BLOCK = 1 << 18  # tokens in which a lag along the batch is searched
# Only this many tokens at the start of a round can be shifted without the rest of it.
MAX_START = 8


@register("shifted_log_probs", kind="reversal")
def shifted_log_probs(view: View) -> list[Evidence]:
    """Find rows, or stretches of rounds or of the batch, that fit only with a lag."""
    if (view.abs_diff > _MIN_DIFF).sum() < _MIN_TOKENS:
        return []
    return _shifted_ends(view) or _shifted_starts(view) or _shifted_batch(view)


def _shifted_ends(view: View) -> list[Evidence]:
    """Find rounds that are shifted from some token on to their end."""
    tokens, lags, starts = _stretches(view, LAGS, _MIN_TOKENS, MIN_GAIN)
    if not tokens.any():
        return []
    by_chance = _stretches(view, CONTROLS, _MIN_TOKENS, MIN_GAIN)[2]
    others = (by_chance >= 0) & (starts < 0)
    segment = np.cumsum(_begins(view)) - 1
    size = np.bincount(segment, weights=view.abs_diff)
    if size[starts >= 0].sum() <= MIN_TIMES_CHANCE * size[others].sum():
        return []
    fit = fitting_half(view, tokens)
    if not ((tokens & fit).any() and (tokens & ~fit).any()):
        # One round alone: every second token.
        fit = (np.cumsum(tokens) % 2 == 0) & tokens
    known, num = np.unique(lags[tokens & fit], return_counts=True)
    lag = int(known[num.argmax()])
    more = _stretches(view, (lag,), MIN_TOKENS_SAME_LAG, MIN_GAIN_SAME_LAG)
    new = more[0] & (starts < 0)[segment]
    tokens, lags = tokens | new, np.where(new, lag, lags)
    starts = np.where(starts < 0, more[2], starts)
    here = float(view.abs_diff[tokens].mean())
    _, rest, _ = _shifted_rest(view, tokens, lags)
    left = float(rest.mean()) if len(rest) else here
    noise = Noise(view=view, unchanged=~np.isin(view.segment, view.segment[tokens]))
    # The token at which a lag begins is the one that has another id, or none.
    segments = np.flatnonzero(_begins(view))
    border = np.zeros(len(view), dtype=bool)
    border[(segments + starts)[starts > 0]] = True
    judged = _shifted_rest(view, tokens & ~fit & ~border & (lags == lag), lags)
    if tokens.sum() < MIN_ALL or not noise.is_undone(*judged):
        return []
    known, num = np.unique(lags[tokens], return_counts=True)
    main_lag, means = int(known[num.argmax()]), (here, left)
    names = ("shifted_log_probs", "retokenised")
    is_retokenised, is_open, scope = _shape_of(view, starts)
    cause, other = reversed(names) if is_retokenised else names
    evidence = _evidence(cause, tokens, main_lag, means, view.b, scope)
    return [replace(evidence, candidates=(other,) if is_open else ())]


def _shifted_starts(view: View) -> list[Evidence]:
    """Find samples in which the first tokens of every round are shifted."""
    near = view.keep(view.token < MAX_START + max(CONTROLS))
    at = near.token < MAX_START
    if not (near.abs_diff[at] > _MIN_DIFF).any():
        return []
    starts = near.keep(at)
    rests = {lag: _gain(near, lag)[0][at] for lag in LAGS}
    gains = {lag: _gain_of_starts(starts, rests[lag], MIN_GAIN / 2)[0] for lag in LAGS}
    lag = max(LAGS, key=lambda lag: gains[lag].max())
    gain, width = gains[lag].max(), int(gains[lag].argmax()) + 1
    hit = _gain_of_starts(starts, rests[lag], MIN_GAIN / 2)[1][:, width - 1]
    chosen = (starts.token < width) & np.isfinite(rests[lag]) & hit[starts.sample]
    if gain <= 0 or chosen.sum() < MIN_ALL:
        return []
    # Controls are searched as widely as lags. Below the limit their gain is unknown.
    by_chance = max(
        _gain_of_starts(starts, rest, MIN_GAIN / 2)[0].max()
        for rest in (_gain(near, control)[0][at] for control in CONTROLS)
    )
    if gain < MIN_TIMES_CHANCE * max(by_chance, MIN_GAIN / 2):
        return []
    sound = ~np.isin(view.sample, starts.sample[chosen])
    noise = Noise(view=view, unchanged=sound)
    index = np.flatnonzero(view.token < MAX_START)[chosen]
    if not noise.is_undone(index, rests[lag][chosen], starts.log_prob_a[chosen]):
        return []
    # The lag is established: other samples need less, and the edges have no partner.
    hit = _gain_of_starts(starts, rests[lag], MIN_GAIN_SAME_LAG)[1][:, width - 1]
    tokens = (view.token < width) & hit[view.sample]
    chosen = (starts.token < width) & np.isfinite(rests[lag]) & hit[starts.sample]
    means = float(starts.abs_diff[chosen].mean()), float(rests[lag][chosen].mean())
    scope = f"the first {width} of rounds"
    return [_evidence("shifted_log_probs", tokens, lag, means, view.b, scope)]


def _shifted_batch(view: View) -> list[Evidence]:
    """Find stretches of rows that fit at one lag along all tokens of the batch."""
    lost = view.abs_diff > _MIN_DIFF
    if view.abs_diff[lost].sum() < _REST * view.abs_diff.sum() or view.is_fitted:
        return []
    fit = fitting_half(view, lost)
    lag = _best_lag(view, lost & fit)
    tokens, rest, pair = _stretches_of_batch(view, lag)
    removed, num = _removed(view, tokens, rest), int(tokens.sum())
    by_chance = (
        _removed(view, *_stretches_of_batch(view, lag + control)[:2])
        for control in CONTROLS
    )
    if num < MIN_ALL or any(removed < MIN_TIMES_CHANCE * each for each in by_chance):
        return []
    sound = ~np.isin(view.segment, view.segment[tokens])
    judged = np.flatnonzero(tokens & ~fit)
    noise = Noise(view=view, unchanged=sound)
    if not noise.is_undone(judged, rest[judged], view.log_prob_b[pair[judged]]):
        return []
    here, left = float(view.abs_diff[tokens].mean()), float(rest[tokens].mean())
    num_samples = int(view.samples_with(tokens).sum())
    num_others = int((view.sample[pair] != view.sample)[tokens].sum())
    scope = f"in {num_samples:,} of {pluralize(view.num_samples, 'sample')}"
    if num_others:
        scope += f"; {num_others:,} of them have the value of another sample"
    along, means = "along the generated tokens of all rows", (here, left)
    return [_evidence("shifted_log_probs", tokens, lag, means, view.b, scope, along)]


def _best_lag(view: View, chosen: Array) -> int:
    """Return the lag of all with the least mean square of differences in probability.

    The sums for every lag are correlations, by the Fourier transform. Of a long batch
    they are those of the block with most of the chosen tokens: the lag is one of all.
    """
    block = view.order // _LAG_BLOCK
    first = int(np.bincount(block, weights=chosen).argmax())
    here = block == first
    if not here.all():
        view, chosen = view.keep(here), chosen[here]
    order = view.order - first * _LAG_BLOCK
    num = int(order.max()) + 1
    width = next_fast_len(2 * num - 1, real=True)
    every = np.ones(len(view), dtype=np.float32)
    a, b = (
        np.exp(values, dtype=np.float32)
        for values in (view.log_prob_a, view.log_prob_b)
    )

    def transform(values: Array) -> Array:
        along = np.zeros(width, dtype=np.float32)
        along[order] = values
        return rfft(along)

    weights = [transform(chosen * values).conj() for values in (every, a, a**2)]
    values = [transform(values) for values in (every, b, b**2)]
    pairs = irfft(weights[0] * values[0], width).round()
    cross = weights[0] * values[2] - 2 * weights[1] * values[1]
    square = irfft(cross + weights[2] * values[0], width)
    is_known = pairs > _REST * chosen.sum()
    is_known[0] = False
    mean = np.where(is_known, square / np.maximum(pairs, 1), np.inf)
    lag = int(mean.argmin())
    return lag if lag < num else lag - width


def _stretches_of_batch(view: View, lag: int) -> tuple[Array, Array, Array]:
    """Return the stretch of each row that a lag fits better, what it leaves, the pairs.

    Pairs are indices. A stretch is where the lag leaves least of a part of |diff|.
    """
    order = view.order + abs(lag)
    at = np.full(int(order[-1]) + 1 + abs(lag), -1)
    at[order] = np.arange(len(view))
    pair = at[order + lag]
    rest = np.abs(view.log_prob_a - view.log_prob_b[pair])
    gain = _REST * np.minimum(view.abs_diff, LARGEST_DIFF)
    gain -= np.minimum(rest, LARGEST_DIFF)
    gain[pair < 0] = 0.0
    tokens = np.zeros(len(view), dtype=bool)
    begins = np.searchsorted(view.sample, np.arange(view.batch.num_samples + 1))
    for first, end in pairwise(begins):
        total = np.r_[0.0, np.cumsum(gain[first:end])]
        removed = total - np.minimum.accumulate(total)
        stop = int(removed.argmax())
        if removed[stop] > MIN_GAIN_SAME_LAG:
            start = int(total[: stop + 1].argmin())
            tokens[first + start : first + stop] = True
    return tokens & (pair >= 0), rest, pair


def _removed(view: View, tokens: Array, rest: Array) -> float:
    return float((view.abs_diff - rest)[tokens].sum())


def _gain_of_starts(view: View, rest: Array, min_gain: float) -> tuple[Array, Array]:
    """Return what a lag removes at the first tokens of rounds: one, two and so on.

    Of the samples, which come second, in which it removes most of |diff| there.
    """
    known = np.isfinite(rest)
    cell = (view.sample * MAX_START + view.token)[known]
    shape = (view.batch.num_samples, MAX_START)
    here, left = (
        np.bincount(cell, values[known], math.prod(shape)).reshape(shape).cumsum(axis=1)
        for values in (view.abs_diff, rest)
    )
    hit = (left < _REST * here) & (here - left > min_gain)
    return ((here - left) * hit).sum(axis=0), hit


def _begins(view: View) -> Array:
    return np.r_[True, view.segment[1:] != view.segment[:-1]]


def _gain(view: View, lag: int) -> tuple[Array, Array]:
    """Return |o_i - r_(i + lag)|, else NaN, and where there is such a token."""
    num = max(len(view) - abs(lag), 0)
    here, there = slice(max(-lag, 0), None), slice(max(lag, 0), None)
    segment, token = view.segment, view.token
    near, rest = np.zeros(len(view), dtype=bool), np.full(len(view), np.nan)
    near[here][:num] = (segment[there][:num] == segment[here][:num]) & (
        token[there][:num] - token[here][:num] == lag
    )
    gap = np.abs(view.log_prob_a[here][:num] - view.log_prob_b[there][:num])
    rest[here][:num] = np.where(near[here][:num], gap, np.nan)
    return rest, near


def _stretches(
    view: View, searched: tuple[int, ...], min_tokens: int, min_gain: float
) -> tuple[Array, Array, Array]:
    """Return the tokens of the shifted end of each round, their lag, and its start.

    A lag removes no more than a round has: rounds that have too little are left out.
    """
    begins = np.flatnonzero(_begins(view))
    size = np.add.reduceat(view.abs_diff, begins)
    is_large = size > min_gain * (1 - _ROUNDING)
    large = np.repeat(is_large, np.diff(np.r_[begins, len(view)]))
    tokens = np.zeros(len(view), dtype=bool)
    lags = np.zeros(len(view), dtype=int)
    starts = np.full(len(begins), -1)
    if is_large.any():
        tokens[large], lags[large], starts[is_large] = _stretches_of(
            view.keep(large), searched, min_tokens, min_gain
        )
    return tokens, lags, starts


def _stretches_of(
    view: View, searched: tuple[int, ...], min_tokens: int, min_gain: float
) -> tuple[Array, Array, Array]:
    begins = np.flatnonzero(_begins(view))
    ends = np.r_[begins[1:], len(view)]
    index = np.arange(len(view))
    row = np.repeat(np.arange(len(begins)), ends - begins)
    best = np.zeros(len(begins))
    tokens = np.zeros(len(view), dtype=bool)
    lags = np.zeros(len(view), dtype=int)
    starts = np.full(len(begins), -1)
    for lag in searched:
        shifted, known = _gain(view, lag)
        gain = np.where(known, view.abs_diff - shifted, 0.0)
        total = np.cumsum(gain)
        before = total - gain
        suffix = total[ends - 1][row] - before
        top = np.maximum.reduceat(suffix, begins)
        if not (top > min_gain * (1 - _ROUNDING)).any():
            continue  # no round gains enough
        at_top = suffix == top[row]
        first = np.minimum.reduceat(np.where(at_top, index, len(view)), begins)
        inside = (index >= first[row]) & known
        num = np.bincount(row, weights=inside)
        sum_diff = np.bincount(row, weights=np.where(inside, view.abs_diff, 0.0))
        sum_rest = np.bincount(row, weights=np.where(inside, shifted, 0.0))
        is_better = (
            (num >= min_tokens)
            & (sum_diff > _MIN_DIFF * num)
            & (sum_rest < _REST * sum_diff)
            & (sum_diff - sum_rest > min_gain)
            & (top > best)
        )
        best = np.where(is_better, top, best)
        starts = np.where(is_better, first - begins, starts)
        part = is_better[row] & (index >= first[row])
        tokens = np.where(is_better[row], part, tokens)
        lags = np.where(part, lag, np.where(is_better[row], 0, lags))
    return tokens, lags, starts


def _shape_of(view: View, starts: Array) -> tuple[bool, bool, str]:
    """Return whether other ids made the stretches, whether that is open, and the scope.

    `starts` has the first shifted token of each round, or -1. After other ids the next
    round is sound; where none follows one that is shifted from inside, nothing tells.
    """
    segments = np.flatnonzero(_begins(view))
    row, inside = view.sample[segments], starts > SLACK
    has_next = inside & np.r_[row[1:] == row[:-1], False]
    later = np.r_[starts[1:], -1]
    healed, goes_on = has_next & (later < 0), has_next & (later >= 0) & (later <= SLACK)
    late = inside & (view.round[segments] > 0) & ~healed & ~goes_on
    num_inside, num_whole = int(inside.sum()), int(((starts >= 0) & ~inside).sum())
    is_inside = num_inside > num_whole
    is_retokenised = bool((healed | late).sum() > max(goes_on.sum(), num_whole))
    is_open = is_retokenised or (is_inside and not (healed | goes_on).any())
    scope = f"in {num_whole} whole rounds"
    if is_inside:
        scope = f"from inside of {num_inside} rounds to their end"
    return is_retokenised, is_open, scope


_NEXT_STEP = {
    "retokenised": "Keep the engine's token ids (vLLM: `return_token_ids`) and compare "
    "them with the trainer's, round by round.",
    "shifted_log_probs": "Compare the lengths of ids and log-probs as the engine "
    "returns them; a byte token, BOS or EOS that only one of them counts gives this "
    "lag.",
}


def _evidence(
    cause: str,
    tokens: Array,
    lag: int,
    means: tuple[float, float],
    engine: str,
    scope: str,
    along: str = "",
) -> Evidence:
    (here, left), num = means, int(tokens.sum())
    against = f"`{engine}` {along}".rstrip()
    return Evidence(
        cause=cause,
        tokens=tokens,
        measures=(
            Measure("lag", lag, "tokens"),
            Measure("tokens that lag", num, "tokens"),
            Measure("mean |diff| at lag 0", here, "nat"),
            Measure("mean |diff| with the lag", left, "nat"),
        ),
        shown=(
            f"Undone with a lag of {with_minus(f'{lag:+d}')} against {against}, "
            f"{here:.2g} nat become {left:.2g} at {num:,} tokens, {scope}."
        ),
        next_step=_NEXT_STEP[cause],
    )


def _shifted_rest(view: View, tokens: Array, lags: Array) -> tuple[Array, Array, Array]:
    index = np.flatnonzero(tokens)
    other = index + lags[index]
    fits = (other >= 0) & (other < len(view))
    index, other = index[fits], other[fits]
    near = view.segment[index] == view.segment[other]
    index, likely = index[near], view.log_prob_b[other[near]]
    return index, np.abs(view.log_prob_a[index] - likely), likely
