"""Other ids, positions, pictures and neighbours in what the scoring engine reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sample_data.synthetic.chat import (
    IM_END,
    IMAGE,
    IMAGE_TOKENS,
    PAD,
    VISION_END,
    VISION_START,
)
from tests.faults import engine
from tests.faults.engine import Context
from tests.faults.episodes import Episode, positions
from tests.faults.pools import Pool
from tests.faults.rows import Rows, round_bounds

KEPT = 3  # tokens of the template that open a round
PACK = 4
Edit = Callable[[int, Episode], Sequence[Context]]


def _rescored(pool: Pool, edit: Edit, **how: Any) -> Rows:
    """Score what is read after an edit of each row's context."""
    contexts = [
        one for row, episode in enumerate(pool.episodes) for one in edit(row, episode)
    ]
    scores = engine.score(pool.weights, contexts, pool.lengths, **how)
    healthy = (pool.rows.old, pool.rows.entropy)
    found = pool.rescored(scores)
    for part, before in zip((found.old, found.entropy), healthy, strict=True):
        for i, values in enumerate(part):
            part[i] = np.where(np.isnan(values), before[i], values)
    return found


def _kept(base: Context, keep: Tensor, *, replaced: bool = True) -> Context:
    """Leave tokens out; those after them move up, or keep their positions."""
    ids = base.ids[keep]
    has_images = bool((base.ids == IMAGE).any())
    starts = base.ids == VISION_START
    is_shown = keep[starts].tolist()
    patches = [
        one for one, is_kept in zip(base.patches, is_shown, strict=True) if is_kept
    ]
    places = positions(ids, sees=has_images) if replaced else base.places[:, keep]
    return Context(base.row, ids, base.target[keep], places, patches)


def _rounds(one: Episode) -> list[tuple[int, int]]:
    return round_bounds(np.array(one.mask))


def begins_twice(row: int, one: Episode) -> list[Context]:
    """The prompt begins with the first special token twice, and an empty one."""
    base = engine.context(row, one)
    ids = torch.cat([torch.tensor([PAD, int(base.ids[0]), IM_END]), base.ids])
    target = torch.cat([torch.full((3,), -1), base.target])
    places = positions(ids, sees=one.sees)
    return [Context(row, ids, target, places, one.patches)]


def without_task(row: int, one: Episode) -> list[Context]:
    """The last words of the prompt are lost by a template."""
    base = engine.context(row, one)
    keep = torch.ones(len(base.ids), dtype=torch.bool)
    keep[one.start - KEPT - 4 : one.start - KEPT] = False
    return [_kept(base, keep & (base.ids != -1))]


def observations_masked(row: int, one: Episode) -> list[Context]:
    """What the environment answered is not attended to; positions stay."""
    base = engine.context(row, one)
    keep = torch.ones(len(base.ids), dtype=torch.bool)
    bounds = _rounds(one)
    for (_, end), (start, _) in pairwise(bounds):
        keep[end : start - KEPT] = False
    return [_kept(base, keep, replaced=False)]


def thoughts_stripped(row: int, one: Episode) -> list[Context]:
    """A template leaves the thoughts of earlier rounds out."""
    base = engine.context(row, one)
    close = one.tokenizer.token_to_id("</think>")
    bounds = _rounds(one)
    first = torch.arange(len(base.ids)) < bounds[0][1]
    found = [replace(base, target=torch.where(first, base.target, -1))]
    for number, (start, end) in enumerate(bounds[1:], 1):
        keep = torch.zeros(len(base.ids), dtype=torch.bool)
        keep[:end] = True
        for begin, last in bounds[:number]:
            thought = one.ids[begin:last]
            if close in thought:
                keep[begin : begin + thought.index(close) + 1] = False
        part = _kept(base, keep)
        inside = (part.target >= start) & (part.target < end)
        found.append(replace(part, target=torch.where(inside, part.target, -1)))
    return found


def lost_newlines(row: int, one: Episode) -> list[Context]:
    """The newline after each of the agent's messages is lost when rendered again."""
    base = engine.context(row, one)
    keep = torch.ones(len(base.ids), dtype=torch.bool)
    for _, end in _rounds(one)[:-1]:
        keep[end] = False
    return [_kept(base, keep)]


def blank_pictures(row: int, one: Episode) -> list[Context]:
    """Image tokens are read as text: no pixels reach the engine."""
    base = engine.context(row, one)
    return [replace(base, places=positions(base.ids, sees=False), patches=())]


def first_picture_lost(row: int, one: Episode) -> list[Context]:
    """The first picture is left out with its tokens."""
    base = engine.context(row, one)
    number = (base.ids == VISION_START).cumsum(0)
    is_vision = _is_vision(base.ids)
    return [_kept(base, ~(is_vision & (number == 1)))]


def _is_vision(ids: Tensor) -> Tensor:
    return (ids == IMAGE) | (ids == VISION_START) | (ids == VISION_END)


