"""Prompt and response of a sample as one sequence, and the contexts of its rounds.

Consecutive rounds whose contexts append are a *chain*: what is scored in one pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch.context_store import RewrittenContext
from rounddiag.batch.sequence_difference import index_of
from rounddiag.batch.turns import piece_texts, prompt_pieces
from rounddiag.vision import Screenshot

if TYPE_CHECKING:
    from rounddiag.batch.batch import Batch


class PlacedPicture(NamedTuple):
    """A picture in the prompt and response of a sample.

    Attributes
    ----------
    start, stop: Its image tokens; equal where their position is unknown.
    """

    start: int
    stop: int
    image: Screenshot


def known_sequence(batch: Batch, sample: int) -> tuple[int, Array]:
    """Return the length of a sample's prompt, and the ids of prompt and response.

    Without prompts the length is 0, and the ids are those of the response alone.
    """
    begin = int(batch.offsets[sample])
    ids = batch.require_ids()[begin : begin + int(batch.lengths[sample])]
    first, stop = 0, 0
    if batch.prompt_ids is not None and batch.prompt_offsets is not None:
        first, stop = batch.prompt_offsets[sample : sample + 2].tolist()
        ids = torch.cat([batch.prompt_ids[first:stop], ids])
    return stop - first, ids.cpu().numpy()


def place_pictures(
    shots: Sequence[Screenshot], num_prompt: int, ids: Array
) -> list[PlacedPicture]:
    """Return the pictures whose position is known, in order, with their image tokens.

    A picture is the run of one id at its position.

    Examples
    --------
    >>> from rounddiag.vision import EncodedScreenshot
    >>> shot = EncodedScreenshot(data=b"", position=-2)
    >>> [picture[:2] for picture in place_pictures([shot], 4, np.array([1, 8, 9, 9]))]
    [(2, 4)]
    """
    places = [
        (num_prompt + shot.position, shot)
        for shot in shots
        if shot.position is not None
    ]
    inside = sorted(
        (place for place in places if 0 <= place[0] < len(ids)),
        key=lambda place: place[0],
    )
    starts = np.array([start for start, _ in inside], dtype=np.int64)
    # A run ends where the id changes, and where the next picture begins.
    ends = np.append(np.flatnonzero(ids[1:] != ids[:-1]) + 1, len(ids))
    stops = ends[np.searchsorted(ends, starts, side="right")]
    stops = np.minimum(stops, np.append(starts, len(ids))[1:])
    return [
        PlacedPicture(
            start,
            max(min(stop, start + getattr(shot, "num_image_tokens", stop)), start + 1),
            shot,
        )
        for (start, shot), stop in zip(inside, stops.tolist(), strict=True)
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextChain:
    """Consecutive rounds whose contexts append: what is scored in one pass.

    Attributes
    ----------
    rounds: The rounds.
    ranges: Where its tokens stand in the prompt and response of the sample: the first
        context, what was written in it, and all that was appended.
    entered_at: What stands there or later entered with this chain; the rest it shares
        with earlier ones.
    offset: What to add to the place of a token that was written in the sample's prompt
        and response to find it in the chain.
    """

    rounds: range
    ranges: Array
    entered_at: int
    offset: int

    @property
    def size(self) -> int:
        """How many tokens it has."""
        return int(np.diff(self.ranges.astype(np.int64)).sum())

    @cached_property
    def index(self) -> Array:
        """The positions of its tokens."""
        return index_of(self.ranges)


class SampleSequence:
    """Prompt and response of a sample, and the contexts of its rounds in it.

    Parameters
    ----------
    batch : Batch
    sample : int

    Attributes
    ----------
    sample: Its number.
    num_prompt: Number of tokens of its prompt.
    starts, stops: Of the rounds, in the sequence.
    rewritten: Its rewritten contexts, in the sequence, by their round.
    """

    def __init__(self, batch: Batch, sample: int) -> None:
        rounds = batch.rounds
        own = rounds.sample.new_tensor([sample, sample + 1])
        first, stop = torch.searchsorted(rounds.sample, own).tolist()
        self.num_prompt = _num_prompt(batch, sample)
        begin = int(batch.offsets[sample]) - self.num_prompt
        starts = rounds.start[first:stop] - begin
        self.starts: list[int] = starts.tolist()
        self.stops: list[int] = (starts + rounds.num_tokens[first:stop]).tolist()
        contexts = batch.contexts
        self.rewritten: dict[int, RewrittenContext] = (
            {} if contexts is None else contexts.of_sample(sample, self.num_prompt)
        )
        self._heads = sorted(self.rewritten)
        self._length = self.num_prompt + int(batch.lengths[sample])
        self.sample = sample
        self._batch = batch

    @cached_property
    def ids(self) -> Array:
        """The token ids; the numbers of the pieces of a batch of texts."""
        if self._batch.response_ids is None:
            return np.arange(self._length)
        return known_sequence(self._batch, self.sample)[1]

    @cached_property
    def texts(self) -> list[str]:
        """The pieces of a batch of texts."""
        batch, sample = self._batch, self.sample
        return [*prompt_pieces(batch, sample), *piece_texts(batch, sample)]

    @cached_property
    def pictures(self) -> list[PlacedPicture]:
        """The pictures whose position is known, and that have a piece in texts."""
        if self._batch.response_ids is None and self._batch.contexts is None:
            return []
        shots = (self._batch.images or ((),) * len(self._batch))[self.sample]
        return place_pictures(shots, self.num_prompt, self.ids)

    @cached_property
    def chains(self) -> list[ContextChain]:
        """The chains of the sample, in order; one without rounds if it has none."""
        if not self.starts:
            whole = np.array([[0, self._length]])
            return [ContextChain(rounds=range(0), ranges=whole, entered_at=0, offset=0)]
        heads = [0, *(at for at in self.rewritten if at), len(self.starts)]
        ends = [self.entered_at(at) for at in heads[1:-1]] + [self._length]
        chains = []
        for (first, stop), end in zip(pairwise(heads), ends, strict=True):
            since = [[self.starts[first], end]]
            chain = ContextChain(
                rounds=range(first, stop),
                ranges=np.concatenate([self.ranges(first), since]),
                entered_at=self.entered_at(first),
                offset=0,
            )
            chains.append(replace(chain, offset=chain.size - end))
        return chains

    def position_ids(self) -> list[Tensor] | None:
        """Return the position ids of each chain; None if they do not fit."""
        saved = self._batch.position_ids
        if saved is None:
            return None
        sizes = [chain.size for chain in self.chains]
        surplus = saved[self.sample].shape[-1] - sum(sizes)
        if self._batch.prompt_offsets is None and surplus > 0:
            sizes[0] += surplus  # a prompt that is not known, as in a redacted batch
        elif surplus:
            return None
        return [*saved[self.sample].split(sizes, dim=-1)]

    def ranges(self, round_: int) -> Array:
        """Return the ranges, in the sequence, of a round's context."""
        number = bisect_right(self._heads, round_)
        if not number:
            return np.array([[0, self.starts[round_]]])
        head = self._heads[number - 1]
        since = [[self.starts[head], self.starts[round_]]]
        return np.concatenate([self.rewritten[head].ranges, since])

    def index(self, round_: int) -> Array:
        """Return the positions, in the sequence, of a round's context."""
        return index_of(self.ranges(round_))

    @cached_property
    def _picture_at(self) -> Array:
        """The number of the picture that begins at each position, else -1."""
        numbers = np.full(self._length, -1, dtype=np.int32)
        starts = [picture.start for picture in self.pictures]
        numbers[starts] = np.arange(len(starts))
        return numbers

    def shown(self, index: Array) -> list[tuple[int, int]]:
        """Return where pictures begin in an index of positions, and their numbers."""
        numbers = self._picture_at[index]
        places = np.flatnonzero(numbers >= 0)
        return [*zip(places.tolist(), numbers[places].tolist(), strict=True)]

    @cached_property
    def fragment_starts(self) -> frozenset[int]:
        """Where what entered a context goes on behind text that was there before.

        What is stored one after the other does not read as one text there.
        """
        return frozenset(
            start
            for context in self.rewritten.values()
            for start in context.ranges[:, 0].tolist()
            if start > context.start
        )

    def entered_at(self, round_: int) -> int:
        """Return the first position, in the sequence, of what entered a context."""
        if round_ in self.rewritten:
            return self.rewritten[round_].start if round_ else 0
        return self.stops[round_ - 1] if round_ else 0

    def index_before(self, round_: int) -> Array:
        """Return the positions of the context before, and of what followed it."""
        since = np.arange(self.starts[round_ - 1], self.entered_at(round_))
        return np.concatenate([self.index(round_ - 1), since])


def _num_prompt(batch: Batch, sample: int) -> int:
    if batch.prompt_offsets is None:
        return len(prompt_pieces(batch, sample)) if batch.pieces is not None else 0
    first, stop = batch.prompt_offsets[sample : sample + 2].tolist()
    return int(stop - first)
