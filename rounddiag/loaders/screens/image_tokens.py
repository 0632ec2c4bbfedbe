"""Where a batch's screenshots stand among its tokens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rounddiag.loaders.screens.token_runs import TokenRuns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch


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
    >>> import torch
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
            runs = TokenRuns.of_sample(batch, sample)
            votes.update(runs.tokens_that_fit(list(sizes)))
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
    runs, sizes = TokenRuns.of_sample(batch, sample), list(num_tokens)
    tokens = runs.tokens_that_fit(sizes) if token is None else [token]
    if len(tokens) == 1 and runs.of(tokens[0]).fit(sizes):
        known = _places(batch, sample, runs.of(tokens[0]), sizes)
        return known + [Place()] * (len(sizes) - len(known))
    return [Place()] * len(sizes)


def _places(
    batch: Batch, sample: int, runs: TokenRuns, sizes: list[int]
) -> list[Place]:
    mine = batch.rounds.sample == sample
    starts = (batch.rounds.start[mine] - batch.offsets[sample]).numpy()
    # A picture that is cut off ends where it would have ended: after every round.
    ends = runs.start + np.array(sizes[: len(runs.start)], dtype=np.int64)
    after = np.searchsorted(starts, ends).tolist()
    return [
        Place(at, round_ if round_ < len(starts) else None)
        for at, round_ in zip(runs.start.tolist(), after, strict=True)
    ]
