"""The mask against the template: tokens under it that the model did not write."""

from __future__ import annotations

import numpy as np
import torch

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.layout import real_rows
from rounddiag.checks.contracts import (
    LEVEL,
    Contract,
    Fault,
    fault_at,
    fault_in,
    merge_faults,
)
from rounddiag.checks.written import Written
from rounddiag.core.columns import to_numpy
from rounddiag.core.sums import pack_tokens

# A run of so many exact zeros of the sampler can be an observation, if there are so
# many runs, or a few long ones.
_MIN_RUN, _MIN_RUNS = 2, 3  # tokens; runs
_LONG_RUN, _MIN_LONG_RUNS = 8, 2  # tokens; runs
_SAME_START = 0.5  # least share of the runs that begin with the same token
# Nats: the sum of the other engine's log-probs over a run is below it. The log-probs of
# certain tokens really are 0.
_UNSURE = -1.0
# Least share of the rounds that begin with the end of the prompt, or that have an end
# of turn inside.
_MIN_SHARE = 0.3
_MIN_PADDING = 3  # tokens of padding at the end of a sample
MASKED_PADDING = "num_masked_padding"  # a sample column: 1s of the mask that were cut
_MAX_TEMPLATE = 8  # tokens of the longest template under the mask
# Shares of the tokens, or rounds, that must be alike: of a template, and of what may be
# one.
_NEARLY_ALL, _MANY = 0.9, 0.6


def _covers_template(batch: Batch) -> Fault | None:
    padded = np.flatnonzero(batch.sample_columns.get(MASKED_PADDING, np.zeros(0)))
    words = "with 1s of the mask in the padding, which are left out"
    inverted, fault = _inverted_rows(batch), fault_in(padded.tolist(), words)
    if (inverted or fault) and batch.lacks("old", "rollout"):
        return merge_faults([inverted, fault])
    batch.require_ids()
    written = Written.from_batch(batch)
    faults = [
        fault_at(
            batch,
            batch.offsets.new_tensor(written.flat[find(written)]),
            words,
            is_exact=find in _OF_ZEROS,
        )
        for find, words in _KINDS.items()
    ]
    return written.unless_forced(merge_faults([inverted, *faults, fault]))


def _inverted_rows(batch: Batch) -> Fault | None:
    """Find rows with log-probs only where the mask is 0, beside others.

    By chance all of a row's tokens are exactly 0 with the share of zeros in the others.
    """
    both = (batch.rollout_log_probs, batch.old_log_probs)
    if not len(batch.rounds):
        return None
    owner, num_tokens = (
        to_numpy(values) for values in (batch.rounds.sample, batch.rounds.num_tokens)
    )
    begins = np.cumsum(num_tokens) - num_tokens
    num = np.bincount(owner, num_tokens, len(batch))
    inverted = np.zeros(len(batch), dtype=bool)
    for values in (column for column in both if column is not None):
        is_known = _has_value(pack_tokens(batch, values)).view(np.uint8)
        of_rounds = np.add.reduceat(is_known, begins, dtype=np.int64)
        inside = np.bincount(owner, of_rounds, len(batch))
        odd = (num > 0) & (inside == 0)
        rows = real_rows(batch, values)
        for row in np.flatnonzero(odd):
            odd[row] = _has_value(to_numpy(rows[row])).any()
        share = 1 - (inside[~odd].sum() + 1) / (num[~odd].sum() + 2)
        is_rare = len(batch) * len(both) * share**num < LEVEL
        inverted |= odd & is_rare & (num[~odd].sum() > 0)
    words = "of rows whose mask leaves out every token that has a log-prob, as an"
    chosen = np.repeat(inverted[owner], num_tokens)
    flat = np.repeat(to_numpy(batch.rounds.start) - begins, num_tokens)[chosen]
    tokens = torch.from_numpy(flat + np.flatnonzero(chosen))
    return fault_at(batch, tokens, f"{words} inverted one does")


def _has_value(log_probs: Array) -> Array:
    return np.isfinite(log_probs) & (log_probs != 0)


