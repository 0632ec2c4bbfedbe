"""What a state leaves of a batch: the numbers that the figures and lists are of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import round_frame, sample_frame, token_frame
from rounddiag.core.open_columns import open_names
from rounddiag.stats import cell_frame
from rounddiag.widgets.filtering import kept_tokens
from rounddiag.widgets.worst import worst_of

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.widgets.state import State

_FACTS = ("sample_id", "group_id", "reward")


@dataclass(frozen=True)
class Shown:
    """What a filter keeps of a batch.

    Attributes
    ----------
    batch : Batch
        For the pair of scores that is looked at.
    tokens : DataFrame
        The token frame of what is kept.
    is_all : bool
        Whether that is everything.
    """

    batch: Batch
    tokens: pd.DataFrame
    is_all: bool

    @property
    def data(self) -> Batch | pd.DataFrame:
        """What figures of tokens are drawn of."""
        return self.batch if self.is_all else self.tokens

    @property
    def samples(self) -> Batch:
        """The samples that have kept tokens, with all of their tokens."""
        if self.is_all:
            return self.batch
        return self.batch[self.tokens["sample"].unique()]

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """The round frame of what is kept, with what is known of the samples."""
        if self.is_all:
            return round_frame(self.batch)
        found = cell_frame(self.tokens)
        samples = sample_frame(self.batch)
        facts = samples[["sample", *(name for name in _FACTS if name in samples)]]
        return found.merge(facts, on="sample", how="left")

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The same with all numbers of a cell, of everything too."""
        return cell_frame(self.batch) if self.is_all else self.rounds

    @cached_property
    def worst(self) -> dict[str, pd.DataFrame]:
        """The worst tokens, rounds and samples."""
        return worst_of(self.batch, self.tokens)

    def beyond(self, threshold: float) -> dict[str, Any]:
        """Count the tokens and samples with a |diff| beyond so many nats."""
        diff, sample = self.tokens["diff"].to_numpy(), self.tokens["sample"].to_numpy()
        is_beyond = np.abs(diff) > threshold
        return {
            "num_tokens": len(diff),
            "num_samples": len(np.unique(sample)),
            "num_nonfinite": int((~np.isfinite(diff)).sum()),
            "num_tokens_beyond": int(is_beyond.sum()),
            "num_samples_beyond": len(np.unique(sample[is_beyond])),
        }


def nothing(batch: Batch) -> Shown:
    """Return what a filter that does not fit keeps of a batch."""
    return Shown(batch, token_frame(batch[:0], ["prob_diff"]), is_all=False)


def shown(batch: Batch, state: State) -> Shown:
    """Apply the filter of a state to a batch of its pair of scores."""
    if state.filter.is_empty:
        return Shown(batch, token_frame(batch), is_all=True)
    more = [state.by] if state.by in open_names(batch) else []
    kept = kept_tokens(batch, state.filter, columns=("prob_diff", *more))
    if state.by is not None and state.by not in kept:
        column = sample_frame(batch)[["sample", state.by]]
        kept = kept.merge(column, on="sample", how="left")
    return Shown(batch, kept, is_all=False)
