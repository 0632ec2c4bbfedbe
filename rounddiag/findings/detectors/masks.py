"""`mask_too_wide`: the mask has 1s where the model wrote nothing."""

from __future__ import annotations

import numpy as np

from rounddiag._typing import Array
from rounddiag.findings.detectors.mask_offset import mask_offset
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register
from rounddiag.findings.view import View

# Consecutive exact zeros of the sampler that can be an observation, and how many such
# runs there must be, beginning with the same token.
MIN_RUN = 2
MIN_RUNS = 3
# Two runs of this many tokens are enough.
LONG_RUN, MIN_LONG_RUNS = 8, 2
SAME_START = 0.5
# Nats: the other engine's sum over a run; that of certain tokens really is 0.
UNSURE = -1.0
# Share of rounds that begin with the end of the prompt, or contain an end of turn.
_MIN_SHARE = 0.3
# Tokens of padding at the end of a sample.
MIN_PADDING = 3
# Longest template under the mask, in tokens, and how many rounds have it.
MAX_TEMPLATE = 8
_NEARLY_ALL = 0.9
_MANY = 0.6


@register("mask_too_wide", kind="fact")
def mask_too_wide(view: View) -> Evidence | None:
    """Find observations or template tokens at which the mask is 1."""
    kinds = {
        f"{{}} tokens in runs of exact 0 in `{view.b}` begin with the same token, as"
        " tool results and templates do: the sampler never wrote them.": (
            observation_runs
        ),
        "Rounds after the first begin with {} tokens of the template, as no first round"
        " does: the header of the assistant's turn is under the mask.": _headers,
        "{} tokens at the start of rounds are the end of the template that stands"
        " before other rounds.": _openings,
        "{} tokens follow the one that ends a turn and are under the mask.": (
            _beyond_turns
        ),
        "{} tokens at the end of samples repeat one id and are exactly 0 in both"
        " columns: padding is under the mask.": _padding_tails,
    }
    found = {
        text: tokens for text, find in kinds.items() if (tokens := find(view)).any()
    }
    if not found:
        return None
    text, tokens = next(iter(found.items()))
    every = np.logical_or.reduce([*found.values()])
    return _wide(view, every, text.format(f"{int(tokens.sum()):,}"))


def not_written(view: View) -> Array:
    """Return tokens under the mask that the model did not write."""
    if "not_written" not in view.memo:
        flags = observation_runs(view) | _headers(view)
        flags |= _openings(view) | _beyond_turns(view)
        moved = mask_offset(view)
        if moved is not None:
            flags |= moved.tokens
        view.memo["not_written"] = flags
    known: Array = view.memo["not_written"]
    return known


def _padding_tails(view: View) -> Array:
    """Return ends of samples that repeat one id, exactly 0 in both columns."""
    same_id = np.r_[view.token_id[1:] == view.token_id[:-1], False]
    is_last = np.r_[view.sample[1:] != view.sample[:-1], True]
    zero = (view.log_prob_a == 0) & (view.log_prob_b == 0)
    goes_on = zero & (is_last | same_id)
    # Whether all tokens from here to the end of the sample are so.
    index = np.arange(len(view))
    ends = np.flatnonzero(is_last)
    begins = np.r_[0, ends[:-1] + 1]
    last_other = np.maximum.reduceat(np.where(goes_on, -1, index), begins)
    size = ends - np.maximum(last_other, begins - 1)
    tokens = np.repeat(np.where(size >= MIN_PADDING, size, 0), ends - begins + 1)
    tail: Array = np.repeat(ends, ends - begins + 1) - index < tokens
    return tail if (size >= MIN_PADDING).sum() > 1 else np.zeros(len(view), dtype=bool)


def _wide(view: View, tokens: Array, explanation: str) -> Evidence:
    return Evidence(
        tokens=tokens,
        measures=(
            Measure(
                name="tokens not written by the model",
                value=float(tokens.sum()),
                unit="tokens",
            ),
            Measure(
                name="mean |diff| there",
                value=float(view.abs_diff[tokens].mean()),
                unit="nat",
            ),
        ),
        shown=explanation,
        next_step=(
            "Use the mask of generated tokens (verl: `response_mask`, not the "
            "attention mask) in the loss and in the metric."
        ),
    )


def observation_runs(view: View) -> Array:
    """Return tokens in runs of exact 0 in the sampler that begin alike."""
    empty = np.zeros(len(view), dtype=bool)
    zero = view.log_prob_b == 0
    if zero.sum() < MIN_RUNS:
        return empty
    begins = zero & ~(np.r_[False, zero[:-1]] & view.follows)
    run = np.cumsum(begins) - 1
    inside = np.flatnonzero(zero)
    run_of = run[inside]
    num = np.bincount(run_of)
    unlikely = np.bincount(run_of, weights=view.log_prob_a[inside]) < UNSURE
    first = np.flatnonzero(begins)
    # The run ends before its sample does; a filled tail does not.
    last = first + num - 1
    goes_on = np.r_[view.sample[1:] == view.sample[:-1], False][last]
    # At the border of two rounds a single token of the template is enough.
    starts = (
        (view.token[first] == 0) & (view.round[first] > 0) & ~_usual_start(view, first)
    )
    unlikely &= (view.token[first] > 0) | _never_written(view, first)
    stops = np.r_[view.segment[1:] != view.segment[:-1], True][last] & goes_on
    at_border = starts | stops
    long = ((num >= MIN_RUN) | at_border) & unlikely & (goes_on | starts)
    is_enough = (long & (num >= LONG_RUN)).sum() >= MIN_LONG_RUNS
    if long.sum() < MIN_RUNS and not is_enough:
        return empty
    ids, counts = np.unique(view.token_id[first[long]], return_counts=True)
    if counts.max() < SAME_START * long.sum():
        return empty
    alike = np.isin(view.token_id[first], ids[counts >= _MIN_SHARE * counts.max()])
    flags = empty.copy()
    flags[inside] = (((num >= MIN_RUN) | at_border) & alike & unlikely)[run_of]
    return flags


