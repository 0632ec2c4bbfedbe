"""Screenshots rebuilt from pixel values, each with its position and round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from rounddiag.checks.tokens import known_sequence
from rounddiag.loaders.lazy.tensors import StoredTensor, stored
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.vision import patch_screenshots
from rounddiag.vision.image_tokens import (
    TokenRuns,
    find_image_token,
    tokens_that_fit,
)
from rounddiag.wording import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source
    from rounddiag.vision import PatchScreenshot

    Images = tuple[PatchScreenshot, ...]


class Place(NamedTuple):
    """Where a picture stands; None where that is not known.

    Attributes
    ----------
    position : int or None
        Index in the response of its first image token; negative in the prompt, whose
        last token is -1.
    round : int or None
        The first round after it; None also where no round follows.
    """

    position: int | None = None
    round: int | None = None


def image_places(
    batch: Batch, sample: int, num_tokens: Sequence[int], token: int | None = None
) -> list[Place]:
    """Return where each picture of a sample stands, and the first round after it.

    Parameters
    ----------
    batch : Batch
    sample : int
    num_tokens : sequence of int
        How many image tokens each picture of the sample has.
    token : int, optional
        The image token; found in this sample when left out.
    """
    num_before, ids = known_sequence(batch, sample)
    sizes = list(num_tokens)
    tokens = tokens_that_fit(ids, sizes) if token is None else [token]
    runs = TokenRuns.of_ids(ids, tokens[0]) if len(tokens) == 1 else None
    if runs is None or not runs.fit(sizes):
        return [Place()] * len(sizes)
    known = _places(batch, sample, runs.start - num_before, sizes)
    return known + [Place()] * (len(sizes) - len(known))


def _places(
    batch: Batch, sample: int, positions: Array, sizes: list[int]
) -> list[Place]:
    mine = batch.rounds.sample == sample
    starts = (batch.rounds.start[mine] - batch.offsets[sample]).numpy()
    # A picture that is cut off ends where it would have ended: after every round.
    ends = positions + np.array(sizes[: len(positions)], dtype=np.int64)
    after = np.searchsorted(starts, ends).tolist()
    return [
        Place(at, round_ if round_ < len(starts) else None)
        for at, round_ in zip(positions.tolist(), after, strict=True)
    ]


_MAX_FACTS = 8  # what is odd in all samples is not told a thousand times
_MAX_SIZES = 4
# A screenshot has 10 kB and more, though rows of one group may share it.
_FREE, _BYTES = 1_000, 100
_LEAST = 4 * 6 * 8 * 8  # values of a screenshot: four patches, six of each pixel
_VIDEOS = "its videos are left out"
_UNKNOWN = "its `pixel_values` and `image_grid_thw` are not those of a Qwen2-VL kind"


def with_screenshots(batch: Batch, inputs: Sequence[object], source: Source) -> Batch:
    """Return a batch that knows what each sample was shown; pixels stay in the file.

    What is odd is told in `meta["screenshots"]`, one sentence a sample: pixels of
    another processor, and image tokens that are not as many as the pixels ask for.

    Parameters
    ----------
    batch : Batch
    inputs : sequence of mapping, one a sample
        verl's `multi_modal_inputs`: `pixel_values` and `image_grid_thw`.
    source : Source
    """
    if len(inputs) != batch.num_samples:
        odd = f"`multi_modal_inputs` has {len(inputs)} rows, not one a sample"
        return replace(batch, meta={**batch.meta, "screenshots": [odd]})
    rows = [_plain(row) for row in inputs]
    found = list(_within_budget((_pictures(row, source) for row in rows), source))
    pictures = [images or () for images in found]
    sizes = [[shot.num_image_tokens for shot in images] for images in pictures]
    sequences = (known_sequence(batch, sample)[1] for sample in range(len(batch)))
    token = find_image_token(sequences, sizes=sizes)
    facts = [
        f"sample {sample}: {fact}"
        for sample, images in enumerate(found)
        if (fact := _fact(batch, sample, images, token))
    ]
    facts += [f"sample {i}: {_VIDEOS}" for i, row in enumerate(rows) if _has_video(row)]
    images = tuple(
        _placed(batch, sample, images, token) for sample, images in enumerate(pictures)
    )
    told = {"screenshots": _shortened(facts)} if facts else {}
    none = None in found and not any(images)
    return replace(batch, images=None if none else images, meta={**batch.meta, **told})


def _within_budget(
    found: Iterable[Images | None], source: Source
) -> Iterator[Images | None]:
    """Stop a small file that shows the same pixels again and again."""
    left = _FREE + source.size // _BYTES
    for images in found:
        left -= len(images or ())
        if left < 0:
            raise source.damaged(found="more screenshots than its bytes can hold")
        yield images


def _plain(row: object) -> Mapping[object, object]:
    """Return what a processor gave for a sample, empty where it gave nothing."""
    if isinstance(row, Node) and isinstance(row.state, dict):
        row = row.state.get("data")  # transformers' BatchFeature
    return row if isinstance(row, Mapping) else {}


def _has_video(row: Mapping[object, object]) -> bool:
    return row.get("pixel_values_videos") is not None


def _pictures(row: Mapping[object, object], source: Source) -> Images | None:
    """Return the pictures of a sample; None for those of an unknown processor."""
    match row:
        case {
            "pixel_values": torch.Tensor() as held,
            "image_grid_thw": torch.Tensor() as held_grids,
        } if held_grids.numel() % 3 == 0:
            sizes = [(t, h, w) for t, h, w in held_grids.reshape(-1, 3).tolist()]
            return patch_screenshots(partial(held_rows, held), held.shape, sizes)
        case {"pixel_values": values, "image_grid_thw": grid}:
            pixels, grids = stored(values, source), stored(grid, source)
            if isinstance(pixels, StoredTensor) and isinstance(grids, StoredTensor):
                known = _grids(grids, pixels.num_elements // _LEAST)
                rows = partial(_rows, pixels)
                return patch_screenshots(rows, pixels.shape, known) if known else None
    return () if row.get("pixel_values") is None else None


def _rows(pixels: StoredTensor, start: int, stop: int) -> torch.Tensor:
    return pixels.rows(start, stop).read()


def held_rows(pixels: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Return rows of pixels that are in memory, on any device."""
    return pixels[start:stop].detach().cpu()


