"""The pictures before and after each round, and how much of them changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns import ColumnSource, register_column
from rounddiag.vision import Screenshot
from rounddiag.vision.screenshots import opaque

if TYPE_CHECKING:
    from PIL.Image import Image

# The side of a cell, in pixels of a picture that is at most so wide.
_CELL, _WIDTH = 8, 960
_Pair: TypeAlias = Sequence[Screenshot | None]
# The shares of each batch that were computed, by round.
_known: WeakKeyDictionary[Batch, dict[int, float]] = WeakKeyDictionary()


def last_seen_screenshots(
    shots: Sequence[Screenshot], num_rounds: int
) -> list[int | None]:
    """Return the index of the last screenshot that the model saw before each round."""
    indices: list[int | None] = [None] * num_rounds
    for index, shot in enumerate(shots):
        if shot.round is not None and 0 <= shot.round < num_rounds:
            indices[shot.round] = index
    for number in range(1, num_rounds):
        if indices[number] is None:
            indices[number] = indices[number - 1]
    return indices


def screenshots_after(
    shots: Sequence[Screenshot], seen: Sequence[int | None]
) -> list[int | None]:
    """Return the screenshot that each round's action led to, by those before rounds.

    None where the next round saw no other one. After the last round it is the first
    one without a round.
    """
    after = [new if new != old else None for old, new in pairwise(seen)]
    num = len(seen)
    begin = 0 if not seen or seen[-1] is None else seen[-1] + 1
    last = (
        index
        for index, shot in enumerate(shots)
        if index >= begin and (shot.round is None or shot.round >= num)
    )
    return [*after, next(last, None)][:num]


def pictures_of_rounds(batch: Batch) -> list[list[Screenshot | None]]:
    """Return the pictures before and after each round; None where unknown.

    That of an earlier round is not the one before a round that got none itself: the
    screen may have changed since.
    """
    images = batch.images or ((),) * len(batch)
    counts = batch.columns.rounds_per_sample.tolist()
    pairs = []
    for shots, num in zip(images, counts, strict=True):
        seen = last_seen_screenshots(shots, num)
        own = [new if new != old else None for old, new in pairwise([None, *seen])]
        places = zip(own, screenshots_after(shots, seen), strict=True)
        pairs += [[None if at is None else shots[at] for at in pair] for pair in places]
    return pairs


def changed_shares(
    batch: Batch, rows: Iterable[int], *, shows_progress: bool = False
) -> Array:
    """Return the share of the picture that changed in some rounds of `batch.rounds`.

    It is that of cells in which any pixel differs; NaN where they are not known.
    """
    from tqdm.auto import tqdm

    wanted, known = [*rows], _known.setdefault(batch, {})
    unread, pairs = sorted({*wanted} - known.keys()), pictures_of_rounds(batch)
    cells = tqdm(
        changed_cells(pairs[row] for row in unread),
        desc="screenshots",
        total=len(unread),
        unit="round",
        leave=False,
        delay=1,
        disable=not shows_progress,
    )
    for row, sizes in zip(unread, cells, strict=True):
        known[row] = np.nan if sizes is None else float((sizes > 0).mean())
    return np.array([known[row] for row in wanted], dtype=np.float32)


def num_unread(batch: Batch) -> int:
    """Return of how many rounds no share was computed yet."""
    return batch.num_rounds - len(_known.get(batch, ()))


def changed_cells(pairs: Iterable[_Pair]) -> Iterator[Array | None]:
    """Yield the largest difference of a value in each cell of two pictures.

    Cells are squares, 120 of them side by side in a picture that is at least 960 pixels
    wide, else of 8 pixels. None where a picture is unknown or cannot be read, or where
    the two differ in size. A picture of consecutive pairs is decoded once.
    """
    decoded: dict[int, Image | None] = {}
    for pair in pairs:
        decoded = {
            id(shot): decoded[id(shot)] if id(shot) in decoded else _decode(shot)
            for shot in pair
        }
        yield _cells(*(decoded[id(shot)] for shot in pair))


def _decode(shot: Screenshot | None) -> Image | None:
    try:
        return None if shot is None else opaque(shot.image())
    except Exception:  # noqa: BLE001 any kind of picture, broken in any way
        return None


def _cells(before: Image | None, after: Image | None) -> Array | None:
    from PIL import ImageChops  # a trainer, which imports this too, may have no Pillow

    if before is None or after is None or before.size != after.size:
        return None
    side = _CELL * max(before.width, _WIDTH)  # in 960ths of a pixel
    columns, rows = (np.arange(0, n * _WIDTH, side) // _WIDTH for n in before.size)
    sizes = np.asarray(ImageChops.difference(before, after))
    # By bands of rows: 30 times as fast as `reduceat` along the first axis.
    bands = np.array([band.max(axis=0) for band in np.split(sizes, rows[1:])])
    return np.maximum.reduceat(bands, columns, axis=1).max(axis=2)


def _changes(batch: Batch) -> ColumnSource | None:
    if not any(len(shots) > 1 for shots in batch.images or ()):
        return None
    every = range(batch.num_rounds)
    return partial(changed_shares, batch, every, shows_progress=True)


register_column("round_change", "round", "number", _changes)
