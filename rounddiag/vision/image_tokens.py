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

    def of_pictures(self, ids: Array, number: int) -> TokenRuns:
        """Join the runs of each picture, where a processor writes several.

        Of transformers 5.24 Llama 4 writes one for a tile, SmolVLM one for a tile and
        one for the whole, Pixtral one for a row of patches. One token is before the
        first run of each picture, before its last, or after its last, and nowhere else.
        The runs stay as they are where none is for exactly `number` pictures.
        """
        if not 0 < number < len(self.start):
            return self
        padded, stop = np.r_[-1, ids, -1], self.start + self.length
        before, after = padded[self.start], padded[stop + 1]
        first, last = before == before[0], before == before[-1]
        for starts in (first, _after(last), _after(after == after[-1])):
            firsts = np.flatnonzero(starts)
            lasts = np.r_[firsts[1:], len(starts)] - 1
            gaps = (self.start[1:] - stop[:-1])[~starts[1:]]
            if len(firsts) == number and starts[0] and (gaps <= LONGEST_GAP).all():
                start, is_last = self.start[firsts], self.is_last[lasts]
                return TokenRuns(
                    self.token[firsts], start, stop[lasts] - start, is_last
                )
        return self

    def may_be_parts(self, ids: Array) -> bool:
        """Return whether some are so close that they may be parts of one picture.

        Pictures of one run each have the same token before all of them, and the same
        after: `<|vision_start|>` and `<|vision_end|>`.
        """
        starts, stops = self.start[1:], (self.start + self.length)[:-1]
        before = ids[self.start[self.start > 0] - 1]
        is_close = bool((starts - stops <= LONGEST_GAP).any())
        is_alike = all(len({*near.tolist()}) == 1 for near in (before, ids[stops]))
        return is_close and not is_alike

    def at(self, rows: Array | slice) -> TokenRuns:
        """Return some of the runs."""
        return TokenRuns(*(column[rows] for column in self))


# Tokens between runs of one picture: SmolVLM ends a row of tiles with two line breaks,
# and begins the whole picture with two more tokens.
LONGEST_GAP = 4


def _after(ends: Array) -> Array:
    return np.r_[True, ends[:-1]]


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
