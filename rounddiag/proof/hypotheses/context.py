"""Text that an engine did not read, read twice, or read of its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from rounddiag.proof.hypotheses.hypothesis import Edit, register_hypothesis
from rounddiag.proof.hypotheses.positions import restart_at
from rounddiag.proof.trajectory import PACKED, Places, Request, Samples, Trajectory

LONGEST_PACK = 16_384  # tokens


def drop_tokens(
    trajectory: Trajectory, gone: Tensor, *, compact: bool
) -> Request | None:
    """Leave tokens out; those after them move up, or keep their positions.

    A picture goes with the first of its tokens; none of its tokens may stay.
    """
    base = Request.of_sample(trajectory)
    shown = []
    gone = gone.clone()
    for picture, (start, stop) in zip(base.pictures, trajectory.spans, strict=True):
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


def _observations(trajectory: Trajectory, *, template: bool) -> Tensor:
    is_between = torch.zeros(len(trajectory.ids), dtype=torch.bool)
    opening = 0 if template else opening_length(trajectory)
    for (_, end), (start, _) in pairwise(trajectory.rounds):
        is_between[end : max(end, start - opening)] = True
    return is_between


def opening_length(trajectory: Trajectory) -> int:
    """Return how many tokens before each round are the same: the template's."""
    starts = [start for start, _ in trajectory.rounds[1:]]
    room = min(
        (
            start
            - max([end, *(stop for _, stop in trajectory.spans if end < stop <= start)])
            for (_, end), (start, _) in pairwise(trajectory.rounds)
        ),
        default=0,
    )
    for length in range(1, room + 1):
        if len({int(trajectory.ids[start - length]) for start in starts}) > 1:
            return length - 1
    return max(room - 1, 0)


def _mask_observations(*, template: bool, compact: bool) -> Edit:
    return lambda trajectory, _: drop_tokens(
        trajectory, _observations(trajectory, template=template), compact=compact
    )


_mask = partial(register_hypothesis, cause="context_masked", needs=("positions",))
_remove = partial(register_hypothesis, cause="context_masked")
_mask("observations_masked", "observations not attended to")(
    _mask_observations(template=False, compact=False)
)
_remove("observations_removed", "observations removed")(
    _mask_observations(template=False, compact=True)
)
_mask("responses_alone", "nothing between the rounds attended to")(
    _mask_observations(template=True, compact=False)
)


@_remove("prompt_masked", "no prompt")
def _drop_prompt(trajectory: Trajectory, samples: Samples) -> Request | None:
    return _drop_first(trajectory, trajectory.start - 1)


def _drop_first(trajectory: Trajectory, number: int) -> Request | None:
    gone = torch.arange(len(trajectory.ids)) < number
    return drop_tokens(trajectory, gone, compact=True)


_prompt = partial(register_hypothesis, cause="prompt_mismatch")


def _message_starts(trajectory: Trajectory) -> list[int]:
    if not trajectory.start:
        return []
    return (trajectory.ids == trajectory.ids[0]).nonzero()[:, 0].tolist()


@_prompt("first_message_removed", "no first message, such as the system prompt")
def _drop_first_message(trajectory: Trajectory, samples: Samples) -> Request | None:
    starts = _message_starts(trajectory)
    if len(starts) < 2 or starts[1] >= trajectory.start:  # noqa: PLR2004 a first and a second
        return None
    return _drop_first(trajectory, starts[1])


@_prompt("first_token_doubled", "its first token twice")
def _double_first(trajectory: Trajectory, samples: Samples) -> Request:
    return Request.of_sample(trajectory).prepend(trajectory.ids[:1])


def _replace_first_message(trajectory: Trajectory, ids: Tensor) -> Request | None:
    """Put other ids in place of the first message, or before the only one."""
    starts = _message_starts(trajectory)
    if not starts or starts[0]:
        return None
    end = starts[1] if len(starts) > 1 and starts[1] < trajectory.start else 0
    has_pictures = any(begin < end for begin, _ in trajectory.spans)
    if has_pictures or torch.equal(ids, trajectory.ids[:end]):
        return None
    base = Request.of_sample(trajectory)
    rest = base.keep(torch.arange(len(trajectory.ids)) >= end, base.pictures)
    return rest.prepend(ids)


