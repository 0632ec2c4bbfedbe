"""What is looked at in a batch, and the numbers that it comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core.pairs import paired
from rounddiag.errors import FrameError
from rounddiag.widgets.comparison import Comparison
from rounddiag.widgets.fitting import check_fit
from rounddiag.widgets.frames import Frames
from rounddiag.widgets.head import options_of
from rounddiag.widgets.state import Cells, Filter, Place, State, box_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.widgets.compared import Compared
    from rounddiag.widgets.shown import Shown


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
        return paired(self.original, self.state.a, self.state.b)

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
