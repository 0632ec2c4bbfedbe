"""The frames of one batch or two, for what a state keeps of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from rounddiag.core.pairs import paired
from rounddiag.errors import FrameError
from rounddiag.schema import ROUNDS
from rounddiag.widgets.compared import Compared
from rounddiag.widgets.shown import Shown, nothing, shown
from rounddiag.widgets.state import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch
    from rounddiag.widgets.comparison import Comparison
    from rounddiag.widgets.state import State

# Of each batch: all of it, what is kept of all rounds, and of some.
_MOST_KEPT = 3


class Frames:
    """Frames that are worked out once for each filter and pair of scores.

    Parameters
    ----------
    batches : sequence of Batch
    comparison : Comparison, optional
        Of two batches.
    """

    def __init__(self, batches: Sequence[Batch], comparison: Comparison | None) -> None:
        self._batches = batches
        self._comparison = comparison
        self._shown: dict[tuple[object, ...], Shown] = {}
        self._num_tokens: dict[int, pd.Series[int]] = {}

    def forget(self) -> None:
        """Free all frames; they are worked out again when they are asked for."""
        self._shown.clear()

    def shown(self, state: State) -> Shown:
        """Return what the filter keeps of the batch looked at."""
        key = (state.filter, state.a, state.b, state.by, state.batch)
        found = self._shown.pop(key, None) or shown(self._paired(state), state)
        self._shown[key] = found  # the one used last is thrown away last
        if len(self._shown) > _MOST_KEPT * len(self._batches):
            del self._shown[next(iter(self._shown))]
        return found

    def compared(self, state: State) -> Compared | None:
        """Return what the filter keeps of two batches."""
        if self._comparison is None:
            return None
        own, other = self.shown(state), self._other_side(self._comparison, state)
        sides = (other, own) if state.batch else (own, other)
        return Compared(self._comparison, sides, state.batch)

    def worst(self, state: State) -> dict[str, pd.DataFrame]:
        """Return the worst that is kept; of a difference, what differs most."""
        both = self.compared(state) if state.heatmap == "difference" else None
        return self.shown(state).worst if both is None else both.worst

    def num_tokens(self, batch: int) -> pd.Series[int]:
        """Return how many tokens each sample and round of a batch has."""
        if batch not in self._num_tokens:
            rounds = self._batches[batch].rounds
            keys = [getattr(rounds, key).cpu().numpy() for key in ROUNDS.keys]
            index = pd.MultiIndex.from_arrays(keys, names=ROUNDS.keys)
            counts = rounds.num_tokens.cpu().numpy()
            self._num_tokens[batch] = pd.Series(counts, index)
        return self._num_tokens[batch]

    def check_place(self, place: Place, batch: int) -> None:
        """Raise for a token that a batch does not have, unless it is the very first."""
        counts, key = self.num_tokens(batch), (place.sample, place.round)
        is_there = key in counts.index and 0 <= place.token < counts[key]
        if not is_there and place != Place():
            raise FrameError.build(
                key="current",
                expected="a sample, a round and a token that the batch has",
                found=f"sample {place.sample}, round {place.round},"
                f" token {place.token}",
                advice="`rounddiag.round_frame(batch)` has samples, rounds and counts.",
            )

    def _other_side(self, comparison: Comparison, state: State) -> Shown:
        """Return what the filter keeps of the batch that is not looked at."""
        keep = comparison.filter_of(state, missing=-1)
        there = replace(state, batch=1 - state.batch, filter=keep)
        try:
            return self.shown(there)
        except FrameError:  # it has no such sample, group or role: it fits the other
            return nothing(self._paired(there))

    def _paired(self, state: State) -> Batch:
        return paired(self._batches[state.batch], state.a, state.b)