def find_unwritten(written: Written) -> Array:
    """Return the tokens that stand where observations or a template do."""
    flags = [find(written) for find in _KINDS if find is not _padding_tails]
    return np.logical_or.reduce(flags)


def _padding_tails(written: Written) -> Array:
    """Return ends of samples that repeat one id, exactly 0 in both columns."""
    same_id = np.r_[written.token_id[1:] == written.token_id[:-1], False]
    zero = (written.old == 0) & (written.rollout == 0)
    size = written.size_of_end(zero & (written.ends_sample | same_id))
    is_long = size >= _MIN_PADDING
    return is_long & (len(np.unique(written.sample[is_long])) > 1)


def _observation_runs(written: Written) -> Array:
    empty = np.zeros(len(written), dtype=bool)
    zero = written.rollout == 0
    if zero.sum() < _MIN_RUNS or written.may_be_forced:
        return empty
    begins = zero & ~(np.r_[False, zero[:-1]] & written.follows)
    run = np.cumsum(begins) - 1
    inside = np.flatnonzero(zero)
    run_of = run[inside]
    num = np.bincount(run_of)
    unlikely = np.bincount(run_of, weights=written.old[inside]) < _UNSURE
    first = np.flatnonzero(begins)
    # The run ends before its sample does; a filled tail does not.
    last = first + num - 1
    goes_on = ~written.ends_sample[last]
    # At the border of two rounds a single token of the template is enough.
    starts = (written.token[first] == 0) & (written.round[first] > 0)
    starts &= ~_usual_start(written, first)
    unlikely &= (written.token[first] > 0) | _never_written(written, first)
    stops = written.ends_round[last] & goes_on
    at_border = starts | stops
    long = ((num >= _MIN_RUN) | at_border) & unlikely & (goes_on | starts)
    is_enough = (long & (num >= _LONG_RUN)).sum() >= _MIN_LONG_RUNS
    if long.sum() < _MIN_RUNS and not is_enough:
        return empty
    ids, counts = np.unique(written.token_id[first[long]], return_counts=True)
    if counts.max() < _SAME_START * long.sum():
        return empty
    alike = np.isin(written.token_id[first], ids[counts >= _MIN_SHARE * counts.max()])
    flags = empty.copy()
    flags[inside] = (((num >= _MIN_RUN) | at_border) & alike & unlikely)[run_of]
    return flags


def _never_written(written: Written, tokens: Array) -> Array:
    """Return whether later rounds that begin with the ids of tokens have r = 0 there.

    Some rows that got the log-probs of other rows have one.
    """
    start = np.flatnonzero((written.token == 0) & (written.round > 0))
    known, code = np.unique(written.token_id[start], return_inverse=True)
    zero = np.bincount(code, weights=written.rollout[start] == 0, minlength=len(known))
    at = np.minimum(
        np.searchsorted(known, written.token_id[tokens]), max(len(known) - 1, 0)
    )
    if not len(known):
        return np.zeros(len(tokens), dtype=bool)
    share = zero / np.bincount(code, minlength=len(known))
    return (known[at] == written.token_id[tokens]) & (share[at] > _MANY)


def _usual_start(written: Written, tokens: Array) -> Array:
    ids = written.token_id[(written.token == 0) & (written.round == 0)]
    if not len(ids):
        return np.zeros(len(tokens), dtype=bool)
    return written.token_id[tokens] == _commonest(ids)[0]


def _commonest(ids: Array) -> tuple[int, int]:
    """Return the id that most of some tokens have, and how many do."""
    known, counts = np.unique(ids, return_counts=True)
    return known[counts.argmax()], counts.max()


