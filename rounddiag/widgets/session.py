"""What is looked at in a batch, and the numbers that it comes to."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import round_frame
from rounddiag.core.pairs import paired
from rounddiag.errors import FrameError
from rounddiag.widgets.shown import Shown, shown
from rounddiag.widgets.state import Cells, Place, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag.batch import Batch


class Session:
    """A batch and a state that fits it.

    Parameters
    ----------
    batch : Batch
    state : mapping
        As `State.as_dict`, or a part of it.

    Raises
    ------
    BatchError, FrameError
        If the state has what the batch does not have.
    """

    def __init__(self, batch: Batch, state: Mapping[str, Any]) -> None:
        self.original = batch
        self._known: dict[tuple[object, ...], Shown] = {}
        self.state = self._checked(State.of(state))
        if "current" not in state:
            self.state = self.state.changed({"current": self._worst_place()})

    @property
    def batch(self) -> Batch:
        """The batch, its two log-probs those of the pair that is looked at."""
        return paired(self.original, self.state.a, self.state.b)

    def change(self, changes: Mapping[str, Any]) -> None:
        """Replace entries of the state; where one is wrong nothing changes."""
        self.state = self._checked(self.state.changed(changes))

    def forget(self) -> None:
        """Free all frames; they are worked out again when they are asked for."""
        self._known.clear()

    @property
    def shown(self) -> Shown:
        """What the filter keeps."""
        return self._shown(self.state)

    @property
    def everything(self) -> Shown:
        """All of the batch, whatever the filter."""
        return self._shown(State(a=self.state.a, b=self.state.b))

    @property
    def cells(self) -> Cells:
        """The selected cells; without any, that of the current token."""
        place = self.state.current
        alone = Cells(samples=(place.sample,), rounds=(place.round, place.round))
        return self.state.cells or alone

    def selected(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a frame whose sample and round are selected."""
        is_in = frame["sample"].isin(self.cells.samples)
        return frame[is_in & frame["round"].between(*self.cells.rounds)]

    def worst_of(self, cells: Cells) -> Place:
        """Return the token with the largest |diff| in some cells."""
        tokens = self.shown.tokens
        is_in = tokens["sample"].isin(cells.samples)
        inside = tokens[is_in & tokens["round"].between(*cells.rounds)]
        size = inside["diff"].abs().replace(np.inf, np.nan)
        if not size.notna().any():
            return Place(sample=cells.samples[0], round=cells.rounds[0])
        row = inside.iloc[int(np.nanargmax(size))]
        return Place(**{key: int(row[key]) for key in ("sample", "round", "token")})

    def _shown(self, state: State) -> Shown:
        """Work it out once for each filter and pair, and keep two of them."""
        key = (state.filter, state.a, state.b, state.by)
        if key not in self._known:
            last = list(self._known.items())[-1:]
            batch = paired(self.original, state.a, state.b)
            self._known = {**dict(last), key: shown(batch, state)}
        return self._known[key]

    def _worst_place(self) -> Place:
        cells = self.everything.worst["rounds"]
        if cells.empty:
            return Place()
        sample, index = (int(cells[key].iloc[0]) for key in ("sample", "round"))
        return self.worst_of(Cells(samples=(sample,), rounds=(index, index)))

    @cached_property
    def _num_tokens(self) -> pd.Series[int]:
        """How many tokens each sample and round has."""
        frame = round_frame(self.original)
        counts: pd.Series[int] = frame.set_index(["sample", "round"])["num_tokens"]
        return counts

    def _checked(self, state: State) -> State:
        """Raise for what the batch does not have."""
        for score in (state.a, state.b):
            self.original.log_probs(score)
        place, counts = state.current, self._num_tokens
        key = (place.sample, place.round)
        is_there = key in counts.index and 0 <= place.token < counts[key]
        if not is_there and place != Place():
            raise FrameError.build(
                key="current",
                expected="a sample, a round and a token that the batch has",
                found=f"sample {place.sample}, round {place.round},"
                f" token {place.token}",
                advice="`rounddiag.round_frame(batch)` has samples, rounds and counts.",
            )
        return state
