"""`mask_too_wide` and `mask_punched`: the mask has 1s, or 0s, in wrong places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag.findings.view import Array, View

# Consecutive exact zeros of the sampler that can be an observation, and how many such
# runs there must be, beginning with the same token.
MIN_RUN = 2
MIN_RUNS = 3
SAME_START = 0.5
# Nats: the sum of the other engine over a run; sure tokens are truly 0.
UNSURE = -1.0
# Share of rounds that begin with the end of the prompt, or hold an end of turn.
MIN_SHARE = 0.3
# Longest hole that a rejection leaves, in tokens.
MAX_HOLE = 3


@register("mask_too_wide", stage="exact")
def mask_too_wide(view: View) -> Evidence | None:
    """Find observations or template tokens at which the mask is 1."""
    observed = observation_runs(view)
    if observed.any():
        num = int(observed.sum())
        return _wide(
            view,
            observed,
            f"{num} tokens in runs of exact 0 in `{view.b}` begin with the same token, "
            "as tool results and templates do: the sampler never wrote them.",
        )
    headers = _headers(view)
    if headers.any():
        return _wide(
            view,
            headers,
            f"{int(headers.sum())} tokens at the start of rounds repeat the end of the "
            "prompt: the header of the assistant's turn is under the mask.",
        )
    beyond = _beyond_turns(view)
    if beyond.any():
        return _wide(
            view,
            beyond,
            f"The token that ends rounds stands inside of rounds too; {int(beyond.sum())}"
            " tokens between it and the next turn are under the mask.",
        )
    return None


def _wide(view: View, tokens: Array, explanation: str) -> Evidence:
    return Evidence(
        score=0.95,
        tokens=tokens,
        measures=(
            Measure(
                name="tokens not written by the model",
                value=float(tokens.sum()),
                unit="tokens",
            ),
            Measure(
                name="mean |diff| there",
                value=float(view.abs[tokens].mean()),
                unit="nat",
            ),
        ),
        explanation=explanation,
        next_step=(
            "Use the mask of generated tokens (verl: `response_mask`, not the attention "
            "mask) in the loss and in the metric."
        ),
    )


def observation_runs(view: View) -> Array:
    """Return tokens in runs of exact 0 in the sampler that begin alike."""
    empty = np.zeros(len(view), dtype=bool)
    zero = view.r == 0
    if zero.sum() < MIN_RUN * MIN_RUNS:
        return empty
    begins = zero & ~(np.r_[False, zero[:-1]] & view.follows)
    run = np.cumsum(begins) - 1
    inside = np.flatnonzero(zero)
    run_of = run[inside]
    num = np.bincount(run_of)
    unlikely = np.bincount(run_of, weights=view.o[inside]) < UNSURE
    first = np.flatnonzero(begins)
    # The run ends before the end of its sample: a filled tail does not.
    last = first + num - 1
    goes_on = np.r_[view.sample[1:] == view.sample[:-1], False][last]
    long = (num >= MIN_RUN) & unlikely & goes_on
    if long.sum() < MIN_RUNS:
        return empty
    ids, counts = np.unique(view.id[first[long]], return_counts=True)
    if counts.max() < SAME_START * long.sum():
        return empty
    alike = np.isin(view.id[first], ids[counts >= MIN_SHARE * counts.max()])
    flags = empty.copy()
    flags[inside] = ((num >= MIN_RUN) & alike & unlikely)[run_of]
    return flags


def _headers(view: View) -> Array:
    """Return the first tokens of rounds that repeat the last tokens of the prompt."""
    flags = np.zeros(len(view), dtype=bool)
    batch = view.batch
    if batch.prompt_ids is None or batch.prompt_offsets is None or batch.is_redacted:
        return flags
    ends = batch.prompt_offsets.cpu().numpy()
    prompt = batch.prompt_ids.cpu().numpy()
    start = np.flatnonzero((view.token == 0) & (view.round > 0))
    if len(start) < MIN_RUNS:
        return flags
    for width in range(6, 1, -1):
        whole = start[start + width <= len(view)]
        whole = whole[view.segment[whole + width - 1] == view.segment[whole]]
        whole = whole[
            (ends[view.sample[whole] + 1] - ends[view.sample[whole]]) >= width
        ]
        if len(whole) < MIN_RUNS:
            continue
        steps = np.arange(width)
        tail = prompt[ends[view.sample[whole] + 1][:, None] - width + steps]
        same = (view.id[whole[:, None] + steps] == tail).all(axis=1)
        if same.sum() > MIN_SHARE * len(start):
            flags[(whole[same][:, None] + steps).ravel()] = True
            return flags
    return flags


def _beyond_turns(view: View) -> Array:
    """Return tokens of rounds that follow the token with which rounds end."""
    flags = np.zeros(len(view), dtype=bool)
    if view.batch.is_redacted or len(view) == 0:
        return flags
    last = np.r_[view.segment[1:] != view.segment[:-1], True]
    ids, counts = np.unique(view.id[last], return_counts=True)
    if counts.max() < MIN_RUNS or counts.max() < 0.5 * last.sum():
        return flags
    end = ids[counts.argmax()]
    inner = (view.id == end) & ~last
    with_inner = np.unique(view.segment[inner]).size
    if inner.sum() < MIN_RUNS or with_inner < MIN_SHARE * last.sum():
        return flags
    # A turn's end that recurs so often is no end: two in a short stretch.
    order = np.cumsum(inner)
    at_start = np.r_[True, view.segment[1:] != view.segment[:-1]]
    before = order - inner
    base = np.maximum.accumulate(np.where(at_start, before, 0))
    return (before - base) % 2 == 1


@register("mask_punched", stage="exact")
def mask_punched(view: View) -> Evidence | None:
    """Find short holes of the mask where the sampler has log-probs."""
    rounds = view.batch.rounds
    sample, start = rounds.sample.cpu().numpy(), rounds.start.cpu().numpy()
    stop = start + rounds.num_tokens.cpu().numpy()
    same = sample[1:] == sample[:-1]
    gap, at = (start[1:] - stop[:-1])[same], stop[:-1][same]
    short = (gap > 0) & (gap <= MAX_HOLE)
    if short.sum() < MIN_RUNS:
        return None
    values = view.batch.log_probs(view.b).float().cpu().numpy()
    written = _written(values, at, gap)
    holes = short & written
    observed = gap > MAX_HOLE
    if holes.sum() < MIN_RUNS or (observed & written).sum() > holes.sum():
        return None
    place = np.concatenate([at[holes] + k for k in range(MAX_HOLE)])
    place = place[np.concatenate([gap[holes] > k for k in range(MAX_HOLE)])]
    others = view.batch.log_probs(view.a).float().cpu().numpy()
    away = float(np.nanmean(np.abs(others[place] - values[place])))
    kept = float(view.abs.mean())
    return Evidence(
        score=0.95,
        tokens=np.zeros(len(view), dtype=bool),
        adds_mismatch=False,
        where={"samples": np.unique(sample[1:][same][holes])},
        measures=(
            Measure(name="holes", value=float(holes.sum())),
            Measure(name="mean |diff| in the holes", value=away, unit="nat"),
            Measure(name="mean |diff| of kept tokens", value=kept, unit="nat"),
        ),
        explanation=(
            f"The mask has {int(holes.sum())} holes of at most {MAX_HOLE} tokens where "
            f"`{view.b}` has log-probs; mean |diff| is {away:.3g} nat in them and "
            f"{kept:.3g} nat elsewhere. That is what a rejection rule leaves."
        ),
        next_step=(
            "Save the batch before the rejection (verl: before "
            "`compute_rollout_correction_and_add_to_batch`), or pass the mask after it as "
            "`loss_mask`."
        ),
    )


def _written(values: Array, at: Array, gap: Array) -> Array:
    """Return whether a gap has a log-prob at each of its first tokens."""
    flags = np.ones(len(at), dtype=bool)
    for k in range(MAX_HOLE):
        index = np.minimum(at + k, len(values) - 1)
        flags &= (gap <= k) | (values[index] != 0)
    return flags
