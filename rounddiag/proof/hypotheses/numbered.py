"""Hypotheses with a whole number that is fitted: how many tokens, which image."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import torch

from rounddiag.proof.hypotheses.context import drop_tokens
from rounddiag.proof.hypotheses.hypothesis import Edit, Hypothesis, Need
from rounddiag.proof.hypotheses.pictures import (
    blank_pictures,
    exchange_pictures,
    without_pictures,
)
from rounddiag.proof.hypotheses.positions import shift_from
from rounddiag.proof.trajectory import Picture, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rounddiag.proof.trajectory import Samples, Trajectory

    Change = Callable[[Trajectory, int], Request | None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Numbered:
    """Hypotheses that differ in one whole number, each of which is a pass.

    Attributes
    ----------
    name, cause, says: As of `Hypothesis`; `says` has a place for the number.
    make: From the number to what is read instead.
    grid: All that are tried.
    """

    name: str
    cause: str
    says: str
    make: Callable[[int], Edit]
    grid: Sequence[int]
    needs: frozenset[Need] = field(default_factory=frozenset)
    is_continuous: ClassVar[bool] = False
    is_ordered: ClassVar[bool] = False

    def at(self, value: float) -> Hypothesis:
        """Return the hypothesis of one number."""
        number = round(value)
        return Hypothesis(
            name=f"{self.name}_{number}",
            cause=self.cause,
            says=self.says.format(number),
            edit=self.make(number),
            needs=self.needs,
        )


def _edit(change: Change) -> Callable[[int], Edit]:
    """Turn a change of one sample by a number into edits, one for each number."""

    def make(number: int) -> Edit:
        def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
            del samples
            request = change(one, number)
            return None if request is None else [request]

        return edit

    return make


def _lose_first(one: Trajectory, number: int) -> Request | None:
    if number >= one.start:
        return None
    return drop_tokens(one, torch.arange(len(one.ids)) < number, compact=True)


def _keep_last(one: Trajectory, number: int) -> Request | None:
    return _lose_first(one, one.start - number)


def _shift_response(one: Trajectory, number: int) -> Request | None:
    if not one.start:
        return None
    return replace(Request.of_sample(one), places=shift_from([one.start], number))


def _shift_observations(one: Trajectory, number: int) -> Request | None:
    starts = [stop for _, stop in one.rounds[:-1]]
    if not starts:
        return None
    return replace(Request.of_sample(one), places=shift_from(starts, number))


def _hide_observation(one: Trajectory, number: int) -> Request | None:
    gone = torch.zeros(len(one.ids), dtype=torch.bool)
    borders = [*pairwise(one.rounds)]
    if number > len(borders):
        return None
    (_, begin), (stop, _) = borders[number - 1]
    gone[begin:stop] = True
    return drop_tokens(one, gone, compact=False)


def _exchange(number: int) -> Edit:
    """Exchange an image with the next one."""

    def choose(one: Trajectory, samples: Samples, index: int) -> Picture | None:
        del samples
        first = number - 1
        other = {first: number, number: first}.get(index, index)
        return Picture(one.sample, other) if other < len(one.spans) else None

    return exchange_pictures(choose)


# Near numbers are not alike: the rotary embedding turns with each position.
_SMALL = (*range(1, 65), 128, 256, 512, 1024)
_GAPS = (*range(-8, 0), *_SMALL)
_LIMITS = tuple(each * 2**power for power in range(2, 13) for each in (2, 3))
_FEW = tuple(range(1, 9))
_SHOWN = frozenset[Need]({"pictures"})
NUMBERED: tuple[Numbered, ...] = (
    Numbered(
        name="first_prompt_tokens_removed",
        cause="prompt_mismatch",
        says="no first {} tokens of the prompt",
        make=_edit(_lose_first),
        grid=_SMALL,
    ),
    Numbered(
        name="prompt_cut_to",
        cause="prompt_mismatch",
        says="the last {} tokens of the prompt only",
        make=_edit(_keep_last),
        grid=_LIMITS,
    ),
    Numbered(
        name="position_gap",
        cause="position_ids",
        says="positions of the response that are larger by {}",
        make=_edit(_shift_response),
        grid=_GAPS,
        needs=frozenset({"positions"}),
    ),
    Numbered(
        name="position_gap_at_observations",
        cause="position_ids",
        says="positions that are larger by {} from each observation on",
        make=_edit(_shift_observations),
        grid=_GAPS,
        needs=frozenset({"positions"}),
    ),
    Numbered(
        name="observation_masked",
        cause="context_masked",
        says="observation {} not attended to",
        make=_edit(_hide_observation),
        grid=_FEW,
        needs=frozenset({"positions"}),
    ),
    Numbered(
        name="image_removed",
        cause="dropped_image",
        says="no image {}, counted from 1, and none of its tokens",
        make=lambda number: without_pictures(number - 1, number),
        grid=_FEW[1:],
        needs=_SHOWN,
    ),
    Numbered(
        name="image_blank",
        cause="dropped_image",
        says="no pixels of image {}, counted from 1",
        make=lambda number: blank_pictures(number - 1, number),
        grid=_FEW[1:],
        needs=_SHOWN | {"features"},
    ),
    Numbered(
        name="images_exchanged",
        cause="wrong_image",
        says="image {}, counted from 1, exchanged with the next one",
        make=_exchange,
        grid=_FEW[:-1],
        needs=_SHOWN,
    ),
)
