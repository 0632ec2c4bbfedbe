"""Where a batch's screenshots stand among its tokens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]


class Place(NamedTuple):
    """Where a picture stands; None where that is not known.

    Attributes
    ----------
    position : int or None
        Index in the response of its first image token; negative in the prompt, whose
        last token is -1.
    round : int or None
        The first round after it; None also where no round follows.
    """

    position: int | None = None
    round: int | None = None


class _Runs(NamedTuple):
    """Maximal runs of one token id in a prompt and its response."""

    token: Array
    start: Array
    length: Array
    is_last: Array

    def at(self, rows: Array | slice) -> _Runs:
        """Keep some of the runs."""
        return _Runs(*(column[rows] for column in self))


def image_token(batch: Batch, num_tokens: Sequence[Sequence[int]]) -> int | None:
    """Return the token id that stands for pictures, which files do not say.

    It is the one whose runs are as long as the pictures are large, in their order, in
    the most samples; None where no token or more than one is like that.

    Parameters
    ----------
    batch : Batch
    num_tokens : sequence of sequence of int, one a sample
        How many image tokens each picture has.

    Examples
    --------
    >>> from rounddiag import Batch
    >>> zeros = torch.zeros(4)
    >>> batch = Batch.from_padded(
    ...     response_ids=torch.tensor([[1, 9, 9, 2]]),
    ...     response_mask=torch.tensor([[1, 0, 0, 1]]),
    ...     rollout_log_probs=zeros[None],
    ...     old_log_probs=zeros[None],
    ... )
    >>> image_token(batch, [[2]]), image_places(batch, 0, [2])
    (9, [Place(position=1, round=1)])
    """
    votes: Counter[int] = Counter()
    for sample, sizes in enumerate(num_tokens):
        if sizes:
            votes.update(_candidates(_runs(batch, sample), list(sizes)))
    ranked = votes.most_common(2)
    is_one = len(ranked) == 1 or (len(ranked) > 1 and ranked[0][1] > ranked[1][1])
    return ranked[0][0] if is_one else None


def image_places(
    batch: Batch, sample: int, num_tokens: Sequence[int], token: int | None = None
) -> list[Place]:
    """Return where each picture of a sample stands, and the first round after it.

    Parameters
    ----------
    batch : Batch
    sample : int
    num_tokens : sequence of int
        How many image tokens each picture of the sample has.
    token : int, optional
        The image token; found in this sample when left out.
    """
    runs, sizes = _runs(batch, sample), list(num_tokens)
    tokens = _candidates(runs, sizes) if token is None else [token]
    if len(tokens) == 1:
        runs = runs.at(runs.token == tokens[0])
        if _fit(runs, sizes):
            known = _places(batch, sample, runs, sizes)
            return known + [Place()] * (len(sizes) - len(known))
    return [Place()] * len(sizes)


def num_image_tokens(batch: Batch, sample: int, token: int) -> list[int]:
    """Return how long the runs of the image token are in a sample."""
    runs = _runs(batch, sample)
    lengths: list[int] = runs.length[runs.token == token].tolist()
    return lengths


def _places(batch: Batch, sample: int, runs: _Runs, sizes: list[int]) -> list[Place]:
    mine = batch.rounds.sample == sample
    starts = (batch.rounds.start[mine] - batch.offsets[sample]).numpy()
    position = runs.start - _prompt_length(batch, sample)
    # A picture that is cut off ends where it would have ended: after every round.
    ends = position + np.array(sizes[: len(position)], dtype=np.int64)
    after = np.searchsorted(starts, ends).tolist()
    return [
        Place(at, round_ if round_ < len(starts) else None)
        for at, round_ in zip(position.tolist(), after, strict=True)
    ]


def _prompt_length(batch: Batch, sample: int) -> int:
    if batch.prompt_offsets is None:
        return 0
    first, last = batch.prompt_offsets[sample : sample + 2].tolist()
    return int(last - first)


def _runs(batch: Batch, sample: int) -> _Runs:
    ids = _sequence(batch, sample)
    edges = np.flatnonzero(np.diff(ids)) + 1
    start = np.r_[0, edges][: len(ids)]  # none where there is no token at all
    length = np.diff(np.r_[start, len(ids)])
    return _Runs(ids[start], start, length, start + length == len(ids))


def _sequence(batch: Batch, sample: int) -> Array:
    """Return the token ids of prompt and response."""
    start = int(batch.offsets[sample])
    ids = batch.response_ids[start : start + int(batch.lengths[sample])]
    if batch.prompt_ids is not None and batch.prompt_offsets is not None:
        first, last = batch.prompt_offsets[sample : sample + 2].tolist()
        ids = torch.cat([batch.prompt_ids[first:last], ids])
    array: Array = ids.numpy()
    return array


def _candidates(runs: _Runs, sizes: list[int]) -> list[int]:
    """Return the token ids whose runs are as long as the pictures are large."""
    grouped = runs.at(np.argsort(runs.token, kind="stable"))
    tokens, first, num = np.unique(grouped.token, return_index=True, return_counts=True)
    likely = (num <= len(sizes)) & (grouped.length[first] == (sizes or [0])[0])
    groups = zip(tokens[likely], first[likely], num[likely], strict=True)
    return [
        int(token)
        for token, start, count in groups
        if _fit(grouped.at(slice(start, start + count)), sizes)
    ]


def _fit(runs: _Runs, sizes: list[int]) -> bool:
    """Whether runs are the pictures' sizes; the end of the text may cut some off."""
    lengths, expected = runs.length.tolist(), sizes[: len(runs.length)]
    if lengths and runs.is_last[-1]:
        lengths[-1] = max(lengths[-1], expected[-1])
    return bool(lengths) and lengths == expected
