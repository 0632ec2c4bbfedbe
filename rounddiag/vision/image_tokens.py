"""Image tokens in the ids of a sample: which token stands for images, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rounddiag._typing import Array

IMAGE_PAD = "<|image_pad|>"
VISION_TOKENS = (IMAGE_PAD, "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")


class TokenRuns(NamedTuple):
    """Maximal runs of one token id in a sample, in order, one array per attribute.

    Attributes
    ----------
    token: The id.
    start: Index in the ids.
    is_last: Whether the run ends the ids.
    """

    token: Array
    start: Array
    length: Array
    is_last: Array

    @classmethod
    def of_ids(cls, ids: Array, token: int | None = None) -> TokenRuns:
        """Find the runs of all tokens, or of one.

        Examples
        --------
        >>> runs = TokenRuns.of_ids(np.array([9, 9, 1, 9]), 9)
        >>> runs.start.tolist(), runs.length.tolist(), runs.is_last.tolist()
        ([0, 3], [2, 1], [False, True])
        """
        if token is None:
            edges = np.flatnonzero(np.diff(ids)) + 1
            start = np.r_[0, edges][: len(ids)]  # none where there is no token at all
            stop = np.r_[start[1:], len(ids)][: len(start)]
        else:
            edges = np.flatnonzero(np.diff(ids == token, prepend=False, append=False))
            start, stop = edges[::2], edges[1::2]
        return cls(ids[start], start, stop - start, stop == len(ids))

    def fit(self, sizes: Sequence[int]) -> bool:
        """Return whether the runs have these lengths; the last one may be cut off."""
        lengths, expected = self.length.tolist(), [*sizes[: len(self.length)]]
        if 0 < len(lengths) <= len(sizes) and self.is_last[-1]:
            lengths[-1] = max(lengths[-1], expected[-1])
        return bool(lengths) and lengths == expected

    def at(self, rows: Array | slice) -> TokenRuns:
        """Return some of the runs."""
        return TokenRuns(*(column[rows] for column in self))


def tokens_that_fit(ids: Array, sizes: Sequence[int]) -> list[int]:
    """Return the token ids whose runs have these lengths, in their order.

    Examples
    --------
    >>> tokens_that_fit(np.array([1, 9, 9, 2, 9, 3]), [2, 1])
    [9]
    """
    if not sizes:
        return []
    runs = TokenRuns.of_ids(ids)
    grouped = runs.at(np.argsort(runs.token, kind="stable"))
    tokens, first, num = np.unique(grouped.token, return_index=True, return_counts=True)
    likely = (num <= len(sizes)) & (grouped.length[first] == sizes[0])
    groups = zip(tokens[likely], first[likely], num[likely], strict=True)
    return [
        int(token)
        for token, start, count in groups
        if grouped.at(slice(start, start + count)).fit(sizes)
    ]


def find_image_token(
    sequences: Iterable[Array],
    *,
    sizes: Sequence[Sequence[int]] = (),
    positions: Sequence[Sequence[int]] = (),
    special_tokens: Mapping[str, int] | None = None,
) -> int | None:
    """Return the token id that stands for pictures, which most files do not name.

    The first of these rules that gives a result:

    1. the tokenizer's special token `<|image_pad|>`;
    2. the token at the positions of most pictures, where positions are known;
    3. the token whose runs are as long as the pictures are large, in their order, in
       the most samples, unless two tokens are equally good.
    """
    if special_tokens and IMAGE_PAD in special_tokens:
        return special_tokens[IMAGE_PAD]
    if any(map(len, positions)):
        votes_at_starts = Counter(
            int(ids[at])
            for starts, ids in zip(positions, sequences, strict=False)
            for at in starts
            if 0 <= at < len(ids)
        )
        return votes_at_starts.most_common(1)[0][0] if votes_at_starts else None
    votes: Counter[int] = Counter()
    for expected, ids in zip(sizes, sequences, strict=False):
        votes.update(tokens_that_fit(ids, expected))
    best = votes.most_common(2)
    if not best or (len(best) > 1 and best[0][1] == best[1][1]):
        return None
    return best[0][0]
