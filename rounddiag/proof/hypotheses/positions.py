"""Positions of the rotary embedding that an engine may have used instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from rounddiag.proof.hypotheses.hypothesis import Edit, register_hypothesis
from rounddiag.proof.hypotheses.pictures import count_tokens
from rounddiag.proof.trajectory import Places, Request, Samples, Trajectory

_text = partial(register_hypothesis, cause="position_ids", needs=("positions",))
_seen = partial(
    register_hypothesis, cause="position_ids", needs=("pictures", "positions")
)


def _place(make: Callable[[Trajectory], Places], *, images: bool = False) -> Edit:
    def edit(trajectory: Trajectory, samples: Samples) -> Request | None:
        if images and not trajectory.spans:
            return None
        return replace(Request.of_sample(trajectory), places=make(trajectory))

    return edit


_in_images = partial(_place, images=True)
_seen("counted_positions", "positions that count tokens, also inside of images")(
    _in_images(lambda _: count_tokens)
)
_text("bfloat16_positions", "position ids that went through bfloat16")(
    _place(lambda _: lambda positions, _: positions.bfloat16().long())
)


def restart_at(starts: Sequence[int]) -> Places:
    """Return positions that begin at 0 again at some tokens."""

    def places(positions: Tensor, sample: Tensor) -> Tensor:
        moved = positions.clone()
        for start in starts:
            if start < positions.shape[-1]:
                moved[..., start:] = positions[..., start:] - positions[..., [start]]
        return moved

    return places


_text(
    "positions_restart_at_response",
    "positions that begin at 0 again where the response begins",
)(_place(lambda trajectory: restart_at([trajectory.start] if trajectory.start else [])))
_text("positions_restart_at_rounds", "positions that begin at 0 again in each round")(
    _place(lambda trajectory: restart_at([start for start, _ in trajectory.rounds]))
)
_text(
    "positions_restart_at_observations",
    "positions that begin at 0 again after each round, at the observation",
)(_place(lambda trajectory: restart_at([stop for _, stop in trajectory.rounds])))


def _shift_from(starts: Sequence[int], gap: int) -> Places:
    """Return positions that are larger by a gap from each of some tokens on."""

    def places(positions: Tensor, sample: Tensor) -> Tensor:
        moved = positions.clone()
        for start in starts:
            moved[..., start:] += gap
        return moved

    return places


@_text(
    "response_positions_after_padding",
    "positions of the response that go on from the longest prompt",
)
def _after_padding(trajectory: Trajectory, samples: Samples) -> Request:
    """Let the response go on after the longest prompt, to which all are padded."""
    gap = samples.longest_prompt - trajectory.start
    base = Request.of_sample(trajectory)
    return replace(base, places=_shift_from([trajectory.start], gap)) if gap else base


def _shift_after(
    spans: Sequence[tuple[int, int]], follow: Callable[[Tensor, int, int], Tensor]
) -> Places:
    """Let what is behind each picture go on from where `follow` says."""

    def places(positions: Tensor, sample: Tensor) -> Tensor:
        moved = positions.clone()
        for start, stop in spans:
            if stop < positions.shape[-1]:
                moved[..., stop:] += follow(moved, start, stop) - moved[..., [stop]]
        return moved

    return places


_seen(
    "positions_count_image_tokens", "text positions that count every token of an image"
)(
    _in_images(
        lambda trajectory: _shift_after(
            trajectory.spans,
            lambda moved, start, stop: moved[:1, [start]] + stop - start,
        )
    )
)
_seen(
    "positions_per_axis",
    "after an image each axis goes on from its own largest position",
)(
    _in_images(
        lambda trajectory: _shift_after(
            trajectory.spans,
            lambda moved, start, stop: moved[..., start:stop].amax(-1)[..., None] + 1,
        )
    )
)
_seen(
    "response_positions_count_prompt_tokens",
    "positions of the response that go on from the number of prompt tokens",
)(
    _in_images(
        lambda trajectory: _shift_after(
            [(0, trajectory.start)] if trajectory.start else [],
            lambda moved, start, stop: moved[:1, [stop]] * 0 + stop,
        )
    )
)


@_text("saved_positions", "the position ids that the file has")
def _use_saved(trajectory: Trajectory, samples: Samples) -> Request | None:
    """Read the positions of the file, if they are those of all tokens."""
    saved = samples.batch.position_ids
    if saved is None:
        return None
    rows = torch.as_tensor(saved[trajectory.sample])
    rows = rows[None] if rows.dim() == 1 else rows
    rows = rows[-3:]  # a first row of four counts text
    size = len(trajectory.ids)  # without image tokens at the end
    if rows.shape[-1] < size:
        return None
    own = rows.long()[..., :size]
    base = Request.of_sample(trajectory)
    return replace(base, places=lambda positions, _: own.expand_as(positions))
