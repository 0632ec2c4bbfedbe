"""Text that an engine did not read, read twice, or read of its neighbours."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from rounddiag.proof.hypotheses.hypothesis import Edit, register
from rounddiag.proof.trajectory import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rounddiag.proof.trajectory import Samples, Trajectory

LONGEST_PACK = 16_384  # tokens


def drop_tokens(one: Trajectory, gone: Tensor, *, compact: bool) -> Request | None:
    """Leave tokens out; those after them move up, or keep their positions.

    A picture goes with the first of its tokens; none of its tokens may stay.
    """
    base = Request.of_sample(one)
    shown = []
    gone = gone.clone()
    for picture, (start, stop) in zip(base.pictures, one.spans, strict=True):
        inside = gone[start:stop]
        if inside.any():
            gone[start:stop] = True
        else:
            shown.append(picture)
    if not gone.any() or (bool(gone[0]) and not compact):
        return None
    request = base.keep(~gone, tuple(shown))
    if compact:
        return request
    index = request.source
    return replace(request, places=lambda _, sample: sample[..., index])


def _observations(one: Trajectory, *, template: bool) -> Tensor:
    """Return the tokens between rounds, with or without what opens a round."""
    found = torch.zeros(len(one.ids), dtype=torch.bool)
    opening = 0 if template else opening_length(one)
    for (_, end), (start, _) in pairwise(one.rounds):
        found[end : max(end, start - opening)] = True
    return found


def opening_length(one: Trajectory) -> int:
    """Return how many tokens before each round are the same: the template's."""
    starts = [start for start, _ in one.rounds[1:]]
    room = min(
        (
            start - max([end, *(stop for _, stop in one.spans if end < stop <= start)])
            for (_, end), (start, _) in pairwise(one.rounds)
        ),
        default=0,
    )
    for length in range(1, room + 1):
        if len({int(one.ids[start - length]) for start in starts}) > 1:
            return length - 1
    return max(room - 1, 0)


def _mask_observations(*, template: bool, compact: bool) -> Edit:
    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        del samples
        request = drop_tokens(
            one, _observations(one, template=template), compact=compact
        )
        return None if request is None else [request]

    return edit


register(
    "observations_masked",
    cause="context_masked",
    says="observations not attended to",
    needs=("positions",),
)(_mask_observations(template=False, compact=False))
register(
    "observations_removed",
    cause="context_masked",
    says="observations removed",
)(_mask_observations(template=False, compact=True))
register(
    "responses_alone",
    cause="context_masked",
    says="nothing between the rounds attended to",
    needs=("positions",),
)(_mask_observations(template=True, compact=False))


