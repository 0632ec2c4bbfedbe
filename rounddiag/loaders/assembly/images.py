"""Screenshots, stored or rebuilt from pixel values, with position and round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from rounddiag.batch import Batch
from rounddiag.batch.left_out import left_out_entry, left_out_of
from rounddiag.batch.picture_places import image_places, with_places
from rounddiag.batch.sample_sequence import known_sequence
from rounddiag.loaders.pickle.placeholders import Node, TextBytes
from rounddiag.loaders.source import Source, Span, damage_error
from rounddiag.loaders.stored import StoredArray, find_tensor
from rounddiag.vision import (
    PatchScreenshot,
    Screenshot,
    StoredScreenshot,
    patch_screenshots,
)
from rounddiag.vision.image_tokens import TokenRuns, find_image_token
from rounddiag.vision.plain_pictures import (
    picture_of,
    picture_of_image,
    picture_of_pixels,
)
from rounddiag.wording import join_names

Patches = tuple[PatchScreenshot, ...]


_MAX_FACTS = 8  # of a batch, in `meta`
_MAX_SIZES = 4
# Limit on the screenshots of a file: a number that is always allowed, and the bytes of
# the file for each further one. One has at least 10 kB, but rows of a group share it.
_BASE_COUNT, _BYTES_EACH = 1_000, 100
_MIN_VALUES = 4 * 6 * 8 * 8  # of a screenshot: four patches, six values per pixel
_READ = {
    f"multi_modal_inputs.{key}"
    for key in ("pixel_values", "image_grid_thw", "pixel_values_videos")
}
_VIDEOS = "its videos are left out"
_UNKNOWN = "its `pixel_values` and `image_grid_thw` are not those of a Qwen2-VL kind"


def with_screenshots(batch: Batch, inputs: Sequence[object], source: Source) -> Batch:
    """Return a batch with the screenshots of each sample; pixels stay in the file.

    `meta["screenshots"]` lists problems, one sentence per sample: pixels of an unknown
    processor, or a number of image tokens that differs from the grids.
    """
    if len(inputs) != batch.num_samples:
        facts = [f"`multi_modal_inputs` has {len(inputs)} rows, not one per sample"]
        return batch.with_meta({**batch.meta, "screenshots": facts})
    rows = [_processor_output(row) for row in inputs]
    known = list(_bounded_by_size((_rebuild_screenshots(row) for row in rows), source))
    pictures = [images or () for images in known]
    sizes = [[shot.num_image_tokens for shot in images] for images in pictures]
    sequences = (known_sequence(batch, sample)[1] for sample in range(len(batch)))
    token = find_image_token(sequences, sizes=sizes)
    facts = [
        f"sample {sample}: {fact}"
        for sample, images in enumerate(known)
        if (fact := _describe_mismatch(batch, sample, images, token))
    ]
    facts += [
        f"sample {sample}: {_VIDEOS}"
        for sample, row in enumerate(rows)
        if row.get("pixel_values_videos") is not None
    ]
    images = tuple(
        _place(batch, sample, images, token) for sample, images in enumerate(pictures)
    )
    unread = {f"multi_modal_inputs.{key}" for row in rows for key in row} - _READ
    note: dict[str, object] = {"screenshots": _shorten(facts)} if facts else {}
    note |= left_out_entry({*left_out_of(batch), *unread})
    none = None in known and not any(images)
    return replace(batch, images=None if none else images, meta={**batch.meta, **note})


def _bounded_by_size(
    rows: Iterable[Patches | None], source: Source
) -> Iterator[Patches | None]:
    """Refuse a small file that repeats the same pixels many times."""
    remaining = _BASE_COUNT + source.size // _BYTES_EACH
    for images in rows:
        remaining -= len(images or ())
        if remaining < 0:
            raise damage_error(found="more screenshots than its bytes can hold")
        yield images


def _processor_output(row: object) -> Mapping[object, object]:
    if isinstance(row, Node) and isinstance(row.state, dict):
        row = row.state.get("data")  # transformers' BatchFeature
    return row if isinstance(row, Mapping) else {}


def _rebuild_screenshots(row: Mapping[object, object]) -> Patches | None:
    """Return the screenshots of a sample; None if the processor is unknown."""
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
            saved, saved_grid = find_tensor(values), find_tensor(grid)
            if isinstance(saved, StoredArray) and isinstance(saved_grid, StoredArray):
                known = _grids(saved_grid, saved.num_elements // _MIN_VALUES)
                rows = partial(_rows, saved)
                return patch_screenshots(rows, saved.shape, known) if known else None
    return () if row.get("pixel_values") is None else None


def _rows(pixels: StoredArray, start: int, stop: int) -> torch.Tensor:
    return pixels.rows(start, stop).read()


def rows_in_memory(pixels: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Return rows of pixels that are in memory, on any device."""
    return pixels[start:stop].detach().cpu()


def _grids(grids: StoredArray, limit: int) -> list[tuple[int, int, int]] | None:
    match grids.shape:
        case (num, 3) if num <= limit:
            sizes = grids.read()
            is_whole = not sizes.is_floating_point()
            return [(t, h, w) for t, h, w in sizes.tolist()] if is_whole else None
    return None


def _place(
    batch: Batch, sample: int, images: Patches, token: int | None
) -> tuple[Screenshot, ...]:
    sizes = [shot.num_image_tokens for shot in images]
    return tuple(with_places(images, image_places(batch, sample, sizes, token)))


def _describe_mismatch(
    batch: Batch, sample: int, images: Patches | None, token: int | None
) -> str | None:
    if images is None:
        return _UNKNOWN
    sizes = [shot.num_image_tokens for shot in images]
    expected = f"image tokens by its grids: {_join_sizes(sizes)}"
    if sizes and token is None:
        return f"{expected}; no token, or more than one, has such runs"
    if token is None:
        return None
    lengths = TokenRuns.of_ids(known_sequence(batch, sample)[1], token).length.tolist()
    differs = lengths != sizes
    return (
        f"{expected}; runs of token {token}: {_join_sizes(lengths)}"
        if differs
        else None
    )


def _join_sizes(sizes: list[int]) -> str:
    return join_names(sizes, most=_MAX_SIZES) or "none"


def _shorten(facts: list[str]) -> list[str]:
    num_more = len(facts) - _MAX_FACTS
    more = [f"and {num_more} more"] if num_more > 0 else []
    return [*facts[:_MAX_FACTS], *more]


def read_picture(value: Any) -> Screenshot | None:  # noqa: ANN401 whatever a file holds
    """Return a picture, as `picture_of` does, or one that is still in the file."""
    match value:
        case Mapping():
            return read_picture(value.get("bytes"))
        case Span() | TextBytes():
            return StoredScreenshot(data=partial(_bytes_of, value))
        case Node(
            name, state=[_, str(mode), (int(width), int(height)), palette, data, *_]
        ) if name.startswith("PIL.") and isinstance(data, bytes | Span | TextBytes):
            read = partial(_bytes_of, data)
            return picture_of_image(mode, (width, height), read, palette)
    pixels = None if isinstance(value, np.ndarray) else find_tensor(value)
    if pixels is None:
        return picture_of(value)
    if pixels.dtype not in (np.uint8, torch.uint8):
        return None
    return picture_of_pixels(pixels.shape, lambda: pixels.array().tobytes())


def _bytes_of(data: bytes | Span | TextBytes) -> bytes:
    return data if isinstance(data, bytes) else data.read()
