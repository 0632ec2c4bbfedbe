"""What is looked at in a batch, and the numbers that it comes to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.core import round_frame, sample_frame, token_frame
from rounddiag.core.columns import extra_column_names
from rounddiag.core.scores import select_scores
from rounddiag.errors import FrameError
from rounddiag.schema import ROUNDS
from rounddiag.stats import cell_frame
from rounddiag.widgets.filters import kept_tokens
from rounddiag.widgets.pair import Compared, Comparison
from rounddiag.widgets.requests import options_of, worst_of
from rounddiag.widgets.state import Cells, Filter, Place, State, box_of, check_fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag.batch import Batch


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
    more = [state.by] if state.by in extra_column_names(batch) else []
    kept = kept_tokens(batch, state.filter, columns=("prob_diff", *more))
    if state.by is not None and state.by not in kept:
        column = sample_frame(batch)[["sample", state.by]]
        kept = kept.merge(column, on="sample", how="left")
    return Shown(batch, kept, is_all=False)


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
        return select_scores(self._batches[state.batch], state.a, state.b)


class Session:
    """A batch, or two that are compared, and a state that fits.

    Parameters
    ----------
    batches : mapping of str to Batch
        One or two, by their names.
    state : mapping
        As `State.as_dict`, or a part of it.

    Attributes
    ----------
    batches : tuple of Batch
    comparison : Comparison, optional
        Of two batches.
    options : list of dict
        What can be chosen in each batch.

    Raises
    ------
    BatchError, FrameError
        If the state has what the batch does not have.
    """

    def __init__(self, batches: Mapping[str, Batch], state: Mapping[str, Any]) -> None:
        self.batches = tuple(batches.values())
        self.comparison = Comparison(batches) if len(batches) > 1 else None
        self._frames = Frames(self.batches, self.comparison)
        options = [options_of(batch) for batch in self.batches]
        both = self.comparison
        self.options = options if both is None else both.options(options)
        first = self.comparison.first_state if self.comparison else {}
        self.state = self._checked(State.of({**first, **state}))
        if "current" not in state:
            self.state = replace(self.state, current=self._worst_place())

    @property
    def original(self) -> Batch:
        """The batch that is looked at, with all its scores."""
        return self.batches[self.state.batch]

    @property
    def batch(self) -> Batch:
        """The batch, its two log-probs those of the pair that is looked at."""
        return select_scores(self.original, self.state.a, self.state.b)

    def change(self, changes: Mapping[str, Any]) -> None:
        """Replace entries of the state; where one is wrong nothing changes.

        In another batch the same samples are looked at, as far as it has them.
        """
        batch = changes.get("batch", self.state.batch)
        if self.comparison is None or batch == self.state.batch:
            self.state = self._checked(self.state.changed(changes))
        else:
            self._move(self.comparison, changes)

    def forget(self) -> None:
        """Free all frames; they are worked out again when they are asked for."""
        self._frames.forget()

    @property
    def shown(self) -> Shown:
        """What the filter keeps."""
        return self._frames.shown(self.state)

    @property
    def of_all_rounds(self) -> tuple[Shown, Compared | None]:
        """What the filter keeps, its rounds aside; and that of two batches."""
        keep = replace(self.state.filter, rounds=None)
        state = replace(self.state, filter=keep)
        return self._frames.shown(state), self._frames.compared(state)

    @property
    def everything(self) -> Shown:
        """All of the batch, whatever the filter."""
        return self._frames.shown(_of_all(self.state))

    @property
    def compared(self) -> Compared | None:
        """What the filter keeps of two batches."""
        return self._frames.compared(self.state)

    @property
    def worst(self) -> dict[str, pd.DataFrame]:
        """The worst of what the filter keeps; of a difference, what differs most."""
        return self._frames.worst(self.state)

    @property
    def cells(self) -> Cells:
        """The selected cells; without any, that of the current token."""
        place = self.state.current
        alone = Cells(samples=(place.sample,), rounds=(place.round, place.round))
        return self.state.cells or alone

    def selected(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a frame whose sample and round are selected."""
        return _inside(frame, self.cells)

    def worst_of(self, cells: Cells) -> Place:
        """Return the token with the largest |diff| in some cells.

        Where no token is it is the one that is looked at.
        """
        return _worst_in(self.shown.tokens, cells) or self.state.current

    def _move(self, comparison: Comparison, changes: Mapping[str, Any]) -> None:
        """Look at the other batch, where nothing else is said at the same token.

        A filter that does not fit it, by a group that it does not have, is taken off.
        """
        before = self.state
        moved = {"current": Place(), **comparison.moved(before), **changes}
        try:
            self.state = self._checked(before.changed(moved))
        except FrameError:
            if "filter" in changes:
                raise
            self.state = self._checked(before.changed({**moved, "filter": Filter()}))
        if "current" not in changes:
            sample = comparison.partners[before.batch].get(before.current.sample)
            place = self._nearest(sample, before.current)
            self.state = replace(self.state, current=place)

    def _nearest(self, sample: int | None, place: Place) -> Place:
        """Return a token of a sample that stands where another one does."""
        counts = self._frames.num_tokens(self.state.batch)
        rounds = [r for r in range(place.round + 1) if (sample, r) in counts.index]
        if sample is None or not rounds:
            return self._worst_place()
        last = int(counts[sample, rounds[-1]]) - 1
        token = min(place.token, last)
        return Place(sample=sample, round=rounds[-1], token=token)

    def _worst_place(self) -> Place:
        """Return the worst token of the worst round that is kept, or else of all."""
        for state in (self.state, _of_all(self.state)):
            shown = self._frames.shown(state)
            for worst in (self._frames.worst(state), shown.worst):
                cell = box_of(worst["rounds"].head(1))
                if cell is not None:
                    return _worst_in(shown.tokens, cell) or Place()
        return Place()

    def _checked(self, state: State) -> State:
        """Raise for what the batch, or one of two, does not have."""
        for batch in self.batches:
            for score in (state.a, state.b):
                batch.log_probs(score)
        at = min(state.batch, len(self.batches) - 1)
        check_fit(state, self.options[at], self.batches[at].num_samples)
        self._frames.check_place(state.current, at)
        self._frames.shown(state)  # raises where the filter does not fit
        return state


def _inside(frame: pd.DataFrame, cells: Cells) -> pd.DataFrame:
    """Return the rows of a frame whose sample and round are in some cells."""
    is_in = frame["sample"].isin(cells.samples)
    return frame[is_in & frame["round"].between(*cells.rounds)]


def _worst_in(tokens: pd.DataFrame, cells: Cells) -> Place | None:
    """Return the token with the largest |diff| in some cells; None where none is."""
    inside = _inside(tokens, cells)
    if inside.empty:
        return None
    size = inside["diff"].abs().replace(np.inf, np.nan)
    row = inside.iloc[int(np.nanargmax(size)) if size.notna().any() else 0]
    return Place(**{key: int(row[key]) for key in ("sample", "round", "token")})


def _of_all(state: State) -> State:
    return replace(state, filter=Filter(), by=None)
