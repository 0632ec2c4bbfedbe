"""What a model would have written at each place of a round: its likeliest tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.proof.engines.engine import Readout, TopTokens
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.sight import AskedRound
from rounddiag.proof.trajectory import Request, Samples
from rounddiag.schema import ALTERNATIVES, LISTED, TableSchema
from rounddiag.text import pieces


def as_frame(
    table: TableSchema, values: Mapping[str, Any] | pd.DataFrame
) -> pd.DataFrame:
    """Return a frame with the columns of a table, in its order and dtypes."""
    is_empty = not len(values)
    known: dict[str, Any] = {n: [] if is_empty else values[n] for n in table.dtypes}
    return pd.DataFrame(known).astype(table.dtypes)


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundReading:
    """The likeliest tokens of a round, as the model reads it under a hypothesis.

    `tokens` are those of the round that have a context; `readouts` those of the passes,
    where the engine gives logits.
    """

    hypothesis: str
    tokens: Array
    top: TopTokens
    requests: Sequence[Request]
    readouts: Sequence[Readout]

    def divergence(self, other: RoundReading) -> Array:
        """Return KL(self || other) at each token; NaN where it is not known."""
        if not (len(self.readouts) == len(other.readouts) == 1):
            return np.full(len(self.tokens), np.nan)
        return self.readouts[0].divergence(other.readouts[0])


def read_round(
    engine: Any,  # noqa: ANN401 one that gives logits, or a server
    asked: AskedRound,
    samples: Samples,
    hypothesis: Hypothesis | None = None,
) -> RoundReading:
    """Read a round as the model is, or under a hypothesis."""
    requests = asked.requests(samples, hypothesis)
    readouts: list[Readout] = []
    if "logits" in engine.abilities:
        readouts = [engine.read(request, samples) for request in requests]
        tops = [readout.top_tokens(LISTED) for readout in readouts]
    else:
        tops = [engine.top_tokens(request, samples, LISTED) for request in requests]
    source = [request.source[request.wanted].numpy() for request in requests]
    tokens = np.concatenate(source) - asked.begin
    order = np.argsort(tokens, kind="stable")
    names = ("ids", "log_probs", "own", "ranks")
    joined = [np.concatenate([getattr(top, name) for top in tops]) for name in names]
    return RoundReading(
        hypothesis="" if hypothesis is None else hypothesis.name,
        tokens=tokens[order],
        top=TopTokens(*(values[order] for values in joined)),
        requests=requests,
        readouts=readouts,
    )


def alternatives_frame(
    asked: AskedRound,
    reading: RoundReading,
    chosen: Array,
    kl: Array,
    tokenizer: object,
) -> pd.DataFrame:
    """Return a row for each likely token, and for a sampled one that is not."""
    top = reading.top
    own = asked.trajectory.ids.numpy()[asked.begin + reading.tokens]
    is_own, is_chosen = top.ids == own[:, None], np.isin(reading.tokens, chosen)
    row, column = np.nonzero((top.ids >= 0) & is_chosen[:, None])
    others = np.flatnonzero(is_chosen & ~is_own.any(1))
    at, ids = np.r_[row, others], np.r_[top.ids[row, column], own[others]]
    rows = {
        "sample": asked.sample,
        "round": asked.round,
        "token": reading.tokens[at],
        "rank": np.r_[column + 1, top.ranks[others]],
        "token_id": ids,
        "text": pieces(ids, tokenizer, starts=range(len(ids))),
        "log_prob": np.r_[top.log_probs[row, column], top.own[others]],
        "hypothesis": reading.hypothesis,
        "is_sampled": np.r_[is_own[row, column], np.ones(len(others), dtype=bool)],
        "kl": kl[at],
    }
    frame = as_frame(ALTERNATIVES, rows)
    return frame.sort_values(["token", "log_prob"], ascending=[True, False])
