"""The images before a token, and the last one before a round: as a batch tells them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns import ColumnSource, register_column
from rounddiag.core.columns import to_numpy
from rounddiag.errors import RounddiagError
from rounddiag.vision import Screenshot
from rounddiag.vision.image_tokens import TokenRuns

# A run of so many equal ids in observations is an image, if there are so many runs.
_IMAGE_RUN, _MIN_IMAGES = 8, 4  # tokens; runs
_MAX_SEARCHED = 4_000_000  # positions: longer batches are not searched
# Columns of rounds, of the last picture in the context.
PICTURE_COLUMNS = ("num_image_tokens", "image_width", "image_height")


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
    return _count_before(shown, to_numpy(batch.rounds.sample)[index], position)


def _count_before(
    shown: Sequence[Array | None], sample: Array, position: Array
) -> Array:
    """Return how many of the places of a sample, sorted, are before each position.

    NaN in a sample whose places are not known.
    """
    is_known = np.array([each is not None for each in shown], dtype=bool)
    none = np.empty(0, dtype=np.int64)
    places = [none if each is None else each for each in shown]
    # Positions of all samples in one sorted array: those of a sample are `span` apart.
    low = min(int(each.min(initial=0)) for each in (position, *places))
    span = max(int(each.max(initial=0)) for each in (position, *places)) - low + 1
    parts = [each - low + i * span for i, each in enumerate(places)]
    keys = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    first = np.cumsum([0, *map(len, places)])
    before: Array = np.searchsorted(keys, position - low + sample * span)
    before -= first[sample]
    return before if is_known.all() else np.where(is_known[sample], before, np.nan)


def _positions(batch: Batch) -> Sequence[Array | None] | None:
    stored: list[Array] | None = None
    if batch.images is not None:
        rows = _places(batch, batch.images)
        if all(place is not None for row in rows for place in row):
            stored = [np.sort(np.array(row, dtype=np.int64)) for row in rows]
    if stored is not None and all(map(len, stored)):
        return stored
    found = _image_runs(batch)
    runs = None if found is None else [each and each[0] for each in found]
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


def _image_runs(batch: Batch) -> list[tuple[Array, Array] | None] | None:
    """Return where the pictures of each sample begin, and their numbers of tokens.

    Pictures are runs of one id in observations, and of that id in the prompt. A prompt
    that is not known usually has one, which the first round sees. None for a sample
    whose runs may be parts of a picture, where their number is not known.
    """
    if batch.response_ids is None or batch.num_positions > _MAX_SEARCHED:
        return None
    ids, mask = to_numpy(batch.response_ids), to_numpy(batch.response_mask != 0)
    offsets = to_numpy(batch.offsets)[:-1]
    stops = offsets + to_numpy(batch.lengths)
    observed = np.where(mask, -1, ids)
    rows = [observed[a:b] for a, b in zip(offsets, stops, strict=True)]
    image = _image_id(rows)
    if image is None:
        return None
    found: list[tuple[Array, Array] | None] = []
    for sample, own in enumerate(rows):
        whole, before, number = own, None, 0
        if batch.prompt_ids is not None and batch.prompt_offsets is not None:
            edges = batch.prompt_offsets[sample : sample + 2].tolist()
            before = to_numpy(batch.prompt_ids[slice(*edges)])
            whole = np.r_[before, own]
            number = 0 if batch.images is None else len(batch.images[sample])
        pictures = _pictures(whole, image, number)
        if pictures is None:
            found.append(None)
        elif before is None:
            found.append((np.r_[-1, pictures.start], np.r_[np.nan, pictures.length]))
        else:
            found.append((pictures.start - len(before), pictures.length))
    return found if any(found) else None


def _image_id(observed: Sequence[Array]) -> int | None:
    """Return the id of most long runs in observations, if there are enough."""
    tokens = []  # not the runs of all samples: most of them are of one token
    for runs in map(TokenRuns.of_ids, observed):
        is_long = (runs.length >= _IMAGE_RUN) & (runs.token >= 0)
        tokens.append(runs.token[is_long])
    if sum(map(len, tokens)) < _MIN_IMAGES:
        return None
    known, counts = np.unique(np.concatenate(tokens), return_counts=True)
    return int(known[counts.argmax()])


def _pictures(ids: Array, image: int, number: int) -> TokenRuns | None:
    """Return the pictures of a sample; their lengths count image tokens alone."""
    runs = TokenRuns.of_ids(ids, image)
    joined = runs.of_pictures(ids, number)
    if len(joined.start) == number:
        tokens = np.r_[0, np.cumsum(ids == image)]
        stop = joined.start + joined.length
        return joined._replace(length=tokens[stop] - tokens[joined.start])
    return None if runs.may_be_parts(ids) else runs


def _last_tokens(batch: Batch) -> Array | None:
    """Return the number of image tokens of the last picture before each round."""
    runs = _image_runs(batch)
    if runs is None:
        return None
    sizes = [size for _, size in filter(None, runs)]
    return _last_before(batch, [each and each[0] for each in runs], sizes)


def _last_sizes(batch: Batch) -> Array | None:
    """Return width and height of the last picture before each round, in pixels.

    They are those of the picture that the model saw.
    """
    if batch.images is None or not any(batch.images):
        return None
    places = _places(batch, batch.images)
    if any(place is None for row in places for place in row):
        return None
    shown, sizes = [], []
    for row, shots in zip(places, batch.images, strict=True):
        order = np.argsort(np.array(row, dtype=np.int64), kind="stable")
        shown.append(np.array(row, dtype=np.int64)[order])
        own = [_size(shots[k]) for k in order]
        sizes.append(np.array(own, dtype=np.float64).reshape(-1, 2))
    return _last_before(batch, shown, sizes)


def _size(shot: Screenshot) -> tuple[float, float]:
    try:
        return shot.seen_size or shot.size
    except (RounddiagError, OSError):  # one that cannot be read
        return np.nan, np.nan


def _last_before(
    batch: Batch, shown: Sequence[Array | None], values: list[Array]
) -> Array:
    """Return the value of the last place before each round; NaN where there is none.

    Samples whose places are not known have no values.
    """
    sample = to_numpy(batch.rounds.sample)
    start = to_numpy(batch.rounds.start) - to_numpy(batch.offsets)[sample]
    count = _count_before(shown, sample, start)
    sizes = [0 if each is None else len(each) for each in shown]
    first = np.cumsum([0, *sizes])[sample]
    every = np.concatenate([*values, np.full_like(values[0][:0], np.nan)])
    every = np.concatenate([every, np.full((1, *every.shape[1:]), np.nan)])
    return every[np.where(count > 0, first + count - 1, -1).astype(np.int64)]


def _picture_column(name: str, batch: Batch) -> ColumnSource | None:
    """Read a value of the last picture before each round."""
    if name == "num_image_tokens":
        values = _last_tokens(batch)
    else:
        values = _last_sizes(batch)
        if values is not None:
            values = values[:, PICTURE_COLUMNS.index(name) - 1]
    return None if values is None else lambda: values


def _before_rounds(batch: Batch) -> ColumnSource | None:
    rounds = batch.rounds
    start = to_numpy(rounds.start - batch.offsets[rounds.sample])
    counts = images_before(batch, np.arange(batch.num_rounds), start)
    return None if counts is None else lambda: counts


register_column("num_images", "round", "number", _before_rounds)
for _name in PICTURE_COLUMNS:
    register_column(_name, "round", "number", partial(_picture_column, _name))