def _never_written(view: View, tokens: Array) -> Array:
    """Return whether later rounds that begin with the ids of tokens have r = 0 there.

    Some rows that got the log-probs of other rows have one.
    """
    start = np.flatnonzero((view.token == 0) & (view.round > 0))
    known, code = np.unique(view.token_id[start], return_inverse=True)
    zero = np.bincount(code, weights=view.log_prob_b[start] == 0, minlength=len(known))
    at = np.minimum(
        np.searchsorted(known, view.token_id[tokens]), max(len(known) - 1, 0)
    )
    if not len(known):
        return np.zeros(len(tokens), dtype=bool)
    share = zero / np.bincount(code, minlength=len(known))
    never: Array = (known[at] == view.token_id[tokens]) & (share[at] > _MANY)
    return never


def _usual_start(view: View, tokens: Array) -> Array:
    """Return whether tokens have the id with which first rounds begin."""
    ids = view.token_id[(view.token == 0) & (view.round == 0)]
    if not len(ids):
        return np.zeros(len(tokens), dtype=bool)
    known, counts = np.unique(ids, return_counts=True)
    same: Array = view.token_id[tokens] == known[counts.argmax()]
    return same


def _headers(view: View) -> Array:
    """Return initial tokens that later rounds share and first rounds lack."""
    flags = np.zeros(len(view), dtype=bool)
    if view.batch.response_ids is None:
        return flags
    start = np.flatnonzero(view.token == 0)
    later, first = start[view.round[start] > 0], start[view.round[start] == 0]
    if min(len(later), len(first)) < MIN_RUNS:
        return flags
    for width in range(MAX_TEMPLATE):
        part = later[later + width < len(view)]
        part = part[view.segment[part + width] == view.segment[part]]
        at_first = first[first + width < len(view)]
        if len(part) < MIN_RUNS:
            break
        ids, counts = np.unique(view.token_id[part + width], return_counts=True)
        same = ids[counts.argmax()]
        is_alike = counts.max() > _NEARLY_ALL * len(part)
        is_new = (view.token_id[at_first] == same).mean() < 1 - _NEARLY_ALL
        if not (is_alike and is_new):
            break
        flags[part[view.token_id[part + width] == same] + width] = True
    return flags


def _openings(view: View) -> Array:
    """Return first tokens of rounds up to the id that precedes rounds elsewhere.

    The template before a round ends with one id. Where a round begins earlier, that id
    is inside of it, in nearly all rounds after the first of a sample.
    """
    flags = np.zeros(len(view), dtype=bool)
    if view.batch.response_ids is None:
        return flags
    later = np.flatnonzero((view.token == 0) & (view.round > 0))
    if len(later) < MIN_RUNS:
        return flags
    ids = view.batch.require_ids().cpu().numpy()
    before = ids[view.flat[later] - 1]
    known, counts = np.unique(before, return_counts=True)
    end = known[counts.argmax()]
    depth = np.zeros(len(later), dtype=np.int64)
    for k in range(MAX_TEMPLATE):
        at = np.minimum(later + k, len(view) - 1)
        inside = (view.segment[at] == view.segment[later]) & (view.token_id[at] == end)
        depth = np.where((depth == 0) & inside, k + 1, depth)
    odd = (before != end) & (depth > 0)
    size = view.batch.num_samples
    num = np.bincount(view.sample[later], minlength=size)
    hit = np.bincount(view.sample[later], odd, size) > _MANY * num
    odd &= hit[view.sample[later]]
    if (
        odd.sum() < MIN_RUNS
        or odd.sum() < _MANY * ((depth > 0) | (before != end)).sum()
    ):
        return flags
    for k in range(MAX_TEMPLATE):
        flags[later[odd & (depth > k)] + k] = True
    return flags


def _beyond_turns(view: View) -> Array:
    """Return tokens after the end of a turn, in rounds that are not the last."""
    flags = np.zeros(len(view), dtype=bool)
    if view.batch.response_ids is None or len(view) == 0:
        return flags
    stop = np.flatnonzero(np.r_[view.segment[1:] != view.segment[:-1], True])
    goes_on = np.r_[view.sample[1:] == view.sample[:-1], False][stop]
    inner, last = stop[goes_on], stop[~goes_on]
    if len(inner) < MIN_RUNS:
        return flags
    ids, counts = np.unique(view.token_id[last], return_counts=True)
    end = ids[counts.argmax()]
    if (
        counts.max() < _MIN_SHARE * len(last)
        or (view.token_id[inner] == end).mean() > SAME_START
    ):
        return flags
    for back in range(1, MAX_TEMPLATE + 1):
        part = inner[inner >= back]
        ends = (view.token_id[part - back] == end) & (
            view.segment[part - back] == view.segment[part]
        )
        if ends.mean() > _MANY:
            for k in range(back):
                flags[part[ends] - k] = True
            # Rounds that were cut off have the template without an end of turn.
            ids, counts = np.unique(view.token_id[part[ends]], return_counts=True)
            flags[inner[view.token_id[inner] == ids[counts.argmax()]]] = True
            break
    return flags
