"""Pictures in another resolution, and so with another number of image tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from rounddiag.proof.hypotheses.hypothesis import Edit, register
from rounddiag.proof.trajectory import Picture, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rounddiag.proof.trajectory import Samples, Trajectory

# Largest numbers of pixels that training scripts and servers set: multiples of 28 x 28.
LARGEST = (262_144, 401_408, 602_112, 802_816, 1_003_520, 1_310_720, 2_007_040)
SCALES = {
    "a quarter of": 1 / 4,
    "a third of": 1 / 3,
    "half of": 1 / 2,
    "twice": 2.0,
    "three times": 3.0,
    "four times": 4.0,
}


def _resize(change: Callable[[Picture, int], Picture]) -> Edit:
    """Change pictures, of so many pixels, and give them the tokens that they need."""

    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        if samples.count is None or not one.spans:
            return None
        base = Request.of_sample(one)
        shown = tuple(change(each, one.areas[each.index]) for each in base.pictures)
        ids, source, end = [], [], 0
        for picture, (start, stop) in zip(shown, one.spans, strict=True):
            number = samples.count(picture, samples)
            ids += [one.ids[end:start], one.ids[start].repeat(number)]
            source += [torch.arange(end, start), torch.full((number,), -1)]
            end = stop
        ids.append(one.ids[end:])
        source.append(torch.arange(end, len(one.ids)))
        at = torch.cat(source)
        if len(at) == len(one.ids):
            return None
        scored = (at >= 0) & base.is_scored[at.clamp(min=0)]
        found = replace(base, ids=torch.cat(ids), source=at, is_scored=scored)
        return [replace(found, pictures=shown)]

    return edit


def _scale(factor: float, picture: Picture, pixels: int) -> Picture:
    del pixels
    return replace(picture, scale=factor)


def _limit(most: int, picture: Picture, pixels: int) -> Picture:
    """Limit a picture that is larger; a smaller one is as the model saw it."""
    return replace(picture, most=most) if most < pixels else picture


def _register_sizes() -> None:
    add = partial(register, cause="image_expansion", needs=("pictures", "resolution"))
    for words, factor in SCALES.items():
        name = f"{words.replace(' ', '_')}_the_pixels"
        says = f"pictures of {words} the pixels, with other numbers of image tokens"
        add(name, says=says)(_resize(partial(_scale, factor)))
    add("stored_size", says="pictures of the size at which they are stored")(
        _resize(lambda picture, pixels: replace(picture, most=pixels))
    )
    for most in LARGEST:
        says = f"pictures of at most {most:,} pixels"
        add(f"at_most_{most}_pixels", says=says)(_resize(partial(_limit, most)))


_register_sizes()
