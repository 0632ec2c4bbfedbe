"""Screenshots, stored or rebuilt from pixel values, with position and round."""

from __future__ import annotations

import re
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.contexts import known_sequence
from rounddiag.loaders.pickle.placeholders import Node, TextBytes
from rounddiag.loaders.source import Source, Span, damage_error
from rounddiag.loaders.stored import StoredArray, find_tensor
from rounddiag.vision import (
    EncodedScreenshot,
    PatchScreenshot,
    RawScreenshot,
    Screenshot,
    StoredScreenshot,
    patch_screenshots,
)
from rounddiag.vision.image_tokens import TokenRuns, find_image_token, tokens_that_fit
from rounddiag.wording import join_names

Patches = tuple[PatchScreenshot, ...]


class ImagePlace(NamedTuple):
    """The position and round of a picture; None where unknown.

    Attributes
    ----------
    position: Index in the response of its first image token; negative in the prompt,
        whose last token is -1.
    round: The first round after the picture; None also if no round follows.
    """

    position: int | None = None
    round: int | None = None


def image_places(
    batch: Batch, sample: int, num_tokens: Sequence[int], token: int | None = None
) -> list[ImagePlace]:
    """Return the position of each picture of a sample, and the first round after it."""
    num_before, ids = known_sequence(batch, sample)
    sizes = list(num_tokens)
    tokens = tokens_that_fit(ids, sizes) if token is None else [token]
    runs = TokenRuns.of_ids(ids, tokens[0]) if len(tokens) == 1 else None
    if runs is None or not runs.fit(sizes):
        return [ImagePlace()] * len(sizes)
    # A picture that is cut off counts with its full size, so it ends after every round.
    full = np.array(sizes[: len(runs.start)], dtype=np.int64)
    known = _places(batch, sample, runs.start - num_before, full)
    return known + [ImagePlace()] * (len(sizes) - len(known))


def _places(
    batch: Batch, sample: int, positions: Array, num_tokens: Array
) -> list[ImagePlace]:
    starts = _round_starts(batch, sample)
    after = np.searchsorted(starts, positions + num_tokens).tolist()
    return [
        ImagePlace(position, index if index < len(starts) else None)
        for position, index in zip(positions.tolist(), after, strict=True)
    ]


def _round_starts(batch: Batch, sample: int) -> Array:
    """Return the position of the first token of each round of a sample."""
    rounds = batch.rounds
    ends = rounds.sample.new_tensor([sample, sample + 1])
    first, last = torch.searchsorted(rounds.sample, ends).tolist()
    starts: Array = (rounds.start[first:last] - batch.offsets[sample]).numpy()
    return starts


def _with_places(
    shots: Sequence[Screenshot], places: Sequence[ImagePlace | Screenshot]
) -> list[Screenshot]:
    """Return screenshots with the positions and rounds of these places."""
    return [
        replace(shot, position=place.position, round=place.round)
        for shot, place in zip(shots, places, strict=True)
    ]


def with_image_rounds(batch: Batch) -> Batch:
    """Return a batch whose screenshots have the first round after their position."""
    if batch.images is None:
        return batch
    images = []
    for sample, shots in enumerate(batch.images):
        starts = _round_starts(batch, sample).tolist()
        images.append(
            tuple(replace(shot, round=_round_after(shot, starts)) for shot in shots)
        )
    return replace(batch, images=tuple(images))


def _round_after(shot: Screenshot, starts: Sequence[int]) -> int | None:
    if shot.position is None:
        return shot.round
    index = bisect_right(starts, shot.position)
    return index if index < len(starts) else None


_MAX_FACTS = 8  # of a batch, in `meta`
_MAX_SIZES = 4
# Limit on the screenshots of a file: a number that is always allowed, and the bytes of
# the file for each further one. One has at least 10 kB, but rows of a group share it.
_BASE_COUNT, _BYTES_EACH = 1_000, 100
_MIN_VALUES = 4 * 6 * 8 * 8  # of a screenshot: four patches, six values per pixel
_VIDEOS = "its videos are left out"
_UNKNOWN = "its `pixel_values` and `image_grid_thw` are not those of a Qwen2-VL kind"


def with_screenshots(batch: Batch, inputs: Sequence[object], source: Source) -> Batch:
    """Return a batch with the screenshots of each sample; pixels stay in the file.

    `meta["screenshots"]` lists problems, one sentence per sample: pixels of an unknown
    processor, or a number of image tokens that differs from the grids.
    """
    if len(inputs) != batch.num_samples:
        facts = [f"`multi_modal_inputs` has {len(inputs)} rows, not one per sample"]
        return replace(batch, meta={**batch.meta, "screenshots": facts})
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
    note = {"screenshots": _shorten(facts)} if facts else {}
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
    """Return the processor's output for a sample; empty if there is none."""
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


def _grids(grids: StoredArray, most: int) -> list[tuple[int, int, int]] | None:
    """Return frames, height and width of each picture, in patches."""
    match grids.shape:
        case (num, 3) if num <= most:
            sizes = grids.read()
            is_whole = not sizes.is_floating_point()
            return [(t, h, w) for t, h, w in sizes.tolist()] if is_whole else None
    return None


def _place(
    batch: Batch, sample: int, images: Patches, token: int | None
) -> tuple[Screenshot, ...]:
    sizes = [shot.num_image_tokens for shot in images]
    return tuple(_with_places(images, image_places(batch, sample, sizes, token)))


def _describe_mismatch(
    batch: Batch, sample: int, images: Patches | None, token: int | None
) -> str | None:
    """Describe how the pictures of a sample differ from its tokens; None if not."""
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
    return join_names(sizes, len(sizes), most=_MAX_SIZES) or "none"


