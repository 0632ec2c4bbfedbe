"""How many images a sample had been shown before a token, as far as a batch tells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns import ColumnSource, register_column
from rounddiag.core.columns import to_numpy
from rounddiag.vision import Screenshot

# A run of so many equal ids in observations is an image, if there are so many runs.
_IMAGE_RUN, _MIN_IMAGES = 8, 4  # tokens; runs
_MAX_SEARCHED = 4_000_000  # positions: longer batches are not searched


def images_before(batch: Batch, index: Array, position: Array) -> Array | None:
    """Return the number of images before tokens, each with its round and position.

    `index` is that of the round in `batch.rounds`. None if the batch does not record
    it; NaN for a token where it does not. The numbers are those of the round column
    `num_images` or `num_context_images` if there is one. Else the screenshots of each
    sample count and, in a sample that has none, the image tokens: a Recorder keeps the
    screenshots of some samples only.
    """
    columns = batch.columns.rounds
    recorded = columns.get("num_images", columns.get("num_context_images"))
    if recorded is not None and recorded.kind == "number":
        if recorded.is_known().all():
            return recorded.filled[index].astype(np.int64)
        return recorded.filled[index].astype(np.float64)
    shown = _positions(batch)
    if shown is None:
        return None
    # Positions of all samples in one sorted array: those of a sample are `span` apart.
    sample = to_numpy(batch.rounds.sample)[index]
    low = min(int(each.min(initial=0)) for each in (position, *shown))
    span = max(int(each.max(initial=0)) for each in (position, *shown)) - low + 1
    parts = [each - low + i * span for i, each in enumerate(shown)]
    keys = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    first = np.cumsum([0, *map(len, shown)])
    before: Array = np.searchsorted(keys, position - low + sample * span)
    before -= first[sample]
    return before


def _positions(batch: Batch) -> list[Array] | None:
    stored: list[Array] | None = None
    if batch.images is not None:
        rows = _places(batch, batch.images)
        if all(place is not None for row in rows for place in row):
            stored = [np.sort(np.array(row, dtype=np.int64)) for row in rows]
    if stored is not None and all(map(len, stored)):
        return stored
    runs = _image_runs(batch)
    if stored is None or runs is None:
        return runs if stored is None else stored
    return [own if len(own) else run for own, run in zip(stored, runs, strict=True)]


def _places(
    batch: Batch, images: Sequence[Sequence[Screenshot]]
) -> list[list[int | None]]:
    """Return where screenshots are; one with a round only is just before that round."""
    starts, offsets = to_numpy(batch.rounds.start), to_numpy(batch.offsets)
    edges = np.searchsorted(to_numpy(batch.rounds.sample), np.arange(len(batch) + 1))

    def place(sample: int, shot: Screenshot) -> int | None:
        if shot.position is not None or shot.round is None:
            return shot.position
        first, stop = edges[sample : sample + 2]
        if first + shot.round >= stop:  # after all rounds
            return int(offsets[sample + 1] - offsets[sample])
        return int(starts[first + shot.round] - offsets[sample]) - 1

    return [[place(i, shot) for shot in shots] for i, shots in enumerate(images)]


def _image_runs(batch: Batch) -> list[Array] | None:
    """Return the image tokens: runs of one id in observations."""
    if batch.response_ids is None or batch.num_positions > _MAX_SEARCHED:
        return None
    ids, mask = to_numpy(batch.response_ids), to_numpy(batch.response_mask != 0)
    offsets = to_numpy(batch.offsets)
    change = (np.diff(ids) != 0) | np.diff(mask)
    is_first = np.r_[True, change][: len(ids)]
    is_first[offsets[:-1][offsets[:-1] < len(ids)]] = True
    begins = np.flatnonzero(is_first)
    size = np.diff(np.r_[begins, len(ids)])
    ends = offsets[:-1] + to_numpy(batch.lengths)
    row = np.searchsorted(offsets, begins, side="right") - 1
    inside = (size >= _IMAGE_RUN) & ~mask[begins]
    inside &= begins + size <= ends[row]  # not the padding at the end
    if inside.sum() < _MIN_IMAGES:
        return None
    known, counts = np.unique(ids[begins[inside]], return_counts=True)
    inside &= ids[begins] == known[counts.argmax()]
    places = begins[inside] - offsets[row[inside]]
    parts = np.searchsorted(row[inside], np.arange(batch.num_samples + 1))
    # The prompt usually has one too, which the first round sees.
    return [np.r_[-1, places[a:b]] for a, b in pairwise(parts)]


def _before_rounds(batch: Batch) -> ColumnSource | None:
    rounds = batch.rounds
    start = to_numpy(rounds.start - batch.offsets[rounds.sample])
    counts = images_before(batch, np.arange(batch.num_rounds), start)
    return None if counts is None else lambda: counts


register_column("num_images", "round", "number", _before_rounds)
