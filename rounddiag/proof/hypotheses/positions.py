"""Positions of the rotary embedding that an engine may have used instead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rounddiag.proof.hypotheses.hypothesis import Edit, register
from rounddiag.proof.hypotheses.pictures import count_tokens
from rounddiag.proof.trajectory import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from rounddiag.proof.trajectory import Places, Samples, Trajectory


def _place(make: Callable[[Trajectory], Places], *, images: bool = False) -> Edit:
    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        del samples
        if images and not one.spans:
            return None
        return [replace(Request.of_sample(one), places=make(one))]

    return edit


register(
    "counted_positions",
    cause="position_ids",
    says="positions that count tokens, also inside of images",
    needs=("pictures", "positions"),
)(_place(lambda _: count_tokens, images=True))


def _bfloat16(positions: Tensor, sample: Tensor) -> Tensor:
    del sample
    return positions.bfloat16().long()


register(
    "bfloat16_positions",
    cause="position_ids",
    says="position ids that went through bfloat16",
    needs=("positions",),
)(_place(lambda _: _bfloat16))


def _restart(starts: Callable[[Trajectory], Sequence[int]]) -> Edit:
    """Begin positions at 0 again at some tokens."""

    def make(one: Trajectory) -> Places:
        def places(positions: Tensor, sample: Tensor) -> Tensor:
            del sample
            found = positions.clone()
            for start in starts(one):
                first = positions[..., start, None]
                found[..., start:] = positions[..., start:] - first
            return found

        return places

    return _place(make)


register(
    "positions_restart_at_response",
    cause="position_ids",
    says="positions that begin at 0 again where the response begins",
    needs=("positions",),
)(_restart(lambda one: [one.start] if 0 < one.start < len(one.ids) else []))
register(
    "positions_restart_at_rounds",
    cause="position_ids",
    says="positions that begin at 0 again in each round",
    needs=("positions",),
)(_restart(lambda one: [start for start, _ in one.rounds]))


register(
    "positions_restart_at_observations",
    cause="position_ids",
    says="positions that begin at 0 again after each round, at the observation",
    needs=("positions",),
)(_restart(lambda one: [stop for _, stop in one.rounds if stop < len(one.ids)]))


def _after_padding(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    """Let the response go on after the longest prompt, to which all are padded."""
    gap = samples.longest_prompt - one.start
    base = Request.of_sample(one)
    return [replace(base, places=shift_from([one.start], gap))] if gap else [base]


register(
    "response_positions_after_padding",
    cause="position_ids",
    says="positions of the response that go on from the longest prompt",
    needs=("positions",),
)(_after_padding)


def shift_from(starts: Sequence[int], gap: int) -> Places:
    """Return positions that are larger by a gap from each of some tokens on."""

    def places(positions: Tensor, sample: Tensor) -> Tensor:
        del sample
        found = positions.clone()
        for start in starts:
            found[..., start:] += gap
        return found

    return places


def _count_image_tokens(one: Trajectory) -> Places:
    """Let text go on as if a picture took as many positions as it has tokens."""

    def places(positions: Tensor, sample: Tensor) -> Tensor:
        del sample
        found = positions.clone()
        for start, stop in one.spans:
            if stop < positions.shape[-1]:
                follow = int(found[0, start]) + stop - start
                found[..., stop:] += follow - int(found[0, stop])
        return found

    return places


register(
    "positions_count_image_tokens",
    cause="position_ids",
    says="text positions that count every token of an image",
    needs=("pictures", "positions"),
)(_place(_count_image_tokens, images=True))


def _per_axis(one: Trajectory) -> Places:
    """Let each axis go on from its own largest position, not from that of all."""

    def places(positions: Tensor, sample: Tensor) -> Tensor:
        del sample
        found = positions.clone()
        for start, stop in one.spans:
            if stop >= positions.shape[-1]:
                continue
            follow = found[..., start:stop].amax(-1) + 1
            shift = follow - found[..., stop]
            found[..., stop:] += shift[..., None]
        return found

    return places


register(
    "positions_per_axis",
    cause="position_ids",
    says="after an image each axis goes on from its own largest position",
    needs=("pictures", "positions"),
)(_place(_per_axis, images=True))


def _response_as_if_images_counted(one: Trajectory) -> Places:
    """Let the response go on after the number of the prompt's tokens."""

    def places(positions: Tensor, sample: Tensor) -> Tensor:
        del sample
        found = positions.clone()
        if 0 < one.start < positions.shape[-1]:
            found[..., one.start :] += one.start - int(positions[0, one.start])
        return found

    return places


register(
    "response_positions_count_prompt_tokens",
    cause="position_ids",
    says="positions of the response that go on from the number of prompt tokens",
    needs=("pictures", "positions"),
)(_place(_response_as_if_images_counted, images=True))


@register(
    "rotary_bfloat16",
    cause="position_ids",
    says="rotary frequencies rounded to bfloat16",
    needs=("rotary",),
)
def _round_frequencies(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    del samples
    return [replace(Request.of_sample(one), setting="rotary_bfloat16")]


def _read_saved(samples: Samples, one: Trajectory) -> Tensor | None:
    """Return the positions that the file has, if they are those of all tokens."""
    saved = samples.batch.position_ids
    if saved is None:
        return None
    rows = torch.as_tensor(saved[one.sample])
    rows = rows[None] if rows.dim() == 1 else rows
    rows = rows[-3:]  # a first row of four counts text
    size = len(one.ids)  # without image tokens at the end
    return rows.long()[..., :size] if rows.shape[-1] >= size else None


@register(
    "saved_positions",
    cause="position_ids",
    says="the position ids that the file has",
    needs=("positions",),
)
def _use_saved(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    saved = _read_saved(samples, one)
    if saved is None:
        return None

    def places(positions: Tensor, sample: Tensor) -> Tensor:
        del sample
        return saved.expand_as(positions) if len(saved) == 1 else saved

    return [replace(Request.of_sample(one), places=places)]