def _shorten(facts: list[str]) -> list[str]:
    num_more = len(facts) - _MAX_FACTS
    return [*facts[:_MAX_FACTS], *[f"and {num_more} more"] * (num_more > 0)]


def read_picture(value: Any) -> Screenshot | None:  # noqa: ANN401 whatever a file holds
    """Return a picture: bytes, a struct with `bytes`, a data URL, an image, its pixels.

    None for anything else, such as a path: a file must not make us read other files.
    """
    match value:
        case str() | Mapping():
            return read_picture(_encoded_in(value))
        case bytes():
            return EncodedScreenshot(data=value)
        case Span() | TextBytes():
            return StoredScreenshot(data=partial(_bytes_of, value))
        case Node(
            name, state=[_, str(mode), (int(width), int(height)), palette, data, *_]
        ) if name.startswith("PIL.") and isinstance(data, bytes | Span | TextBytes):
            read = partial(_bytes_of, data)
        case _ if type(value).__module__.startswith("PIL."):
            mode, (width, height), read = value.mode, value.size, value.tobytes
            palette = value.getpalette()
        case _:
            return _picture_of_pixels(value)
    if min(width, height) < 1:
        return None
    return RawScreenshot(
        mode=mode,
        width=width,
        height=height,
        data=read,
        palette=palette if isinstance(palette, list) else None,
    )


_MODES = {3: "RGB", 4: "RGBA"}  # by the number of bytes of a pixel


def _picture_of_pixels(value: object) -> Screenshot | None:
    """Return the picture of an array: rows of pixels, each of three or four bytes."""
    array = value if isinstance(value, np.ndarray) else find_tensor(value)
    match getattr(array, "shape", ()):
        case (height, width, depth) if depth in _MODES and min(height, width) > 0:
            if array is not None and array.dtype in (np.uint8, torch.uint8):
                read = partial(_bytes_of_pixels, array)
                return RawScreenshot(
                    mode=_MODES[depth], width=width, height=height, data=read
                )
    return None


def _bytes_of_pixels(array: Array | StoredArray) -> bytes:
    pixels = array if isinstance(array, np.ndarray) else array.array()
    return bytes(np.ascontiguousarray(pixels).data)


def _encoded_in(value: str | Mapping[Any, Any]) -> object:
    """Return the bytes in a data URL or in a struct; None for any other text."""
    if isinstance(value, Mapping):
        return value.get("bytes")
    head = _DATA_URL.match(value)
    with suppress(ValueError):
        return b64decode(value[head.end() :]) if head else None
    return None


_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,")


def _bytes_of(data: bytes | Span | TextBytes) -> bytes:
    return data if isinstance(data, bytes) else data.read()


def with_pictures(batch: Batch, rows: Sequence[Sequence[Screenshot]]) -> Batch:
    """Return a batch with these pictures, one list per sample, at their positions.

    Positions come from the screenshots that were rebuilt from pixel values, if a sample
    has as many of them. Else they come from the runs of the image token, in order, if
    there are as many runs.
    """
    if not any(rows):
        return batch
    rebuilt = batch.images or ((),) * len(rows)
    images = [
        _with_places(shots, places) if len(shots) == len(places) else list(shots)
        for shots, places in zip(rows, rebuilt, strict=True)
    ]
    placed = _placed_by_count(batch, images)
    pairs = zip(placed, rebuilt, strict=True)
    return replace(batch, images=tuple(tuple(new or old) for new, old in pairs))


def _placed_by_count(
    batch: Batch, rows: Sequence[Sequence[Screenshot]]
) -> list[list[Screenshot]]:
    """Place the pictures of samples in which none has a position."""
    unplaced = [all(shot.position is None for shot in shots) for shots in rows]
    if not any(shots and lacks for shots, lacks in zip(rows, unplaced, strict=True)):
        return [list(shots) for shots in rows]
    sequences = [known_sequence(batch, sample) for sample in range(len(batch))]
    token = _image_token([ids for _, ids in sequences], [*map(len, rows)])
    placed = []
    for sample, shots in enumerate(rows):
        num_before, ids = sequences[sample]
        runs = TokenRuns.of_ids(ids, token) if token is not None else None
        if runs is None or not unplaced[sample] or len(runs.start) != len(shots):
            placed.append(list(shots))
            continue
        places = _places(batch, sample, runs.start - num_before, runs.length)
        placed.append(_with_places(shots, places))
    return placed


_QWEN_IMAGE = 151655  # <|image_pad|> of Qwen2-VL, Qwen2.5-VL and Qwen3-VL
_MIN_RUN = 2  # image tokens of a picture


def _image_token(rows: Sequence[Array], counts: Sequence[int]) -> int | None:
    """Return the token that alone has one run per picture in all samples, or None."""
    candidates: set[int] | None = None
    for ids, count in zip(rows, counts, strict=True):
        if not count:
            continue
        if (ids == _QWEN_IMAGE).any():
            return _QWEN_IMAGE
        runs = TokenRuns.of_ids(ids)
        order = np.argsort(runs.token, kind="stable")
        tokens, first, num = np.unique(
            runs.token[order], return_index=True, return_counts=True
        )
        if not len(tokens):
            return None
        shortest = np.minimum.reduceat(runs.length[order], first)
        fit = tokens[(num == count) & (shortest >= _MIN_RUN)].tolist()
        candidates = {*fit} if candidates is None else candidates & {*fit}
    for ids, count in zip(rows, counts, strict=True):
        if candidates and not count:  # no image token occurs where there is no picture
            candidates -= {*ids.tolist()}
    return candidates.pop() if candidates and len(candidates) == 1 else None