def _grids(grids: StoredTensor, most: int) -> list[tuple[int, int, int]] | None:
    """Return frames, height and width of each picture, in patches."""
    match grids.shape:
        case (num, 3) if num <= most and not grids.dtype.is_floating_point:
            return [(t, h, w) for t, h, w in grids.read().tolist()]
    return None


def _placed(batch: Batch, sample: int, images: Images, token: int | None) -> Images:
    sizes = [shot.num_image_tokens for shot in images]
    places = image_places(batch, sample, sizes, token)
    return tuple(
        replace(shot, position=place.position, round=place.round)
        for shot, place in zip(images, places, strict=True)
    )


def _fact(
    batch: Batch, sample: int, images: Images | None, token: int | None
) -> str | None:
    """Say what is odd about a sample's pictures, if anything."""
    if images is None:
        return _UNKNOWN
    sizes = [shot.num_image_tokens for shot in images]
    expected = f"image tokens by its grids: {_listed(sizes)}"
    if sizes and token is None:
        return f"{expected}; no token, or more than one, has such runs"
    if token is None:
        return None
    lengths = TokenRuns.of_ids(known_sequence(batch, sample)[1], token).length.tolist()
    is_odd = lengths != sizes
    return f"{expected}; runs of token {token}: {_listed(lengths)}" if is_odd else None


def _listed(sizes: list[int]) -> str:
    return join_names(sizes, len(sizes), most=_MAX_SIZES) or "none"


def _shortened(facts: list[str]) -> list[str]:
    more = len(facts) - _MAX_FACTS
    return [*facts[:_MAX_FACTS], *[f"and {more} more"] * (more > 0)]
