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
    """The position of a picture; None where it is unknown.

    Attributes
    ----------
    position : int or None
        Index in the response of its first image token; negative in the prompt, whose
        last token is -1.
    round : int or None
        The first round after it; None also if no round follows.
    """

    position: int | None = None
    round: int | None = None


def image_places(
    batch: Batch, sample: int, num_tokens: Sequence[int], token: int | None = None
) -> list[Place]:
    """Return the position of each picture of a sample, and the first round after it.

    Parameters
    ----------
    batch : Batch
    sample : int
    num_tokens : sequence of int
        Number of image tokens of each picture.
    token : int, optional
        The image token; by default the only one that fits in this sample.
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


_MAX_FACTS = 8  # of a batch, in `meta`
_MAX_SIZES = 4
# A screenshot has 10 kB and more, though rows of one group may share it.
_FREE, _BYTES = 1_000, 100
_LEAST = 4 * 6 * 8 * 8  # values of a screenshot: four patches, six of each pixel
_VIDEOS = "its videos are left out"
_UNKNOWN = "its `pixel_values` and `image_grid_thw` are not those of a Qwen2-VL kind"


def with_screenshots(batch: Batch, inputs: Sequence[object], source: Source) -> Batch:
    """Return a batch with the screenshots of each sample; pixels stay in the file.

    `meta["screenshots"]` lists what does not fit, one sentence a sample: pixels of an
    unknown processor, or a number of image tokens that differs from the grids.

    Parameters
    ----------
    batch : Batch
    inputs : sequence of mapping, one a sample
        verl's `multi_modal_inputs`: `pixel_values` and `image_grid_thw`.
    source : Source
    """
    if len(inputs) != batch.num_samples:
        facts = [f"`multi_modal_inputs` has {len(inputs)} rows, not one a sample"]
        return replace(batch, meta={**batch.meta, "screenshots": facts})
    rows = [_plain(row) for row in inputs]
    known = list(_within_budget((_pictures(row, source) for row in rows), source))
    pictures = [images or () for images in known]
    sizes = [[shot.num_image_tokens for shot in images] for images in pictures]
    sequences = (known_sequence(batch, sample)[1] for sample in range(len(batch)))
    token = find_image_token(sequences, sizes=sizes)
    facts = [
        f"sample {sample}: {fact}"
        for sample, images in enumerate(known)
        if (fact := _fact(batch, sample, images, token))
    ]
    facts += [f"sample {i}: {_VIDEOS}" for i, row in enumerate(rows) if _has_video(row)]
    images = tuple(
        _placed(batch, sample, images, token) for sample, images in enumerate(pictures)
    )
    note = {"screenshots": _shortened(facts)} if facts else {}
    none = None in known and not any(images)
    return replace(batch, images=None if none else images, meta={**batch.meta, **note})


def _within_budget(
    found: Iterable[Images | None], source: Source
) -> Iterator[Images | None]:
    """Refuse a small file that repeats the same pixels many times."""
    left = _FREE + source.size // _BYTES
    for images in found:
        left -= len(images or ())
        if left < 0:
            raise source.damaged(found="more screenshots than its bytes can hold")
        yield images


def _plain(row: object) -> Mapping[object, object]:
    """Return the processor's output for a sample; empty if there is none."""
    if isinstance(row, Node) and isinstance(row.state, dict):
        row = row.state.get("data")  # transformers' BatchFeature
    return row if isinstance(row, Mapping) else {}


def _has_video(row: Mapping[object, object]) -> bool:
    return row.get("pixel_values_videos") is not None


def _pictures(row: Mapping[object, object], source: Source) -> Images | None:
    """Return the pictures of a sample; None for those of an unknown processor."""
    match row:
        case {
            "pixel_values": torch.Tensor() as pixels,
            "image_grid_thw": torch.Tensor() as grids,
        } if grids.numel() % 3 == 0:
            sizes = [(t, h, w) for t, h, w in grids.reshape(-1, 3).tolist()]
            return patch_screenshots(
                partial(rows_in_memory, pixels), pixels.shape, sizes
            )
        case {"pixel_values": values, "image_grid_thw": grid}:
            saved, saved_grid = stored(values, source), stored(grid, source)
            if isinstance(saved, StoredTensor) and isinstance(saved_grid, StoredTensor):
                known = _grids(saved_grid, saved.num_elements // _LEAST)
                rows = partial(_rows, saved)
                return patch_screenshots(rows, saved.shape, known) if known else None
    return () if row.get("pixel_values") is None else None


def _rows(pixels: StoredTensor, start: int, stop: int) -> torch.Tensor:
    return pixels.rows(start, stop).read()


def rows_in_memory(pixels: torch.Tensor, start: int, stop: int) -> torch.Tensor:
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
    """Return what does not fit in a sample's pictures, if anything."""
    if images is None:
        return _UNKNOWN
    sizes = [shot.num_image_tokens for shot in images]
    expected = f"image tokens by its grids: {_listed(sizes)}"
    if sizes and token is None:
        return f"{expected}; no token, or more than one, has such runs"
    if token is None:
        return None
    lengths = TokenRuns.of_ids(known_sequence(batch, sample)[1], token).length.tolist()
    differs = lengths != sizes
    return f"{expected}; runs of token {token}: {_listed(lengths)}" if differs else None


def _listed(sizes: list[int]) -> str:
    return join_names(sizes, len(sizes), most=_MAX_SIZES) or "none"


def _shortened(facts: list[str]) -> list[str]:
    more = len(facts) - _MAX_FACTS
    return [*facts[:_MAX_FACTS], *[f"and {more} more"] * (more > 0)]
