"""Contexts of a batch that were rewritten, as ranges of positions of its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch.turns import piece_texts, prompt_pieces
from rounddiag.errors import BatchError

if TYPE_CHECKING:
    from rounddiag.batch.batch import Batch


@dataclass(frozen=True, kw_only=True, eq=False)
class Contexts:
    """The contexts of a batch that do not append to the one before.

    Parameters
    ----------
    sample, round : arrays of int, shape (num_contexts,)
        The round that was written in the context; sorted. Later rounds append to it.
    start : array of int, shape (num_contexts,)
        The position in the response at which what entered the context begins.
    offsets : array of int, shape (num_contexts + 1,)
        Where the ranges of each begin.
    ranges : array of int, shape (num_ranges, 2)
        Start and stop of positions in the response; negative ones are in the prompt,
        whose last token is -1.
    """

    sample: Array
    round: Array
    start: Array
    offsets: Array
    ranges: Array

    @classmethod
    def build(cls, contexts: Sequence[tuple[int, int, int, Array]]) -> Contexts:
        """Return those of (sample, round, start, ranges), in ascending order.

        Examples
        --------
        >>> contexts = Contexts.build([(0, 1, 5, np.array([[0, 2], [5, 6]]))])
        >>> contexts.of_sample(0)
        {1: RewrittenContext(start=5, ranges=array([[0, 2],
               [5, 6]], dtype=int32))}
        """
        ranges = [each for *_, each in contexts]
        numbers = np.array([row[:3] for row in contexts], np.int32).reshape(-1, 3)
        empty = np.empty((0, 2), np.int32)
        return cls(
            sample=numbers[:, 0],
            round=numbers[:, 1],
            start=numbers[:, 2],
            offsets=np.cumsum([0, *map(len, ranges)]),
            ranges=np.concatenate([empty, *ranges]).astype(np.int32),
        )

    def __len__(self) -> int:
        return len(self.sample)

    def of_sample(
        self, sample: int, num_prompt: int = 0
    ) -> dict[int, RewrittenContext]:
        """Return the rewritten contexts of a sample, by their round.

        Positions are those of the sequence of its prompt, of `num_prompt` tokens, and
        response; without it of the response.
        """
        own = slice(*np.searchsorted(self.sample, [sample, sample + 1]))
        limits = self.offsets[own.start : own.stop + 1].tolist()
        ranges = self.ranges[limits[0] : limits[-1]] + num_prompt
        rounds, starts = self.round[own].tolist(), self.start[own].tolist()
        return {
            round_: RewrittenContext(
                start + num_prompt, ranges[first - limits[0] : stop - limits[0]]
            )
            for round_, start, (first, stop) in zip(
                rounds, starts, pairwise(limits), strict=True
            )
        }

    def select(self, samples: Array) -> Contexts:
        """Return those of some samples, renumbered from 0."""
        return Contexts.build(
            [
                (number, round_, *context)
                for number, sample in enumerate(samples.tolist())
                for round_, context in self.of_sample(sample).items()
            ]
        )


def join_contexts(
    parts: Sequence[Contexts | None], sizes: Sequence[int]
) -> Contexts | None:
    """Return the contexts of batches of these sizes, joined end to end."""
    if all(part is None for part in parts):
        return None
    starts = np.cumsum([0, *sizes]).tolist()
    return Contexts.build(
        [
            (first + sample, round_, *context)
            for part, first in zip(parts, starts, strict=False)
            if part is not None
            for sample in np.unique(part.sample).tolist()
            for round_, context in part.of_sample(sample).items()
        ]
    )


class RewrittenContext(NamedTuple):
    """A context as ranges of positions of its sample; see `Contexts`.

    Attributes
    ----------
    start: Where what entered it begins.
    ranges: Array of int, shape (num_ranges, 2).
    """

    start: int
    ranges: Array


def check_contexts(batch: Batch) -> None:
    """Raise a BatchError if the ranges of contexts do not fit their samples."""
    contexts = batch.contexts
    if contexts is None:
        return
    counts = np.bincount(batch.rounds.sample.cpu().numpy(), minlength=len(batch))
    sample, round_ = contexts.sample, contexts.round
    order = np.lexsort((round_, sample))
    keys: list[tuple[Any, Any]] = [*zip(sample.tolist(), round_.tolist(), strict=True)]
    fits = (
        len({*keys}) == len(keys)
        and bool((order == np.arange(len(sample))).all())
        and bool(((sample >= 0) & (sample < len(batch))).all())
        and bool(((round_ >= 0) & (round_ < counts[sample])).all())
        and len(contexts.start) == len(sample)
        and len(contexts.offsets) == len(sample) + 1
        and int(contexts.offsets[-1]) == len(contexts.ranges)
        and bool((np.diff(contexts.offsets) >= 0).all())
    )
    fits = fits and (not len(contexts) or _are_before_rounds(batch, contexts))
    if not fits:
        raise BatchError.build(
            key="contexts",
            expected="ranges of positions of the samples, for their rounds",
            found="others",
            advice="Build them with `rounddiag.load(..., sample_by=...)`.",
        )


def _are_before_rounds(batch: Batch, contexts: Contexts) -> bool:
    """Return whether contexts are of what stands before their rounds, each part once.

    They have any order: what entered between older parts is stored behind them. Of
    texts, a picture may come again, mostly as a range of one position.
    """
    sample, rounds = contexts.sample, batch.rounds
    row = np.searchsorted(rounds.sample.cpu().numpy(), sample) + contexts.round
    offsets = batch.offsets.cpu().numpy()[sample]
    starts = rounds.start.cpu().numpy()[row] - offsets
    num = _prompt_sizes(batch, sample)
    ends = (rounds.start + rounds.num_tokens).cpu().numpy()[row - 1] - offsets
    ends = np.where(contexts.round > 0, ends, -num)  # of the round before
    owner = np.repeat(np.arange(len(contexts)), np.diff(contexts.offsets))
    first, stop = contexts.ranges[:, 0].astype(np.int64), contexts.ranges[:, 1]
    sizes = stop - first
    total = np.bincount(owner, np.where(sizes > 1, sizes, 0), len(contexts))
    fits = (first >= -num[owner]) & (first < stop) & (stop <= starts[owner])
    fits_start = (contexts.start >= ends) & (contexts.start <= starts)
    return (
        bool(fits.all() and fits_start.all() and (total <= starts + num).all())
        and (batch.prompt_offsets is None or _are_disjoint(owner, first, stop))
        and (batch.pieces is None or _are_disjoint(*_with_text(batch, contexts)))
    )


def _are_disjoint(owner: Array, first: Array, stop: Array) -> bool:
    order = np.lexsort((first, owner))
    owner, first, stop = owner[order], first[order], stop[order]
    return not ((owner[1:] == owner[:-1]) & (first[1:] < stop[:-1])).any()


def _with_text(batch: Batch, contexts: Contexts) -> tuple[Array, Array, Array]:
    """Return the context and the ranges of what is text, counted without pictures."""
    owner = np.repeat(np.arange(len(contexts)), np.diff(contexts.offsets))
    ranges = contexts.ranges.astype(np.int64)
    for sample in np.unique(contexts.sample).tolist():
        prompt = prompt_pieces(batch, sample)
        pieces = [*prompt, *piece_texts(batch, sample)]
        num_before = np.cumsum([0, *map(bool, pieces)])
        own = contexts.sample[owner] == sample
        ranges[own] = num_before[ranges[own] + len(prompt)]
    is_text = ranges[:, 0] < ranges[:, 1]
    return owner[is_text], *ranges[is_text].T


def _prompt_sizes(batch: Batch, samples: Array) -> Array:
    """Return how many tokens, or pieces of text, the prompts of samples have.

    Where prompts were left out, as by `redact`, as many as int32 can count.
    """
    if batch.prompt_offsets is not None:
        return batch.prompt_offsets.diff().cpu().numpy()[samples]
    if batch.pieces is None:
        return np.full(len(samples), np.iinfo(np.int32).max, np.int64)
    sizes = {s: len(prompt_pieces(batch, s)) for s in np.unique(samples).tolist()}
    return np.array([sizes[sample] for sample in samples.tolist()], np.int64)
