"""The generated tokens of a batch as numpy arrays, for contracts that read all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.checks.contracts import require_tokens
from rounddiag.core.columns import to_numpy, token_numbers


@dataclass(frozen=True, eq=False, kw_only=True)
class Written:
    """One entry per generated token with finite log-probs of both engines.

    Attributes
    ----------
    ids: Of all positions of the responses; None if they were left out.
    segment: Index of the token's round in `batch.rounds`.
    flat: Index in the batch's flat per-token tensors.
    """

    old: Array
    rollout: Array
    ids: Array | None
    sample: Array
    round: Array
    token: Array
    position: Array
    segment: Array
    flat: Array

    @classmethod
    def from_batch(cls, batch: Batch) -> Written:
        """Read the generated tokens; a MissingError without both engines."""
        scores = [to_numpy(score) for score in batch.both_log_probs()]
        require_tokens(batch)
        rounds = batch.rounds
        segment = np.repeat(np.arange(len(rounds)), to_numpy(rounds.num_tokens))
        token = token_numbers(batch)
        flat = to_numpy(rounds.start)[segment] + token
        old, rollout = (score[flat].astype(np.float64) for score in scores)
        finite = np.isfinite(old) & np.isfinite(rollout)
        segment, token, flat = segment[finite], token[finite], flat[finite]
        sample = to_numpy(rounds.sample)[segment]
        return cls(
            old=old[finite],
            rollout=rollout[finite],
            ids=None if batch.response_ids is None else to_numpy(batch.response_ids),
            sample=sample,
            round=to_numpy(rounds.round)[segment],
            token=token,
            position=flat - to_numpy(batch.offsets)[sample],
            segment=segment,
            flat=flat,
        )

    def __len__(self) -> int:
        return len(self.flat)

    @cached_property
    def token_id(self) -> Array:
        """The id of each token; 0 at all of them if ids were left out."""
        ids: Array = (
            np.zeros_like(self.flat) if self.ids is None else self.ids[self.flat]
        )
        return ids

    @cached_property
    def follows(self) -> Array:
        """Whether the entry before is the token before, of the same round."""
        flags = np.zeros(len(self), dtype=bool)
        flags[1:] = (np.diff(self.flat) == 1) & (np.diff(self.segment) == 0)
        return flags

    @cached_property
    def ends_round(self) -> Array:
        """Whether a token is the last of its round."""
        ends: Array = np.r_[self.segment[1:] != self.segment[:-1], True][: len(self)]
        return ends

    @cached_property
    def ends_sample(self) -> Array:
        """Whether a token is the last of its sample."""
        ends: Array = np.r_[self.sample[1:] != self.sample[:-1], True][: len(self)]
        return ends

    def size_of_end(self, flags: Array) -> Array:
        """Return how many last tokens of the sample all have a flag; else 0.

        It is given at these tokens, and 0 at all others.
        """
        index, ends = np.arange(len(self)), np.flatnonzero(self.ends_sample)
        begins = np.r_[0, ends[:-1] + 1][: len(ends)]
        last_other = np.maximum.reduceat(np.where(flags, -1, index), begins)
        size = ends - np.maximum(last_other, begins - 1)
        sizes, left = (np.repeat(values, ends - begins + 1) for values in (size, ends))
        result: Array = np.where(left - index < sizes, sizes, 0)
        return result