def window(count: int) -> Edit:
    """Each round sees the last pictures only."""

    def edit(row: int, one: Episode) -> list[Context]:
        base = engine.context(row, one)
        number = (base.ids == VISION_START).cumsum(0)
        found = []
        for last in range(1, len(one.patches) + 1):
            gone = _is_vision(base.ids) & (number <= last - count)
            part = _kept(base, (number <= last) & ~gone)
            here = number[part.target] == last
            found.append(replace(part, target=torch.where(here, part.target, -1)))
        return found

    return edit


def wrong_pictures(pool: Pool, knob: float) -> Rows:
    """Half of the rows get the pictures of the next row with as many."""
    del knob
    rng = np.random.default_rng(pool.agent.seed)
    counts = [len(one.patches) for one in pool.episodes]
    broken = set(rng.permutation(len(counts))[: len(counts) // 2].tolist())

    def edit(row: int, one: Episode) -> list[Context]:
        base = engine.context(row, one)
        others = [
            i
            for i in range(len(counts))
            if counts[i] >= counts[row] and pool.rows.group[i] != pool.rows.group[row]
        ]
        if row not in broken or not others:
            return [base]
        other = others[int(rng.integers(len(others)))]
        return [replace(base, patches=pool.episodes[other].patches[: counts[row]])]

    return _rescored(pool, edit)


def expanded_twice(row: int, one: Episode) -> list[Context]:
    """Image tokens that were expanded already are expanded again."""
    base = engine.context(row, one)
    times = torch.where(base.ids == IMAGE, 2, 1)
    ids = base.ids.repeat_interleave(times)
    target = base.target.repeat_interleave(times)
    target[1:][target[1:] == target[:-1]] = -1
    is_image = ids == IMAGE
    patches = [patch for patch in one.patches for _ in range(2)]
    del is_image
    return [Context(row, ids, target, positions(ids, sees=True), patches)]


def plain_places(row: int, one: Episode) -> list[Context]:
    """M-RoPE falls back to positions that count tokens."""
    base = engine.context(row, one)
    return [replace(base, places=positions(base.ids, sees=False))]


def response_offset(row: int, one: Episode) -> list[Context]:
    """Positions of the response go on as if the prompt's picture had no width."""
    base = engine.context(row, one)
    places = base.places.clone()
    places[1:, one.start :] += IMAGE_TOKENS // 4
    return [replace(base, places=places)]


def half_places(row: int, one: Episode) -> list[Context]:
    """Positions went through bfloat16: above 256 neighbours become equal."""
    base = engine.context(row, one)
    return [replace(base, places=base.places.bfloat16().long())]


def with_places(pool: Pool, edit: Edit) -> Rows:
    """Score with other positions and keep them in the rows."""
    places = [
        edit(row, one)[0].places.numpy().astype(np.int16)
        for row, one in enumerate(pool.episodes)
    ]
    return replace(_rescored(pool, edit), places=places)


def packing_leak(pool: Pool, knob: float) -> Rows:
    """Rows of a micro-batch are packed, and attend to those before them."""
    del knob

    def edit(row: int, one: Episode) -> list[Context]:
        base = engine.context(row, one)
        first = row - row % PACK
        before = [engine.context(i, pool.episodes[i]) for i in range(first, row)]
        parts = [*before, base]
        unscored = [torch.full_like(part.target, -1) for part in before]
        return [
            Context(
                row,
                torch.cat([part.ids for part in parts]),
                torch.cat([*unscored, base.target]),
                torch.cat([part.places for part in parts], 1),
                [patch for part in parts for patch in part.patches],
            )
        ]

    return _rescored(pool, edit)


def table(fault: Any) -> dict[str, Any]:
    """Return the faults of this module by name."""
    text = ("dense", "moe")
    sight = ("vision",)

    def linear(cause: str, edit: Edit, kinds: tuple[str, ...] = text + sight) -> Any:
        return fault(
            cause, lambda pool, _: _rescored(pool, edit), is_linear=True, kinds=kinds
        )

    def placed(edit: Edit, kinds: tuple[str, ...]) -> Any:
        return fault(
            "position_ids",
            lambda pool, _: with_places(pool, edit),
            is_linear=True,
            kinds=kinds,
        )

    return {
        "begins_twice": linear("prompt_mismatch", begins_twice),
        "without_task": linear("prompt_mismatch", without_task),
        "observations_masked": linear("context_masked", observations_masked),
        "thoughts_stripped": linear("retokenised", thoughts_stripped),
        "lost_newlines": linear("retokenised", lost_newlines),
        "blank_pictures": linear("dropped_image", blank_pictures, sight),
        "first_picture_lost": linear("dropped_image", first_picture_lost, sight),
        "window_1": linear("image_window", window(1), sight),
        "window_2": linear("image_window", window(2), sight),
        "wrong_pictures": fault(
            "wrong_image", wrong_pictures, is_linear=True, kinds=sight
        ),
        "expanded_twice": linear("image_expansion", expanded_twice, sight),
        "plain_places": placed(plain_places, sight),
        "response_offset": placed(response_offset, sight),
        "half_places": placed(half_places, text),
        "packing_leak": fault("packing_leak", packing_leak, is_linear=True),
    }
