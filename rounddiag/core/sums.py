"""Per-round sums over tokens, in one pass over the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.core import sums_cpu, sums_cuda

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Totals of every round over its tokens with a finite diff.

    Attributes
    ----------
    num_nonfinite : ndarray of int64, shape (num_rounds,)
        Tokens left out because their diff is NaN or infinite.
    abs_diff, diff, k3 : ndarray of float64, shape (num_rounds,)
        Sums of |diff|, diff and k3, in nats.
    max_abs_diff : ndarray of float64, shape (num_rounds,)
        Largest |diff|; 0 where no token is left.
    """

    num_nonfinite: Array
    abs_diff: Array
    diff: Array
    max_abs_diff: Array
    k3: Array

    def sum_by_group(self, group: Array, num_groups: int) -> Totals:
        """Add up the rounds of each group.

        Parameters
        ----------
        group : ndarray of int, shape (num_rounds,)
            Which group, counted from 0, a round is in.
        num_groups : int

        Returns
        -------
        Totals
            One entry per group; 0 for a group without rounds.
        """

        def group_sums(values: Array) -> Array:
            # Without rounds, bincount returns integers even with weights.
            sums = np.bincount(group, weights=values, minlength=num_groups)
            return sums.astype(np.float64, copy=False)

        largest = np.zeros(num_groups)
        np.maximum.at(largest, group, self.max_abs_diff)
        return Totals(
            num_nonfinite=group_sums(self.num_nonfinite).astype(np.int64),
            abs_diff=group_sums(self.abs_diff),
            diff=group_sums(self.diff),
            max_abs_diff=largest,
            k3=group_sums(self.k3),
        )


def measure(batch: Batch, *, out: Array | None = None) -> Totals:
    """Add up each round's tokens.

    Parameters
    ----------
    batch : Batch
    out : ndarray of float32, shape (num_tokens,), optional
        Filled with the diff of every generated token, in the same pass.

    Returns
    -------
    Totals
    """
    engine = _engine(batch)
    scores = batch.old_log_probs, batch.rollout_log_probs
    return Totals(**engine.totals(batch.rounds, *scores, out))


def diffs(batch: Batch) -> Array:
    """Return the diff of every generated token, in order, in float32 nats."""
    out = np.empty(batch.num_tokens, dtype=np.float32)
    scores = batch.old_log_probs, batch.rollout_log_probs
    _engine(batch).diffs(batch.rounds, *scores, out)
    return out


def pack_tokens(batch: Batch, values: Tensor) -> Array:
    """Return the values of the generated tokens, in order, concatenated."""
    tokens: Array = _engine(batch).pack_tokens(batch.rounds, values)
    return tokens


def _engine(batch: Batch) -> ModuleType:
    return sums_cpu if batch.response_mask.device.type == "cpu" else sums_cuda
