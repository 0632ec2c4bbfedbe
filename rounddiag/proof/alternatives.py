"""What a model would have written at each place of a round: its likeliest tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.proof.asked_round import AskedRound
from rounddiag.proof.engines.engine import Readout, TopTokens
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.trajectory import Request, Samples
from rounddiag.schema import ALTERNATIVES, DIVERGENCES, TableSchema
from rounddiag.text import pieces

LISTED = 10  # tokens of a place


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundReading:
    """The likeliest tokens of a round, as the model reads it under a hypothesis.

    Attributes
    ----------
    hypothesis: Its name; empty for the model as it is.
    tokens: The tokens of the round that have a context.
    top: One row for each.
    requests: The passes; their readouts, where the engine gives logits.
    """

    hypothesis: str
    tokens: Array
    top: TopTokens
    requests: Sequence[Request]
    readouts: Sequence[Readout]


def as_frame(
    table: TableSchema, values: Mapping[str, Any] | pd.DataFrame
) -> pd.DataFrame:
    """Return a frame with the columns of a table, in its order and dtypes."""
    dtypes = {column.name: column.dtype for column in table.columns}
    if not len(values):
        return pd.DataFrame({name: [] for name in dtypes}).astype(dtypes)
    return pd.DataFrame({name: values[name] for name in dtypes}).astype(dtypes)


def read_round(
    engine: Any,  # noqa: ANN401 one that gives logits, or a server
    asked: AskedRound,
    samples: Samples,
    hypothesis: Hypothesis | None = None,
) -> RoundReading:
    """Read a round as the model is, or under a hypothesis."""
    requests = asked.requests(hypothesis, samples)
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
    asked: AskedRound, reading: RoundReading, chosen: set[int], tokenizer: object
) -> pd.DataFrame:
    """Return a row for each likely token, and for a sampled one that is not."""
    top, own_ids = reading.top, asked.token_ids.numpy()[reading.tokens]
    known = top.ids >= 0
    is_own = top.ids == own_ids[:, None]
    place, column = np.nonzero(known & np.isin(reading.tokens, [*chosen])[:, None])
    others = np.flatnonzero(~is_own.any(1) & np.isin(reading.tokens, [*chosen]))
    at = np.r_[place, others]
    ids = np.r_[top.ids[place, column], own_ids[others]]
    rows = {
        "token": reading.tokens[at],
        "rank": np.r_[column + 1, top.ranks[others]],
        "token_id": ids,
        "log_prob": np.r_[top.log_probs[place, column], top.own[others]],
        "is_sampled": np.r_[is_own[place, column], np.ones(len(others), dtype=bool)],
    }
    texts = pieces(ids, tokenizer, starts=range(len(ids)))
    frame = as_frame(
        ALTERNATIVES,
        {
            **rows,
            "sample": asked.sample,
            "round": asked.round,
            "text": texts,
            "hypothesis": reading.hypothesis,
        },
    )
    return frame.sort_values(["token", "log_prob"], ascending=[True, False])


def divergence_frame(
    asked: AskedRound, sampling: RoundReading, training: RoundReading
) -> pd.DataFrame | None:
    """Return KL(sampling || training) of each token; None where it is not known."""
    if len(sampling.readouts) != 1 or len(training.readouts) != 1:
        return None
    if not np.array_equal(sampling.tokens, training.tokens):
        return None
    return as_frame(
        DIVERGENCES,
        {
            "sample": asked.sample,
            "round": asked.round,
            "token": sampling.tokens,
            "kl": sampling.readouts[0].divergence(training.readouts[0]),
        },
    )
