"""What all trajectories of a batch need, worked out once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.checks.contract import UntestableError
from rounddiag.checks.pictures import image_token
from rounddiag.core.pairs import paired
from rounddiag.core.totals import diffs
from rounddiag.text import special_tokens

if TYPE_CHECKING:
    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]


class Facts:
    """Facts of a whole batch, each found when it is first asked for.

    Parameters
    ----------
    batch : Batch
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._sizes: dict[tuple[str, str], Array] = {}

    @cached_property
    def image_token(self) -> int | None:
        """The token id that stands for pictures; None where nothing tells."""
        if self._batch.is_redacted:
            return None
        try:
            return image_token(self._batch)
        except UntestableError:
            return None

    @cached_property
    def special(self) -> dict[int, str]:
        """The tokenizer's special tokens, id to text; none in a redacted batch."""
        return {} if self._batch.is_redacted else special_tokens(self._batch.tokenizer)

    def ranks(self, diff: Array, a: str, b: str) -> Array:
        """Rank tokens of the batch among all of them by their |diff|.

        Parameters
        ----------
        diff : ndarray of float32
            Diffs of the pair `a`, `b`.
        a, b : str

        Returns
        -------
        ndarray of int32
            1 is the largest; equals share the better rank; 0 where the diff is not
            finite.
        """
        sizes = self._sizes_of(a, b)
        found = len(sizes) + 1 - np.searchsorted(sizes, np.abs(diff), side="right")
        return np.where(np.isfinite(diff), found, 0).astype(np.int32)

    def _sizes_of(self, a: str, b: str) -> Array:
        """Return the finite |diff| of the batch, smallest first."""
        if (a, b) not in self._sizes:
            every = diffs(paired(self._batch, a, b))
            self._sizes[a, b] = np.sort(np.abs(every[np.isfinite(every)]))
        return self._sizes[a, b]


def ranks_in_runs(ranks: Array, counts: Array) -> Array:
    """Rank the tokens of each run among themselves, by their ranks among all.

    Parameters
    ----------
    ranks : ndarray of int32
        As `Facts.ranks` gives them; 0 stays 0.
    counts : ndarray of int
        How many tokens each run has.

    Examples
    --------
    >>> ranks_in_runs(np.array([7, 0, 3, 3, 9]), np.array([3, 2])).tolist()
    [2, 0, 1, 1, 2]
    """
    last = int(ranks.max(initial=0)) + 1
    run = np.repeat(np.arange(len(counts)), counts)
    keys = run * (last + 1) + np.where(ranks > 0, ranks, last)
    first = (np.cumsum(counts) - counts)[run]
    found = np.searchsorted(np.sort(keys), keys) - first + 1
    return np.where(ranks > 0, found, 0).astype(np.int32)
