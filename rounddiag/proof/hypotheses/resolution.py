"""Pictures in another resolution, and so with another number of image tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from rounddiag.proof.hypotheses.hypothesis import Edit, register
from rounddiag.proof.trajectory import Picture, Request, Samples, Trajectory


def resize(change: Callable[[Picture, int], Picture]) -> Edit:
    """Change pictures, of so many pixels, and give them the tokens that they need."""

    def edit(one: Trajectory, samples: Samples) -> Request | None:
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
        return replace(found, pictures=shown)

    return edit


def scale_to(percent: int) -> Edit:
    """Show pictures of a share of the pixels that the model saw."""
    return resize(lambda picture, _: replace(picture, scale=percent / 100))


def limit_to(most: int) -> Edit:
    """Limit a picture that is larger; a smaller one is as the model saw it."""
    return resize(
        lambda picture, pixels: replace(picture, most=most if most < pixels else 0)
    )


register(
    "stored_size",
    "pictures of the size at which they are stored",
    cause="image_expansion",
    needs=("pictures", "resolution"),
)(resize(lambda picture, pixels: replace(picture, most=pixels)))
