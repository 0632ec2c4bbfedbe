"""Hypotheses with a whole number that is fitted: how many tokens, which image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch

from rounddiag.proof.hypotheses.context import drop_first, drop_tokens
from rounddiag.proof.hypotheses.hypothesis import Edit, Family
from rounddiag.proof.hypotheses.pictures import (
    FEATURES,
    SHOWN,
    exchange,
    limit_to,
    remove,
    scale_to,
    show,
)
from rounddiag.proof.hypotheses.positions import shift_from
from rounddiag.proof.trajectory import Picture, Request, Trajectory


def _edit(change: Callable[[Trajectory, int], Request | None]) -> Callable[[int], Edit]:
    return lambda number: lambda trajectory, _: change(trajectory, number)


def _lose_first(trajectory: Trajectory, number: int) -> Request | None:
    return drop_first(trajectory, number) if number < trajectory.start else None


def _keep_last(trajectory: Trajectory, number: int) -> Request | None:
    return _lose_first(trajectory, trajectory.start - number)


def _shift_response(trajectory: Trajectory, number: int) -> Request | None:
    if not trajectory.start:
        return None
    return replace(
        Request.of_sample(trajectory), places=shift_from([trajectory.start], number)
    )


def _shift_observations(trajectory: Trajectory, number: int) -> Request | None:
    starts = [stop for _, stop in trajectory.rounds[:-1]]
    if not starts:
        return None
    return replace(Request.of_sample(trajectory), places=shift_from(starts, number))


def _hide_observation(trajectory: Trajectory, number: int) -> Request | None:
    gone = torch.zeros(len(trajectory.ids), dtype=torch.bool)
    borders = [*pairwise(trajectory.rounds)]
    if number > len(borders):
        return None
    (_, begin), (stop, _) = borders[number - 1]
    gone[begin:stop] = True
    return drop_tokens(trajectory, gone, compact=False)


def _exchange(number: int) -> Edit:
    """Exchange an image with the next one."""
    other = {number - 1: number, number: number - 1}

    def choose(trajectory: Trajectory, _: object, index: int) -> Picture | None:
        new = other.get(index, index)
        return Picture(trajectory.sample, new) if new < len(trajectory.spans) else None

    return exchange(choose)


# Positions of a gap. All near ones are tried: the rotary embedding turns with each.
_GAPS, _FURTHER_GAPS = (*range(-8, 0), *range(1, 257)), range(257, 4097)
# Numbers of tokens of a prompt, and small numbers of turns or pictures.
_COUNTS = (*range(1, 65), *(n * 2**power for power in range(5, 13) for n in (3, 4)))
_FEW = tuple(range(1, 9))
# Largest numbers of pixels that training scripts and servers set: multiples of 28 x 28.
_LARGEST = (262_144, 401_408, 602_112, 802_816, 1_003_520, 1_310_720, 2_007_040)
_prompt = partial(Family, cause="prompt_mismatch", grid=_COUNTS, is_ordered=True)
_gap = partial(
    Family,
    cause="position_ids",
    grid=_GAPS,
    further=_FURTHER_GAPS,
    needs=("positions",),
)
_look = partial(Family, cause="wrong_image", needs=SHOWN)
_size = partial(Family, cause="image_expansion", needs=("pictures", "resolution"))
NUMBERED: tuple[Family, ...] = (
    _prompt(
        "first_prompt_tokens_removed",
        "no first {} tokens of the prompt",
        _edit(_lose_first),
    ),
    _prompt(
        "prompt_cut_to", "the last {} tokens of the prompt only", _edit(_keep_last)
    ),
    _gap(
        "position_gap",
        "positions of the response that are larger by {}",
        _edit(_shift_response),
    ),
    _gap(
        "position_gap_at_observations",
        "positions that are larger by {} from each observation on",
        _edit(_shift_observations),
    ),
    Family(
        "observation_masked",
        "observation {} not attended to",
        _edit(_hide_observation),
        _FEW,
        cause="context_masked",
        needs=("positions",),
    ),
    Family(
        "image_removed",
        "no image {}, counted from 1, and none of its tokens",
        lambda number: remove(number - 1, number),
        _FEW[1:],
        cause="dropped_image",
        needs=SHOWN,
    ),
    Family(
        "image_blank",
        "no pixels of image {}, counted from 1",
        lambda number: show(number - 1, number),
        _FEW[1:],
        cause="dropped_image",
        needs=FEATURES,
    ),
    _look(
        "images_exchanged",
        "image {}, counted from 1, exchanged with the next one",
        _exchange,
        _FEW[:-1],
    ),
    _look(
        "blurred_by",
        "pictures blurred by {} pixels",
        lambda number: show(look=f"blurred_{number}"),
        _FEW,
    ),
    _look(
        "resolution_divided_by",
        "pictures of 1/{} of the size, enlarged, with as many image tokens",
        lambda number: show(look=f"coarse_{number}"),
        _FEW[1:],
    ),
    _size(
        "percent_of_the_pixels",
        "pictures of {} % of the pixels, with other numbers of image tokens",
        scale_to,
        (25, 33, 40, 50, 60, 67, 75, 80, 90, 125, 150, 200, 300, 400),
    ),
    _size("at_most_pixels", "pictures of at most {} pixels", limit_to, _LARGEST),
)