def _headers(written: Written) -> Array:
    """Return initial tokens that later rounds share and first rounds lack."""
    flags = np.zeros(len(written), dtype=bool)
    if written.ids is None:
        return flags
    start = np.flatnonzero(written.token == 0)
    later, first = start[written.round[start] > 0], start[written.round[start] == 0]
    if min(len(later), len(first)) < _MIN_RUNS:
        return flags
    for width in range(_MAX_TEMPLATE):
        part = later[later + width < len(written)]
        part = part[written.segment[part + width] == written.segment[part]]
        at_first = first[first + width < len(written)]
        if len(part) < _MIN_RUNS:
            break
        same, num = _commonest(written.token_id[part + width])
        is_alike = num > _NEARLY_ALL * len(part)
        num_same = (written.token_id[at_first] == same).sum()
        is_new = num_same < (1 - _NEARLY_ALL) * len(at_first)
        if not (is_alike and is_new):
            break
        flags[part[written.token_id[part + width] == same] + width] = True
    return flags


def _openings(written: Written) -> Array:
    """Return first tokens of rounds up to the id that precedes rounds elsewhere.

    The template before a round ends with one id. Where a round begins earlier, that id
    is inside of it, in nearly all rounds after the first of a sample.
    """
    flags = np.zeros(len(written), dtype=bool)
    if written.ids is None:
        return flags
    later = np.flatnonzero((written.token == 0) & (written.round > 0))
    if len(later) < _MIN_RUNS:
        return flags
    before = written.ids[written.flat[later] - 1]
    end, _ = _commonest(before)
    depth = np.zeros(len(later), dtype=np.int64)
    for k in range(_MAX_TEMPLATE):
        at = np.minimum(later + k, len(written) - 1)
        inside = (written.segment[at] == written.segment[later]) & (
            written.token_id[at] == end
        )
        depth = np.where((depth == 0) & inside, k + 1, depth)
    odd = (before != end) & (depth > 0)
    size = int(written.sample[-1]) + 1
    num = np.bincount(written.sample[later], minlength=size)
    hit = np.bincount(written.sample[later], odd, size) > _MANY * num
    odd &= hit[written.sample[later]]
    if (
        odd.sum() < _MIN_RUNS
        or odd.sum() < _MANY * ((depth > 0) | (before != end)).sum()
    ):
        return flags
    for k in range(_MAX_TEMPLATE):
        flags[later[odd & (depth > k)] + k] = True
    return flags


def _beyond_turns(written: Written) -> Array:
    flags = np.zeros(len(written), dtype=bool)
    if written.ids is None or len(written) == 0:
        return flags
    stop = np.flatnonzero(written.ends_round)
    goes_on = ~written.ends_sample[stop]
    inner, last = stop[goes_on], stop[~goes_on]
    if len(inner) < _MIN_RUNS:
        return flags
    end, num = _commonest(written.token_id[last])
    is_inner = (written.token_id[inner] == end).mean() > _SAME_START
    if num < _MIN_SHARE * len(last) or is_inner:
        return flags
    for back in range(1, _MAX_TEMPLATE + 1):
        part = inner[inner >= back]
        ends = (written.token_id[part - back] == end) & (
            written.segment[part - back] == written.segment[part]
        )
        if ends.sum() > _MANY * len(ends):
            for k in range(back):
                flags[part[ends] - k] = True
            # Rounds that were cut off have the template without an end of turn.
            first, _ = _commonest(written.token_id[part[ends]])
            flags[inner[written.token_id[inner] == first]] = True
            break
    return flags


_KINDS = {
    _observation_runs: "in runs of exact 0 of the sampler that begin with one token, as"
    " tool results and templates do",
    _headers: "of the template at the start of rounds after the first, as no first"
    " round has them",
    _openings: "at the start of rounds are the end of the template that stands before"
    " other rounds",
    _beyond_turns: "after the one that ends a turn",
    _padding_tails: "at the end of samples repeat one id and are exactly 0 in both"
    " columns, as padding is",
}
_OF_ZEROS = {_observation_runs, _padding_tails}
COVERS_WRITTEN = Contract(
    "the mask covers only what the model wrote",
    "response_mask",
    _covers_template,
    effect="text that the model did not write is trained",
    kind="bug",
    cause="mask_too_wide",
    advice="Use the mask of generated tokens (verl: `response_mask`, not the attention"
    " mask) in the loss and in the metric.",
)
