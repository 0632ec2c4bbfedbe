"""What is new in the context of each row of a trajectory, and what it shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.contexts import (
    Contexts,
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
from rounddiag.vision import Screenshot
from rounddiag.vision.image_tokens import TokenRuns

# A run of so many equal ids that is no known picture is one element too: the image
# tokens of a picture that the file does not have, which agree with those of any other.
_LONG_RUN = 8


class PictureNumbers:
    """Gives each picture a number; the same picture has the same."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def number(self, shot: Screenshot | None, tokens: bytes = b"") -> int:
        """Return the number of a picture with these image tokens; None if unknown."""
        try:
            key: object = b"" if shot is None else shot.digest(), tokens
        except LoadError:  # it cannot be read, so it is the same as no other
            key = object()
        return self._known.setdefault(key, len(self._known))


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
        cls, ids: Array, pictures: Sequence[PlacedPicture], numbers: PictureNumbers
    ) -> Elements:
        """Put one element in place of the image tokens of each picture.

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
        for start, stop, shot in (*pictures, *((a, b, None) for a, b in others)):
            tokens = values[start:stop].tobytes()
            values[start] = -1 - numbers.number(shot, tokens)
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
    """

    def __init__(self, rows: Batch, rounds_before: Array) -> None:
        self._rows, self._rounds_before = rows, rounds_before
        self._rewritten: list[tuple[int, int, int, Array]] = []
        starts = (rows.rounds.start - rows.offsets[rows.rounds.sample]).numpy()
        owners, first = np.unique(rows.rounds.sample.numpy(), return_index=True)
        # Where the first round of a row begins in its response.
        self._first_rounds = dict(
            zip(owners.tolist(), starts[first].tolist(), strict=True)
        )

    def join(self, sample: int, rows: Sequence[int]) -> Iterator[JoinedRow]:
        """Yield the rows of a sample, in their order."""
        numbers = PictureNumbers()
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
            elements = Elements.of(ids, pictures, numbers)
            is_append, shared = _shared(before, elements.up_to(num_prompt))
            start = end
            place = np.full(num_prompt, -1, dtype=np.int64)
            for old, new, size in shared:
                assert before is not None  # noqa: S101 nothing is shared with nothing
                known = slice(before.edges[old], before.edges[old + size])
                place[elements.edges[new] : elements.edges[new + size]] = index[known]
            is_new = place < 0
            num_known = int(num_prompt - is_new.sum())
            place[is_new] = np.arange(start, start + num_prompt - num_known)
            end = start + num_prompt - num_known + len(ids) - num_prompt
            response = np.arange(end - (len(ids) - num_prompt), end)
            is_first = before is None
            num_first = num_prompt if is_first else num_first
            index = np.concatenate([place, response])
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
                observed=ids[:0] if is_first else ids[:num_prompt][is_new],
                is_rewritten=not is_append,
                start=start,
                size=len(ids),
                num_prompt=num_prompt,
                num_known=num_known,
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
    """Return whether a prompt appends to what came before, and what it shares."""
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