@register("prompt_masked", cause="context_masked", says="no prompt")
def _drop_prompt(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    del samples
    gone = torch.arange(len(one.ids)) < one.start - 1
    request = drop_tokens(one, gone, compact=True)
    return None if request is None else [request]


def _message_starts(one: Trajectory) -> list[int]:
    """Return where messages begin: at the token that opens the prompt."""
    if not one.start:
        return []
    return (one.ids == one.ids[0]).nonzero()[:, 0].tolist()


@register(
    "first_message_removed",
    cause="prompt_mismatch",
    says="no first message, such as the system prompt",
)
def _drop_first_message(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    del samples
    starts = _message_starts(one)
    if len(starts) < 2 or starts[1] >= one.start:  # noqa: PLR2004 a first and a second
        return None
    request = drop_tokens(one, torch.arange(len(one.ids)) < starts[1], compact=True)
    return None if request is None else [request]


@register("first_token_doubled", cause="prompt_mismatch", says="its first token twice")
def _double_first(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    del samples
    return [Request.of_sample(one).prepend(one.ids[:1])]


def _replace_first_message(one: Trajectory, ids: Tensor) -> list[Request] | None:
    """Put other ids in place of the first message, or before the only one."""
    starts = _message_starts(one)
    if not starts or starts[0]:
        return None
    end = starts[1] if len(starts) > 1 and starts[1] < one.start else 0
    if torch.equal(ids, one.ids[:end]) or any(begin < end for begin, _ in one.spans):
        return None
    base = Request.of_sample(one)
    kept = base.keep(torch.arange(len(one.ids)) >= end, base.pictures)
    return [kept.prepend(ids)]


@register(
    "template_system_prompt",
    cause="prompt_mismatch",
    says="the system prompt that the chat template has by default",
    needs=("chat",),
)
def _use_default(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    opening = None if samples.chat is None else samples.chat.open_user_message()
    if not opening or not one.start or opening.count(int(one.ids[0])) < 2:  # noqa: PLR2004 its system prompt, and the user
        return None
    end = len(opening) - 1 - opening[::-1].index(int(one.ids[0]))
    return _replace_first_message(one, torch.tensor(opening[:end]))


@register(
    "next_rows_first_message",
    cause="prompt_mismatch",
    says="the first message of the next row, such as another system prompt",
)
def _use_other(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    other = samples[(one.sample + 1) % len(samples)]
    starts = _message_starts(other)
    if len(starts) < 2 or starts[1] >= other.start:  # noqa: PLR2004 a first and a second
        return None
    return _replace_first_message(one, other.ids[: starts[1]])


@register(
    "rounds_alone", cause="context_masked", says="each round with the prompt only"
)
def _forget_rounds(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    """Score each round without the earlier ones, and with its own observation."""
    del samples
    if len(one.rounds) < 2:  # noqa: PLR2004 an earlier one
        return None
    requests = []
    end = one.start
    for start, stop in one.rounds:
        index = torch.arange(len(one.ids))
        gone = ((index >= one.start) & (index < end)) | (index >= stop)
        request = drop_tokens(one, gone, compact=True) or Request.of_sample(one)
        requests.append(request.score_only(start, stop))
        end = stop
    return [request for request in requests if not request.is_empty]


def _pack(size: int, *, restart: bool, step: int = -1) -> Edit:
    """Let a row attend to those before it in its pack, or to one that is near."""

    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        rows = (
            range(one.sample - one.sample % size, one.sample)
            if size
            else [one.sample + step]
        )
        before = [samples[row] for row in rows if 0 <= row < len(samples)]
        base = Request.of_sample(one)
        length = sum(len(other.ids) for other in before)
        if length + len(one.ids) > LONGEST_PACK:
            return None
        if not before:
            return [base]  # the first of its pack
        request = base
        for other in reversed(before):
            request = request.prepend(other.ids, Request.of_sample(other).pictures)
        if not restart:
            return [request]
        borders = [0]
        for other in before:
            borders.append(borders[-1] + len(other.ids))

        def places(positions: Tensor, sample: Tensor) -> Tensor:
            del sample
            found = positions.clone()
            for border in borders:
                first = positions[..., border, None]
                found[..., border:] = positions[..., border:] - first
            return found

        return [replace(request, places=places)]

    return edit


def _register_packs() -> None:
    register(
        "previous_row_attended",
        cause="packing_leak",
        says="the previous row attended to, positions restarted",
        needs=("positions",),
    )(_pack(0, restart=True))
    register(
        "previous_row_in_front",
        cause="packing_leak",
        says="the previous row in front of it, positions going on",
    )(_pack(0, restart=False))
    register(
        "next_row_attended",
        cause="packing_leak",
        says="the next row attended to, positions restarted",
        needs=("positions",),
    )(_pack(0, restart=True, step=1))
    for size in (2, 4, 8):
        register(
            f"pack_of_{size}_attended",
            cause="packing_leak",
            says=f"the rows before it in packs of {size} attended to",
            needs=("positions",),
        )(_pack(size, restart=True))


_register_packs()


@register("padding_attended", cause="packing_leak", says="the left padding attended to")
def _attend_padding(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    number = samples.longest_prompt - one.start
    base = Request.of_sample(one)
    return [base.prepend(torch.zeros(number, dtype=torch.long))] if number else [base]
