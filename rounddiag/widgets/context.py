"""Prompt and response of a sample, and what stands between its rounds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.checks.sequences import known_sequence
from rounddiag.figures.reading import NO_TEXT
from rounddiag.text import pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch
    from rounddiag.widgets.facts import Facts

    Array = np.ndarray[Any, Any]
    Stretch = tuple[int, int]

_NUM_SEEN = 8  # tokens at either end, where templates and tokenizers disagree


@dataclass(frozen=True, kw_only=True)
class Context:
    """Prompt and response of a sample.

    Attributes
    ----------
    ids : ndarray of int
        The tokens of both.
    num_before : int
        How many of them are the prompt's.
    is_image : ndarray of bool
        Which of them stand for a picture.
    batch : Batch
    """

    ids: Array
    num_before: int
    is_image: Array
    batch: Batch

    @classmethod
    def of(cls, batch: Batch, sample: int, facts: Facts) -> Context:
        """Take what is known of one sample."""
        num_before, ids = known_sequence(batch, sample)
        token = facts.image_token
        is_image = np.zeros(len(ids), dtype=bool) if token is None else ids == token
        return cls(ids=ids, num_before=num_before, is_image=is_image, batch=batch)

    def pieces(self, stretches: Sequence[Stretch]) -> list[list[str]]:
        """Return the text of stretches, given by positions in the response."""
        ends = np.cumsum([0, *(stop - start for start, stop in stretches)]).tolist()
        if self.batch.is_redacted:
            found = [NO_TEXT] * ends[-1]
        else:
            before = self.num_before
            parts = [
                self.ids[start + before : stop + before] for start, stop in stretches
            ]
            ids = np.concatenate([self.ids[:0], *parts])
            found = pieces(ids, self.batch.tokenizer, starts=ends[:-1])
        return [found[begin:end] for begin, end in pairwise(ends)]

    def gaps(self, starts: Array, counts: Array) -> list[dict[str, Any]]:
        """Describe what stands before, between and behind rounds.

        Parameters
        ----------
        starts, counts : ndarray of int, shape (num_rounds,)
            Position and number of tokens of each round of the sample.

        Returns
        -------
        list of dict
            `start` and `stop`, positions in the response, from the prompt's first
            token on; `before`, the round that follows, None behind the last one;
            `num_tokens`, `num_image_tokens`; `head` and `tail`, the first and the last
            8 pieces, where a short gap has none twice. Empty gaps are left out.
        """
        begins = [-self.num_before, *(starts + counts).tolist()]
        ends = [*starts.tolist(), len(self.ids) - self.num_before]
        known = [
            (start, stop, before if before < len(starts) else None)
            for before, (start, stop) in enumerate(zip(begins, ends, strict=True))
            if start < stop
        ]
        sides = [side for start, stop, _ in known for side in _sides(start, stop)]
        texts = self.pieces(sides)
        num_images = np.cumsum(np.r_[0, self.is_image])
        return [
            {
                "start": start,
                "stop": stop,
                "before": before,
                "num_tokens": stop - start,
                "num_image_tokens": int(
                    num_images[stop + self.num_before]
                    - num_images[start + self.num_before]
                ),
                "head": head,
                "tail": tail,
            }
            for (start, stop, before), head, tail in zip(
                known, texts[::2], texts[1::2], strict=True
            )
        ]


def _sides(start: int, stop: int) -> tuple[Stretch, Stretch]:
    """Return the two ends of a gap, which share no token."""
    middle = min(start + _NUM_SEEN, stop)
    return (start, middle), (max(middle, stop - _NUM_SEEN), stop)
