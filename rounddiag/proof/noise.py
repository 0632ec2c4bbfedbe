"""How far two sound engines may differ at some tokens, and what says so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rounddiag._typing import Array
from rounddiag.findings.reference import REFERENCE
from rounddiag.proof.gate import MOST_OF_USUAL
from rounddiag.proof.scores import ScoreTable


@dataclass(frozen=True)
class Limit:
    """The largest mean |diff| of a sound pair at some tokens, in nats; its ground."""

    value: float
    ground: str


@dataclass(frozen=True)
class RoundingNoise:
    """What rounding does to the log-probs of a model, measured on its own tokens.

    Attributes
    ----------
    per_spread: Mean |bfloat16 - float32| over the mean of 1 - p, in nats of logits.
    """

    per_spread: float

    @classmethod
    def of_table(cls, table: ScoreTable) -> RoundingNoise:
        """Measure it on the tokens of a table."""
        total = float(_spread(table.base).sum())
        return cls(float(np.nansum(np.abs(table.rounding))) / max(total, 1e-12))

    def limit(self, log_probs: Array, kind: str) -> Limit:
        """Return the limit of mean |diff| at tokens that are this likely.

        The larger of two nulls: twice what rounding to bfloat16 moves the model's own
        log-probs, as at the gate of a proof, and the published level of a kind of
        sound pairs for tokens as likely as these.
        """
        own = MOST_OF_USUAL * self.per_spread * float(_spread(log_probs).mean())
        published = REFERENCE[kind]
        usual = float(published.of_tokens(log_probs).mean())
        if own >= usual:
            return Limit(own, "twice what rounding to bfloat16 moves the model itself")
        return Limit(usual, f"usual of {published.meaning}, for tokens as likely")


def _spread(log_probs: Array) -> Array:
    """Return 1 - p: how much noise of a logit moves its log-prob."""
    return -np.expm1(np.minimum(log_probs, 0.0))
