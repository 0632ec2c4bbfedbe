"""The generated tokens of a batch as numpy arrays, for contracts that read all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.checks.contracts import Fault, UntestableError, require_tokens
from rounddiag.checks.grammar import find_forced, recorded_grammar
from rounddiag.core.columns import to_numpy, token_numbers

_written: WeakKeyDictionary[Batch, Written] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False, kw_only=True)
class Written:
    """One entry per generated token with finite log-probs of both engines.

    Numbers of a token are int32, to take half the memory; `flat` is int64.

    Attributes
    ----------
    ids: Of all positions of the responses; None if they were left out.
    segment: Index of the token's round in `batch.rounds`.
    flat: Index in the batch's flat per-token tensors.
    has_grammar: Whether the batch records structured output.
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
    has_grammar: bool

    @classmethod
    def from_batch(cls, batch: Batch) -> Written:
        """Read the generated tokens; a MissingError without both engines.

        They are kept until `forget`, so that the contracts of one check share them.
        """
        if batch not in _written:
            _written[batch] = cls._read(batch)
        return _written[batch]

    @staticmethod
    def forget(batch: Batch) -> None:
        """Free the tokens of a batch."""
        _written.pop(batch, None)

    @classmethod
    def _read(cls, batch: Batch) -> Written:
        scores = [to_numpy(score) for score in batch.both_log_probs()]
        require_tokens(batch)
        rounds = batch.rounds
        number = np.arange(len(rounds), dtype=np.int32)
        segment = np.repeat(number, to_numpy(rounds.num_tokens))
        token = token_numbers(batch)
        flat = to_numpy(rounds.start)[segment] + token
        old, rollout = (
            score[flat].astype(np.promote_types(score.dtype, np.float32), copy=False)
            for score in scores
        )
        finite = np.isfinite(old) & np.isfinite(rollout)
        if not finite.all():
            old, rollout, segment, token, flat = (
                values[finite] for values in (old, rollout, segment, token, flat)
            )
        of_rounds, offsets = to_numpy(rounds.sample), to_numpy(batch.offsets)
        begin = to_numpy(rounds.start) - offsets[of_rounds]
        return cls(
            old=old,
            rollout=rollout,
            ids=None if batch.response_ids is None else to_numpy(batch.response_ids),
            sample=of_rounds.astype(np.int32)[segment],
            round=to_numpy(rounds.round).astype(np.int32)[segment],
            token=token,
            position=begin.astype(np.int32)[segment] + token,
            segment=segment,
            flat=flat,
            has_grammar=bool(recorded_grammar(batch)),
        )

    def __len__(self) -> int:
        return len(self.flat)

    @cached_property
    def token_id(self) -> Array:
        """The id of each token; 0 at all of them if ids were left out."""
        return np.zeros_like(self.flat) if self.ids is None else self.ids[self.flat]

    @cached_property
    def follows(self) -> Array:
        """Whether the entry before is the token before, of the same round."""
        flags = np.zeros(len(self), dtype=bool)
        flags[1:] = (np.diff(self.flat) == 1) & (np.diff(self.segment) == 0)
        return flags

    @cached_property
    def ends_round(self) -> Array:
        """Whether a token is the last of its round."""
        return np.r_[self.segment[1:] != self.segment[:-1], True][: len(self)]

    @cached_property
    def ends_sample(self) -> Array:
        """Whether a token is the last of its sample."""
        return np.r_[self.sample[1:] != self.sample[:-1], True][: len(self)]

    @cached_property
    def may_be_forced(self) -> bool:
        """Whether zeros of the sampler may be tokens that a grammar forces."""
        return self.has_grammar or bool(find_forced(self.rollout, self.old).any())

    def unless_forced(self, fault: Fault | None) -> Fault | None:
        """Return a fault; none is found where a grammar may have forced zeros."""
        if fault is None and self.may_be_forced:
            why = "a grammar may force the tokens that are exactly 0"
            raise UntestableError(field="rollout_log_probs", why=why)
        return fault

    def in_samples_with(self, tokens: Array) -> Array:
        """Return the tokens of the samples that have some of these."""
        inside = np.zeros(int(self.sample.max(initial=0)) + 1, dtype=bool)
        inside[self.sample[tokens]] = True
        return inside[self.sample]

    def size_of_end(self, flags: Array) -> Array:
        """Return how many last tokens of the sample all have a flag; else 0.

        It is given at these tokens, and 0 at all others.
        """
        ends = np.flatnonzero(self.ends_sample)
        if not flags[ends].any():
            return np.zeros(len(self), dtype=np.int64)
        index, begins = np.arange(len(self)), np.r_[0, ends[:-1] + 1][: len(ends)]
        last_other = np.maximum.reduceat(np.where(flags, -1, index), begins)
        size = ends - np.maximum(last_other, begins - 1)
        sizes, left = (np.repeat(values, ends - begins + 1) for values in (size, ends))
        return np.where(left - index < sizes, sizes, 0)
