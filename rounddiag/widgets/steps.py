"""The steps of a run above an explorer: their line, and what a change of step keeps.

A file of a step that appears while the explorer is shown appears in the line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from rounddiag.batch import Batch
from rounddiag.errors import RounddiagError
from rounddiag.runs import Run
from rounddiag.runs.change_points import Break
from rounddiag.runs.diagnosis import Event
from rounddiag.stats.comparison import index_by_id
from rounddiag.widgets.session import Session
from rounddiag.widgets.state import CellBox, Cursor, State

# Seconds between two looks for new steps.
EVERY = 5.0
# What may hold for one step and not for another, in the order in which it is given up.
_OPTIONAL = ("filter", "by", "order", "a", "b")


class StepLine:
    """The steps of a run, of which one is open.

    Parameters
    ----------
    run : Run
    step : int, optional
        The step to open: when left out, the first one after a change of several rounds,
        or else the last one.
    """

    def __init__(self, run: Run, step: int | None = None) -> None:
        # A look of its own at the folder: what is new here stays new for `run.watch()`.
        self.run = run = copy(run)
        self._breaks = run.breaks()
        self._means = run.step_summary()
        # The last file may be one that cannot be read.
        last = int(self._means["step"].iloc[-1])
        first = next((change.step for change in self._breaks), last)
        self.step = first if step is None else step
        self._stop: threading.Event | None = None

    def payload(self) -> dict[str, Any]:
        """Return what the page draws of steps, means and changes, and which is open."""
        marks: list[Break | Event] = [*self._breaks, *self.run.events()]
        steps = self._means["step"].to_list()
        verdicts = self.run.verdicts()
        return {
            "steps": steps,
            "verdicts": [verdicts.get(step) for step in steps],
            "means": self._means["mean_abs_diff"].to_list(),
            "raised": self._raised(),
            "marks": [
                {"at": (change.previous + change.step) / 2, "text": str(change)}
                for change in marks
            ],
            "now": self.step,
        }

    def _raised(self) -> list[bool]:
        """Mark the steps whose level a change has raised, and none has lowered yet."""
        levels = sorted(
            (change.step, change.after > change.before) for change in self._breaks
        )
        marked = []
        for step in self._means["step"].to_list():
            before = [is_raised for first, is_raised in levels if first <= step]
            marked.append(bool(before and before[-1]))
        return marked

    def follow(self, notify: Callable[..., object], every: float = EVERY) -> None:
        """Look for new steps in a thread, and send the line again when there are."""
        if self._stop is None:
            self._stop = threading.Event()
            work = partial(self._watch, self._stop, notify, every)
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        """Stop looking."""
        if self._stop is not None:
            self._stop.set()
        self._stop = None

    def _watch(
        self, stop: threading.Event, notify: Callable[..., object], every: float
    ) -> None:
        while not stop.wait(every):
            # A folder that is gone may come back.
            with suppress(OSError, RounddiagError):
                if self.run.refresh():
                    self._means, self._breaks = (
                        self.run.step_summary(),
                        self.run.breaks(),
                    )
                    notify("steps", steps=self.payload())


def session_at(before: Session, batch: Batch) -> Session:
    """Return a session of another step's batch, at the same sample and round if any.

    The sample is the one with the same id, else one of the same group; the round is the
    same, or the last one that the sample has before it. Selected cells and the finding
    are of the step, and are dropped; so is a choice that the batch does not offer.
    """
    state = before.state
    choices = replace(state, current=Cursor(), cells=None, finding=None).as_dict()
    session = _valid_session(batch, {**choices, "current": {}})
    place = _same_place(before.full_batch, state.current, session)
    if place is None:
        del choices["current"]
        return _valid_session(batch, choices)
    session.change({"current": place})
    return session


def _valid_session(batch: Batch, state: Mapping[str, Any]) -> Session:
    """Give up choices one after the other, until the rest is valid for the batch."""
    default = State().as_dict()
    last: RounddiagError | None = None
    for given_up in range(len(_OPTIONAL) + 1):
        reset = {key: default[key] for key in _OPTIONAL[:given_up]}
        try:
            return Session(batch, {**state, **reset})
        except RounddiagError as error:
            last = last or error
    raise last or AssertionError


def _same_place(before: Batch, place: Cursor, session: Session) -> Cursor | None:
    batch = session.full_batch
    sample = next(_same_samples(before, place.sample, batch), None)
    if sample is None:
        return None
    is_own = batch.rounds.sample == sample
    rounds = [
        number
        for number in batch.rounds.round[is_own].tolist()
        if number <= place.round
    ]
    if not rounds:
        return None
    last = max(rounds)
    cells = CellBox(samples=(sample,), rounds=(last, last))
    worst = session.worst_token(cells)
    return worst if worst.sample == sample else Cursor(sample=sample, round=last)


def _same_samples(before: Batch, sample: int, batch: Batch) -> Iterator[int]:
    if before.sample_ids and batch.sample_ids:
        places = index_by_id(batch.sample_ids)
        name = before.sample_ids[sample]
        if name in index_by_id(before.sample_ids) and name in places:
            yield places[name]
    if before.group_ids and batch.group_ids:
        group = before.group_ids[sample]
        yield from (i for i, own in enumerate(batch.group_ids) if own == group)
