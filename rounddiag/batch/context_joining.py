"""What is new in the context of each row of a trajectory, and what it shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import NamedTuple

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch.batch import Batch
from rounddiag.batch.context_store import Contexts
from rounddiag.batch.sample_sequence import (
    PlacedPicture,
    known_sequence,
    place_pictures,
)
from rounddiag.batch.sequence_difference import (
    SharedRange,
    appends,
    ranges_of,
    shared_ranges,
)
from rounddiag.errors import LoadError
from rounddiag.vision import PatchScreenshot, Screenshot
from rounddiag.vision.image_tokens import TokenRuns

# A run of so many equal ids that is no known picture is one element too: the image
# tokens of a picture that the file does not have, which agree with those of any other.
_LONG_RUN = 8


# Bytes of pixels that are read to tell pictures apart, which a disk gives in about a
# second. Of more, rows of patches are compared, spread evenly over each picture.
_MOST_BYTES = 10**9
_HASHES = "image_hashes"  # the round column of `capture.round_record`


class PictureNumbers:
    """Gives each picture a number; the same picture has the same.

    Parameters
    ----------
    most_rows : int or None
        How many rows of the patches of a picture are compared; None for all.
    """

    def __init__(self, most_rows: int | None = None) -> None:
        self._known: dict[object, int] = {}
        self._most_rows = most_rows

    def number(
        self, shot: Screenshot | None, tokens: bytes = b"", digest: object = None
    ) -> int:
        """Return the number of a picture with these image tokens; None if unknown.

        `digest` is a hash that the file has; without it, the pixels are read.
        """
        try:
            if digest is None and shot is not None:
                digest = shot.digest(self._most_rows)
        except LoadError:  # it cannot be read, so it is the same as no other
            digest = object()
        return self._known.setdefault((digest, tokens), len(self._known))


def rows_to_compare(images: Iterable[Iterable[Screenshot]]) -> int | None:
    """Return how many rows of patches tell pictures apart; None for all of them."""
    patches = [
        shot
        for shots in images
        for shot in shots
        if isinstance(shot, PatchScreenshot) and shot.rows is not None
    ]
    # Three channels and two frames of float32, or fewer bytes.
    sizes = [24 * shot.patch_size**2 for shot in patches]
    num_bytes = sum(
        size * prod(shot.grid_thw) for size, shot in zip(sizes, patches, strict=True)
    )
    return None if num_bytes <= _MOST_BYTES else max(_MOST_BYTES // sum(sizes), 1)


def recorded_hashes(rows: Batch) -> dict[int, Sequence[object]]:
    """Return the hashes that the file has of the pictures of each row's prompt.

    None at all unless every row with pictures has one for each.
    """
    if _HASHES not in rows.columns.rounds or rows.images is None:
        return {}
    owners, first = np.unique(rows.columns.owner, return_index=True)
    stored = rows.columns.stored_by_round(_HASHES)[first]
    hashes: dict[int, Sequence[object]] = {
        row: values
        for row, values in zip(owners.tolist(), stored.tolist(), strict=True)
        if isinstance(values, list) and len(values) == len(rows.images[row])
    }
    with_pictures = {row for row, shots in enumerate(rows.images) if shots}
    return hashes if with_pictures <= hashes.keys() else {}


class Elements(NamedTuple):
    """Prompt and response of a row: its token ids, each picture as one number.

    Attributes
    ----------
    values: Ids, and `-1 - number` for a picture.
    edges: Where each element begins in the ids, and where the last one ends.
    """

    values: Array
    edges: Array

    @classmethod
    def of(
        cls,
        ids: Array,
        pictures: Sequence[PlacedPicture],
        numbers: PictureNumbers,
        hashes: Sequence[object] = (),
    ) -> Elements:
        """Put one element in place of the image tokens of each picture.

        `hashes` are those that the file has of the pictures; else pixels are read.

        Examples
        --------
        >>> Elements.of(np.array([5, 9, 9, 6]), [], PictureNumbers())
        Elements(values=array([5, 9, 9, 6]), edges=array([0, 1, 2, 3, 4]))
        """
        values = ids.astype(np.int64)
        is_first = np.ones(len(ids) + 1, dtype=bool)
        is_known = np.zeros(len(ids), dtype=bool)
        for start, stop, _ in pictures:
            is_known[start:stop] = True
        runs = TokenRuns.of_ids(np.where(is_known, -1, ids))
        is_long = (runs.length >= _LONG_RUN) & ~is_known[runs.start]
        ends = runs.start + runs.length
        others = zip(runs.start[is_long].tolist(), ends[is_long].tolist(), strict=True)
        unknown = [(start, stop, None) for start, stop in others]
        known = hashes if len(hashes) == len(pictures) else ()
        named = zip_longest((*pictures, *unknown), known)
        for (start, stop, shot), digest in named:
            tokens = values[start:stop].tobytes()
            values[start] = -1 - numbers.number(shot, tokens, digest)
            is_first[start + 1 : stop] = False
        return cls(values[is_first[:-1]], np.flatnonzero(is_first))

    def up_to(self, size: int) -> Elements:
        """Return the elements of the first ids."""
        num = int(np.searchsorted(self.edges, size))
        return Elements(self.values[:num], self.edges[: num + 1])


@dataclass(frozen=True, kw_only=True)
class JoinedRow:
    """A row as a part of its sample.

    Attributes
    ----------
    observed: The ids that entered the context; none for the first row.
    is_rewritten: Whether its context does not append to the one before. True for the
        first row.
    start: Where it begins in the prompt and response of the sample: 0 for the first.
    size: Number of tokens of its own prompt and response.
    num_prompt: Number of tokens of its own prompt.
    num_known: How many of these tokens were in the context before.
    places: Where its pictures stand in the sequence of the sample; None if unknown.
    is_new: Whether each of its pictures entered with it.
    """

    observed: Array
    is_rewritten: bool
    start: int
    size: int
    num_prompt: int
    num_known: int
    places: list[int | None]
    is_new: list[bool]


class ContextJoiner:
    """Joins rows of trajectories, and collects the contexts that were rewritten.

    Parameters
    ----------
    rows : Batch
    rounds_before : array of int
        Number of rounds of the sample in earlier rows, per row.

    Attributes
    ----------
    most_rows: How many rows of patches of a picture are compared; None for all.
    """

    def __init__(self, rows: Batch, rounds_before: Array) -> None:
        self._rows, self._rounds_before = rows, rounds_before
        self._hashes = recorded_hashes(rows)
        self.most_rows = None if self._hashes else rows_to_compare(rows.images or ())
        self._rewritten: list[tuple[int, int, int, Array]] = []
        starts = (rows.rounds.start - rows.offsets[rows.rounds.sample]).numpy()
        owners, first = np.unique(rows.rounds.sample.numpy(), return_index=True)
        # Where the first round of a row begins in its response.
        self._first_rounds = dict(
            zip(owners.tolist(), starts[first].tolist(), strict=True)
        )

    def join(self, sample: int, rows: Sequence[int]) -> Iterator[JoinedRow]:
        """Yield the rows of a sample, in their order."""
        numbers = PictureNumbers(self.most_rows)
        shown: set[int] = set()  # pictures whose position is unknown
        before: Elements | None = None
        index = np.empty(0, dtype=np.int64)  # of the row before, in the sequence
        end = 0  # of the sequence so far
        # Where a rewritten context begins in which no round was written yet.
        pending: int | None = None
        num_first = 0  # tokens of the sample's prompt
        for row in rows:
            num_prompt, ids = known_sequence(self._rows, row)
            shots = self._images(row)
            pictures = place_pictures(shots, num_prompt, ids)
            elements = Elements.of(ids, pictures, numbers, self._hashes.get(row, ()))
            is_append, shared = _shared(before, elements.up_to(num_prompt))
            place = np.full(len(ids), -1, dtype=np.int64)
            for old, new, size in shared:
                assert before is not None  # noqa: S101 nothing is shared with nothing
                known = slice(before.edges[old], before.edges[old + size])
                place[elements.edges[new] : elements.edges[new + size]] = index[known]
            is_new = place < 0
            start, end = end, end + int(is_new.sum())
            place[is_new] = np.arange(start, end)
            is_first = before is None
            num_first = num_prompt if is_first else num_first
            index = place
            if pending is None and not (is_first or is_append):
                pending = start
            if pending is not None and row in self._first_rounds:
                ranges = ranges_of(index[: num_prompt + self._first_rounds[row]])
                round_ = int(self._rounds_before[row])
                self._rewritten.append(
                    (sample, round_, pending - num_first, ranges - num_first)
                )
                pending = None
            places = _places(shots, num_prompt, index)
            unplaced = [
                numbers.number(shot) if place is None else -1
                for shot, place in zip(shots, places, strict=True)
            ]
            yield JoinedRow(
                observed=ids[:0] if is_first else ids[:num_prompt][is_new[:num_prompt]],
                is_rewritten=not is_append,
                start=start,
                size=len(ids),
                num_prompt=num_prompt,
                num_known=len(ids) - (end - start),
                places=places,
                is_new=[
                    number not in shown if place is None else place >= start
                    for number, place in zip(unplaced, places, strict=True)
                ],
            )
            shown |= {*unplaced} - {-1}
            before = elements

    def contexts(self) -> Contexts | None:
        """Return the contexts that were rewritten; None if there are none."""
        return Contexts.build(self._rewritten) if self._rewritten else None

    def _images(self, row: int) -> Sequence[Screenshot]:
        return () if self._rows.images is None else self._rows.images[row]


def _shared(
    before: Elements | None, prompt: Elements
) -> tuple[bool, list[SharedRange]]:
    if before is None:
        return False, []
    if appends(before.values, prompt.values):
        return True, [SharedRange(0, 0, len(before.values))]
    return False, shared_ranges(before.values, prompt.values)


def _places(
    shots: Sequence[Screenshot], num_prompt: int, index: Array
) -> list[int | None]:
    places = [
        None if shot.position is None else shot.position + num_prompt for shot in shots
    ]
    return [
        None if place is None or not 0 <= place < len(index) else int(index[place])
        for place in places
    ]