@_prompt(
    "template_system_prompt",
    "the system prompt that the chat template has by default",
    needs=("chat",),
)
def _use_default(trajectory: Trajectory, samples: Samples) -> Request | None:
    opening = None if samples.chat is None else samples.chat.open_user_message()
    if not opening or not trajectory.start or opening.count(int(trajectory.ids[0])) < 2:  # noqa: PLR2004 its system prompt, and the user
        return None
    end = len(opening) - 1 - opening[::-1].index(int(trajectory.ids[0]))
    return _replace_first_message(trajectory, torch.tensor(opening[:end]))


@_prompt(
    "next_rows_first_message",
    "the first message of the next row, such as another system prompt",
)
def _use_other(trajectory: Trajectory, samples: Samples) -> Request | None:
    other = samples[(trajectory.sample + 1) % len(samples)]
    starts = _message_starts(other)
    if len(starts) < 2 or starts[1] >= other.start:  # noqa: PLR2004 a first and a second
        return None
    return _replace_first_message(trajectory, other.ids[: starts[1]])


@_remove("rounds_alone", "each round with the prompt only")
def _forget_rounds(trajectory: Trajectory, samples: Samples) -> list[Request] | None:
    """Score each round without the earlier ones, and with its own observation."""
    if len(trajectory.rounds) < 2:  # noqa: PLR2004 an earlier one
        return None
    requests = []
    end = trajectory.start
    index = torch.arange(len(trajectory.ids))
    for start, stop in trajectory.rounds:
        gone = ((index >= trajectory.start) & (index < end)) | (index >= stop)
        request = drop_tokens(trajectory, gone, compact=True)
        request = request or Request.of_sample(trajectory)
        requests.append(request.score_only(start, stop))
        end = stop
    return requests


def _pack(
    size: int = 0, *, step: int = -1, restart: bool = True, setting: str = ""
) -> Edit:
    """Let a row attend to those before it in its pack, or to one that is near."""

    def edit(trajectory: Trajectory, samples: Samples) -> Request | None:
        first = trajectory.sample - trajectory.sample % size if size else 0
        rows = range(first, trajectory.sample) if size else [trajectory.sample + step]
        before = [samples[row] for row in rows if 0 <= row < len(samples)]
        request = Request.of_sample(trajectory)
        length = sum(len(other.ids) for other in before)
        if length + len(trajectory.ids) > LONGEST_PACK:
            return None
        for other in reversed(before):
            request = request.prepend(other.ids, Request.of_sample(other).pictures)
        if not restart or not before:  # the first of its pack
            return request
        ends = torch.tensor([len(other.ids) for other in before]).cumsum(0).tolist()
        places = _with_text_row(ends) if setting else restart_at(ends)
        return replace(request, places=places, setting=setting)

    return edit


def _with_text_row(ends: Sequence[int]) -> Places:
    """Return restarted positions; of three axes, with those of the text before them.

    By these transformers finds where the rows of a pack begin.
    """
    restart = restart_at(ends)

    def places(positions: Tensor, sample: Tensor) -> Tensor:
        moved = restart(positions, sample)
        text = restart(torch.arange(positions.shape[-1])[None], sample)
        return moved if len(moved) == 1 else torch.cat([text, moved])

    return places


_packed = partial(register_hypothesis, cause="packing_leak", needs=("positions",))
_packed("previous_row_attended", "the previous row attended to, positions restarted")(
    _pack()
)
register_hypothesis(
    "previous_row_in_front",
    "the previous row in front of it, positions going on",
    cause="packing_leak",
)(_pack(restart=False))
_packed("next_row_attended", "the next row attended to, positions restarted")(
    _pack(step=1)
)
for _size in (2, 4, 8):
    _packed(
        f"pack_of_{_size}_attended",
        f"the rows before it in packs of {_size} attended to",
    )(_pack(_size))
for _size in (0, 2, 4, 8):
    _packed(
        f"state_of_pack_of_{_size}" if _size else "state_of_previous_row",
        "the linear layers' state went on from the row before"
        + (f", in packs of {_size}" if _size else ""),
        needs=("positions", "state"),
    )(_pack(_size, setting=PACKED))


@register_hypothesis(
    "padding_attended", "the left padding attended to", cause="packing_leak"
)
def _attend_padding(trajectory: Trajectory, samples: Samples) -> Request:
    number = samples.longest_prompt - trajectory.start
    base = Request.of_sample(trajectory)
    return base.prepend(torch.zeros(number, dtype=torch.long)) if number else base
