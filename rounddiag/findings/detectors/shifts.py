"""`shifted_log_probs` and `retokenised`: a column lags behind the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Alternative, Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

LAGS = (1, -1, 2, -2, 3, -3)
# A stretch is shifted where the lag leaves less than this part of mean |diff| ...
REST = 0.35
# ... and mean |diff| is above this, in nats, over so many tokens.
MIN_DIFF = 0.1
MIN_TOKENS = 4
# What a lag must save in one stretch, in nats: a few tokens fit by chance.
MIN_GAIN = 4.0
# Tokens at the start of a stretch that a shift may spare by chance.
SLACK = 3


@dataclass(frozen=True, eq=False)
class _Shift:
    lag: int
    tokens: Array
    whole: bool


@register("shifted_log_probs", stage="exact")
def shifted_log_probs(view: View) -> list[Evidence]:
    """Find rows, or stretches of rounds, that fit with a lag and not without."""
    suspects = view.abs > MIN_DIFF
    if suspects.sum() < MIN_TOKENS:
        return []
    gains = {lag: _gain(view, lag) for lag in LAGS}
    by_round, lags, starts = _stretches(view, gains, view.segment)
    if not by_round.any():
        return []
    return [_evidence(view, by_round, lags, starts)]


def _gain(view: View, lag: int) -> tuple[Array, Array]:
    """Return |o_i - r_(i + lag)| where it exists, else NaN, and where it does."""
    num, k = len(view), abs(lag)
    shifted = np.full(num, np.nan)
    if num <= k:
        return shifted, np.zeros(num, dtype=bool)
    near = (view.flat[k:] - view.flat[:-k] == k) & (
        view.segment[k:] == view.segment[:-k]
    )
    if lag > 0:
        shifted[:-k] = np.where(near, np.abs(view.o[:-k] - view.r[k:]), np.nan)
    else:
        shifted[k:] = np.where(near, np.abs(view.o[k:] - view.r[:-k]), np.nan)
    return shifted, np.isfinite(shifted)


def _stretches(
    view: View, gains: dict[int, tuple[Array, Array]], codes: Array
) -> tuple[Array, Array, Array]:
    """Return the tokens of the shifted end of each round, their lag, and its start."""
    begins = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    ends = np.r_[begins[1:], len(codes)]
    row = np.repeat(np.arange(len(begins)), ends - begins)
    best = np.zeros(len(begins))
    tokens = np.zeros(len(view), dtype=bool)
    lags = np.zeros(len(view), dtype=int)
    starts = np.full(len(begins), -1)
    for lag, (shifted, known) in gains.items():
        gain = np.where(known, view.abs - shifted, 0.0)
        total = np.cumsum(gain)
        before = total - gain
        suffix = total[ends - 1][row] - before
        top = np.maximum.reduceat(suffix, begins)
        at_top = suffix == top[row]
        first = np.minimum.reduceat(
            np.where(at_top, np.arange(len(codes)), len(codes)), begins
        )
        inside = (np.arange(len(codes)) >= first[row]) & known
        num = np.bincount(row, weights=inside)
        sum_diff = np.bincount(row, weights=np.where(inside, view.abs, 0.0))
        sum_rest = np.bincount(row, weights=np.where(inside, shifted, 0.0))
        found = (
            (num >= MIN_TOKENS)
            & (sum_diff > MIN_DIFF * num)
            & (sum_rest < REST * sum_diff)
            & (sum_diff - sum_rest > MIN_GAIN)
            & (top > best)
        )
        best = np.where(found, top, best)
        starts = np.where(found, first - begins, starts)
        part = found[row] & (np.arange(len(codes)) >= first[row])
        tokens = np.where(found[row], part, tokens)
        lags = np.where(part, lag, np.where(found[row], 0, lags))
    return tokens, lags, starts


def _evidence(view: View, tokens: Array, lags: Array, starts: Array) -> Evidence:
    segments = np.unique(view.segment, return_index=True)[1]
    row = view.sample[segments]
    shifted = starts >= 0
    later = np.zeros(len(starts), dtype=bool)  # a later round of the row that is whole
    later[:-1] = (row[1:] == row[:-1]) & ~shifted[1:]
    begins_late = starts > SLACK
    goes_on = np.zeros(len(starts), dtype=bool)
    goes_on[:-1] = (row[1:] == row[:-1]) & shifted[1:] & (starts[1:] <= SLACK)
    # A shift that begins inside a round and is over with it comes from other ids.
    inside = shifted & begins_late
    num_healed = int((inside & later).sum())
    num_kept = int((inside & goes_on).sum())
    lag, num_lag = np.unique(lags[tokens], return_counts=True)
    most = int(lag[num_lag.argmax()])
    num = int(tokens.sum())
    whole = int((shifted & ~begins_late).sum())
    # One that begins inside of the last of several rounds rather has other ids too.
    late = inside & (view.round[segments] > 0) & ~later & ~goes_on
    is_retokenised = num_healed + int(late.sum()) > max(num_kept, whole)
    scope = (
        f"from inside of {int(inside.sum())} rounds to their end"
        if inside.sum() > whole
        else f"in {whole} whole rounds"
    )
    left = float(np.nanmean(_shifted_rest(view, tokens, lags)))
    cause = "retokenised" if is_retokenised else "shifted_log_probs"
    other = "shifted_log_probs" if is_retokenised else "retokenised"
    ambiguous = (num_healed + num_kept == 0) and inside.sum() > whole
    return Evidence(
        cause=cause,
        score=0.9 if ambiguous else 0.97,
        tokens=tokens,
        gain=float(view.abs[tokens].sum()) - left * num,
        measures=(
            Measure(name="lag", value=most, unit="tokens"),
            Measure(name="tokens that lag", value=num, unit="tokens"),
            Measure(
                name="mean |diff| at lag 0",
                value=float(view.abs[tokens].mean()),
                unit="nat",
            ),
            Measure(name="mean |diff| with the lag", value=left, unit="nat"),
        ),
        explanation=(
            f"{num} tokens, {scope}, fit `{view.b}` at a lag of {most:+d} "
            f"({left:.3g} nat left of {view.abs[tokens].mean():.3g})."
        ),
        alternatives=(
            (Alternative(cause=other, would_tell="The engine's own token ids."),)
            if ambiguous or is_retokenised
            else ()
        ),
        next_step=(
            "Keep the engine's token ids (vLLM: `return_token_ids`) and compare them "
            "with the trainer's, round by round."
            if is_retokenised
            else "Compare the lengths of ids and log-probs as the engine returns them; "
            "a byte token, BOS or EOS that only one of them counts gives this lag."
        ),
    )


def _shifted_rest(view: View, tokens: Array, lags: Array) -> Array:
    index = np.flatnonzero(tokens)
    other = index + lags[index]
    fits = (other >= 0) & (other < len(view))
    index, other = index[fits], other[fits]
    near = view.segment[index] == view.segment[other]
    rest: Array = np.abs(view.o[index[near]] - view.r[other[near]])
    return rest
