"""Where the pictures of a sample stand: their positions and rounds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from rounddiag._typing import Array
from rounddiag.batch.batch import Batch
from rounddiag.batch.sample_sequence import known_sequence
from rounddiag.vision import Screenshot
from rounddiag.vision.image_tokens import TokenRuns, tokens_that_fit


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
    rounds = batch.rounds
    ends = rounds.sample.new_tensor([sample, sample + 1])
    first, last = torch.searchsorted(rounds.sample, ends).tolist()
    return (rounds.start[first:last] - batch.offsets[sample]).numpy()


def with_places(
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
        with_places(shots, places) if len(shots) == len(places) else list(shots)
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
        placed.append(with_places(shots, places))
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
