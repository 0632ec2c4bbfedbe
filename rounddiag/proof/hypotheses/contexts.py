"""Contexts of rounds other than those that the batch has: of samples joined from steps.

A chain of contexts is scored as a sample (`rounddiag.batch.chains`). These hypotheses
build the context of a round from those of other rounds of the same trajectory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.proof.hypotheses.history import without_thoughts
from rounddiag.proof.hypotheses.hypothesis import register_hypothesis
from rounddiag.proof.hypotheses.pictures import SHOWN
from rounddiag.proof.hypotheses.steps import Steps
from rounddiag.proof.trajectory import Picture, Request, Samples, Trajectory

ContextInput: TypeAlias = tuple[Tensor, tuple[Picture, ...]]
"""Ids and pictures of a context."""
OtherContext: TypeAlias = Callable[["Steps", int], "ContextInput | None"]
"""From a round of a trajectory to another context; None where it has no other one."""
_LONGEST_HEADER = 16  # ids


def _rewrite_contexts(
    rewrite: OtherContext,
) -> Callable[[Trajectory, Samples], list[Request] | None]:
    """Score each round of a chain in another context: a pass for each round.

    A round without another context is read as it is. None where that holds for all, and
    of a batch without rewritten contexts, for which `history` and `pictures` are.
    """

    def edit(trajectory: Trajectory, samples: Samples) -> list[Request] | None:
        if samples.chains.joined.contexts is None:
            return None
        chain = samples.chains.chains[trajectory.sample]
        steps = Steps(samples, chain.sample)
        base = Request.of_sample(trajectory)
        requests, is_changed = [], False
        for (start, stop), round_ in zip(trajectory.rounds, chain.rounds, strict=True):
            other = rewrite(steps, round_)
            if other is None:
                requests.append(base.before(trajectory, stop).score_only(start, stop))
                continue
            ids, pictures = other
            is_changed |= not torch.equal(ids, trajectory.ids[:start])
            is_changed |= pictures != base.before(trajectory, start).pictures
            request = Request.of_parts(trajectory, [ids, slice(start, stop)], pictures)
            requests.append(request)
        return requests if is_changed else None

    return edit


@register_hypothesis(
    "previous_image",
    "the newest image of the context before, in place of a context's own",
    cause="wrong_image",
    needs=SHOWN,
)
@_rewrite_contexts
def _show_previous(steps: Steps, round_: int) -> ContextInput | None:
    if not round_:
        return None
    own, before = steps.shown(round_), steps.shown(round_ - 1)
    if not own or not before or own[-1] == before[-1]:
        return None
    return steps.context(round_).ids, (*own[:-1], before[-1])


@register_hypothesis(
    "replies_as_written",
    "earlier replies in a rewritten context as they were written",
    cause="rewritten_history",
)
@_rewrite_contexts
def _write_replies(steps: Steps, round_: int) -> ContextInput | None:
    return _with_replies(steps, round_, steps.written)


def _with_replies(
    steps: Steps, round_: int, reply: Callable[[int], Array]
) -> ContextInput | None:
    ids = steps.context(round_).ids.numpy()
    parts, end = [], 0
    for earlier, start, stop in _replies(steps, round_, ids):
        parts += [ids[end:start], reply(earlier)]
        end = stop
    if not end:
        return None
    whole = np.concatenate([*parts, ids[end:]]).astype(np.int64)
    return torch.from_numpy(whole), steps.shown(round_)


def _replies(steps: Steps, round_: int, ids: Array) -> list[tuple[int, int, int]]:
    """Return the earlier rounds that a context has a reply of, and where it is.

    A reply stands between the ids with which all contexts end and the id with which
    most replies end. They are those of the rounds right before, in order.
    """
    header = _header(steps, round_)
    last = [int(steps.written(earlier)[-1]) for earlier in range(round_)]
    if not last or not len(header):
        return []
    ends = np.flatnonzero(ids == max(last, key=last.count))
    starts = _occurrences(ids, header)[:-1]
    stops = [ends[ends >= start][:1] + 1 for start in starts]
    if len(starts) > round_ or not all(map(len, stops)):
        return []
    earlier = range(round_ - len(starts), round_)
    return [*zip(earlier, starts, (int(stop[0]) for stop in stops), strict=True)]


def _header(steps: Steps, round_: int) -> Array:
    """Return the ids between the end of a message and a reply.

    They are the last ids of every context, from the last one with which a context's
    first id or a message begins: an id that stands at the start of the first context.
    """
    ends = [steps.context(at).ids.numpy() for at in range(min(round_ + 1, 3))]
    size = min(_LONGEST_HEADER, *map(len, ends))
    tails = np.stack([each[-size:] for each in ends])
    is_common = (tails == tails[0]).all(0)[::-1]
    size = int(is_common.argmin()) if not is_common.all() else size
    tail = ends[0][len(ends[0]) - size :]
    begins = np.flatnonzero(tail == ends[0][0])
    return tail[begins[-1] :] if len(begins) else tail


def _occurrences(ids: Array, part: Array) -> list[int]:
    if len(ids) < len(part):
        return []
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(part))
    return (np.flatnonzero((windows == part).all(1)) + len(part)).tolist()


@register_hypothesis(
    "replies_without_thoughts",
    "no thoughts in the earlier replies that a rewritten context has",
    cause="rewritten_history",
)
@_rewrite_contexts
def _drop_thoughts(steps: Steps, round_: int) -> ContextInput | None:
    tokenizer = steps.batch.tokenizer
    if tokenizer is None:
        return None

    def reply(earlier: int) -> Array:
        ids = without_thoughts(steps.written(earlier).tolist(), tokenizer)
        return np.array(ids, dtype=np.int64)

    return _with_replies(steps, round_, reply)


@register_hypothesis(
    "never_rewritten",
    "contexts that go on from the one before, as if none were rewritten",
    cause="rewritten_history",
)
@_rewrite_contexts
def _go_on(steps: Steps, round_: int) -> ContextInput | None:
    """Join all that entered before each round.

    What would have entered in place of a rewritten context is not recorded: it is taken
    as the last message that was appended, with the newest picture of the context.
    """
    sequence, rewritten = steps.sequence, steps.sequence.rewritten
    if not any(0 < at <= round_ for at in rewritten):
        return None
    ids = [sequence.ids[: sequence.starts[0]]]
    shown, appended = [*steps.shown(0)], None
    for at in range(1, round_ + 1):
        pictures = steps.shown(at)
        if at not in rewritten:
            appended = sequence.ids[sequence.entered_at(at) : sequence.starts[at]]
            shown.extend(pictures[len(steps.shown(at - 1)) :])
        elif appended is None:
            return None
        else:
            shown.extend(pictures[-1:])
        ids += [steps.written(at - 1), appended]
    return torch.from_numpy(np.concatenate(ids).astype(np.int64)), tuple(shown)


@register_hypothesis(
    "window_one_longer",
    "one image more: the newest of those that left the context",
    cause="image_window",
    needs=SHOWN,
)
@_rewrite_contexts
def _keep_longer(steps: Steps, round_: int) -> ContextInput | None:
    sequence = steps.sequence
    own = sequence.index(round_)
    seen = {*own.tolist()}
    limit = sequence.starts[round_]
    gone = [
        number
        for number, picture in enumerate(sequence.pictures)
        if picture.start not in seen and picture.start < limit
    ]
    if not gone:
        return None
    picture = sequence.pictures[gone[-1]]
    # Its markers left with it: ids next to it that this context does not have.
    start, stop = picture.start, picture.stop
    while start - 1 not in seen and start > 0 and picture.start - start < 1:
        start -= 1
    while stop not in seen and stop < limit and stop - picture.stop < 1:
        stop += 1
    earlier = np.flatnonzero(own < start)
    if not len(earlier):
        return None
    at = int(earlier[own[earlier].argmax()]) + 1
    index = np.concatenate([own[:at], np.arange(start, stop), own[at:]])
    own_pictures = steps.shown(round_)
    number = sum(place < at for place, _ in sequence.shown(own))
    pictures = (
        *own_pictures[:number],
        steps.pictures[gone[-1]],
        *own_pictures[number:],
    )
    return torch.from_numpy(sequence.ids[index].astype(np.int64)), pictures
