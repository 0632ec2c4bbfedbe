"""Runs of equal tokens in a sample's prompt and response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rounddiag.checks.sequences import known_sequence

if TYPE_CHECKING:
    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]


class TokenRuns(NamedTuple):
    """Maximal runs of one token id, in their order; an array each.

    Attributes
    ----------
    token : array of int
        The id.
    start : array of int
        Index in the response; negative in the prompt, whose last token is -1.
    length : array of int
    is_last : array of bool
        Whether the run ends the response.
    """

    token: Array
    start: Array
    length: Array
    is_last: Array

    @classmethod
    def of_sample(cls, batch: Batch, sample: int) -> TokenRuns:
        """Find the runs of one sample."""
        num_before, ids = known_sequence(batch, sample)
        edges = np.flatnonzero(np.diff(ids)) + 1
        start = np.r_[0, edges][: len(ids)]  # none where there is no token at all
        length = np.diff(np.r_[start, len(ids)])
        is_last = start + length == len(ids)
        return cls(ids[start], start - num_before, length, is_last)

    def at(self, rows: Array | slice) -> TokenRuns:
        """Keep some of the runs."""
        return TokenRuns(*(column[rows] for column in self))

    def of(self, token: int) -> TokenRuns:
        """Keep the runs of one id."""
        return self.at(self.token == token)

    def tokens_that_fit(self, sizes: list[int]) -> list[int]:
        """Return the ids whose runs are of these sizes."""
        grouped = self.at(np.argsort(self.token, kind="stable"))
        tokens, first, num = np.unique(
            grouped.token, return_index=True, return_counts=True
        )
        likely = (num <= len(sizes)) & (grouped.length[first] == (sizes or [0])[0])
        groups = zip(tokens[likely], first[likely], num[likely], strict=True)
        return [
            int(token)
            for token, start, count in groups
            if grouped.at(slice(start, start + count)).fit(sizes)
        ]

    def fit(self, sizes: list[int]) -> bool:
        """Whether they are of these sizes; the response's end may cut some off."""
        lengths, expected = self.length.tolist(), sizes[: len(self.length)]
        if 0 < len(lengths) <= len(sizes) and self.is_last[-1]:
            lengths[-1] = max(lengths[-1], expected[-1])
        return bool(lengths) and lengths == expected
