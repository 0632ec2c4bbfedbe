"""The state of an explorer, and the frames of its batch for that state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from threading import RLock
from typing import Any

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core import token_frame
from rounddiag.core.divergence import get_measure
from rounddiag.core.measured import Measured, metrics_of
from rounddiag.core.scores import has_pair
from rounddiag.errors import FrameError, require_one_of
from rounddiag.findings import (
    Diagnosis,
    Finding,
    View,
    diagnose,
    known_diagnosis,
)
from rounddiag.findings.view import most_to_see
from rounddiag.widgets.actions import action_rows
from rounddiag.widgets.columns import BatchColumns
from rounddiag.widgets.corrections import chosen_correction, find_fates
from rounddiag.widgets.filters import OF_PICTURES, FilteredBatch, filter_batch
from rounddiag.widgets.state import (
    ACTION,
    CellBox,
    Cursor,
    State,
    available_options,
    bounding_cells,
    check_options,
    plain_changes,
)
from rounddiag.widgets.trajectory_columns import TrajectoryTexts

# All of the batch, what is kept of all rounds, and of some.
_NUM_FILTERED = 3
# Entries of the state that are a place which somebody has chosen.
CHOSEN = {"current", "cells", "finding"}


class Session:
    """A batch, and a state that is valid for it.

    Parameters
    ----------
    batch : Batch, or mapping of its name to it
    state : mapping
        As from `State.as_dict`, or a part of it.

    Attributes
    ----------
    full_batch: The batch, with all its scores.
    own_columns: Its columns.
    trajectory_texts: The outcomes and tasks of its samples.
    options: The available choices.
    is_placed: Whether anybody has chosen a place, a finding or cells.
    """

    def __init__(
        self, batch: Batch | Mapping[str, Batch], state: Mapping[str, Any]
    ) -> None:
        if isinstance(batch, Mapping):  # as callers before 0.3.0 pass it
            (batch,) = batch.values()
        self.full_batch = batch
        self.own_columns = BatchColumns(batch)
        self.trajectory_texts = TrajectoryTexts(batch)
        # Without a reference to the session: nothing has to wait for a collector.
        cached = lru_cache(_NUM_FILTERED)
        self._filter_batch = cached(partial(_filter_batch, self.own_columns))
        self._read_view = lru_cache(partial(View.from_batch, batch))
        self._find_fates = lru_cache(partial(find_fates, batch))
        # Python and the page, which asks in a thread, wait for one and the same.
        self._diagnosing = RLock()
        self.options = available_options(self.own_columns)
        # Without a pair of log-probs the overview shows what there is.
        initial: dict[str, Any] = {"metric": self.options["metric"][0][0]}
        if not has_pair(batch):
            has_rewards = "reward" in self.options["order"]
            initial["order"] = "reward" if has_rewards else "rounds"
        state = self._number_sample(plain_changes(state))
        self.state = self._require_valid(State.from_dict({**initial, **state}))
        self.is_placed = bool(CHOSEN & set(state))
        if "current" not in state:
            self.state = replace(self.state, current=self._worst_place())
        if self.known_diagnosis is not None:
            self.open_at_evidence()

    @property
    def batch(self) -> Batch:
        """The batch; its two log-probs are those of the chosen pair."""
        return Measured.of(self.full_batch, self.state.a, self.state.b).require_batch()

    def change(self, changes: Mapping[str, Any]) -> None:
        """Replace entries of the state; an invalid entry changes nothing.

        A change of `finding` goes to its evidence.
        """
        changes = self._number_sample(plain_changes(changes))
        self.is_placed |= bool(CHOSEN & set(changes))
        state = self._require_valid(self.state.with_changes(changes))
        if changes.get("finding") is not None and "current" not in changes:
            finding = self._finding(state)
            state = replace(state, current=evidence_place(finding) or state.current)
        self.state = state

    def _number_sample(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        match changes:
            case {"current": {"sample": str(name), **others}}:
                number = self.full_batch.sample_number(name)
                return {**changes, "current": {"sample": number, **others}}
        return changes

    def clear_cache(self) -> None:
        """Free all frames; they are computed again when they are needed."""
        self._filter_batch.cache_clear()
        self._read_view.cache_clear()
        self._find_fates.cache_clear()

    @property
    def diagnosis(self) -> Diagnosis:
        """What is wrong with the batch, for the chosen pair of scores."""
        return self._diagnosis_for(self.state)

    @property
    def view(self) -> View:
        """The tokens that the diagnosis has read, with the places found in them."""
        diagnosis, state = self.diagnosis, self.state
        if len(diagnosis):
            return diagnosis[0].view
        return self._read_view(state.a, state.b, diagnosis.reference)

    @property
    def known_diagnosis(self) -> Diagnosis | None:
        """The diagnosis, if somebody has asked for it before: it takes long."""
        return known_diagnosis(self.full_batch, self.state.a, self.state.b)

    @cached_property
    def actions(self) -> pd.DataFrame:
        """What each round did, as `action_rows` has it."""
        return action_rows(self.full_batch)

    @property
    def fates(self) -> Array | None:
        """What the chosen correction does to each token."""
        state = self.state
        correction = chosen_correction(state.correction, state.limit)
        if correction is None:
            return None
        return self._find_fates(correction, state.a, state.b)

    def open_at_evidence(self) -> bool:
        """Go to the evidence of the first finding, unless anybody has chosen a place.

        Waits for the diagnosis. Returns whether the place is another one now.
        """
        if self.is_placed:
            return False
        first = first_with_tokens(self.diagnosis)
        if self.is_placed:  # somebody has meanwhile
            return False
        self.is_placed = True
        if first is not None:
            self.change({"finding": first})
        return first is not None

    @property
    def finding(self) -> Finding | None:
        """The finding that is marked."""
        return None if self.state.finding is None else self._finding(self.state)

    def _finding(self, state: State) -> Finding:
        diagnosis = self._diagnosis_for(state)
        index = state.finding or 0
        if index >= len(diagnosis):
            raise FrameError.build(
                key="finding",
                expected=f"the number of one of {len(diagnosis)} findings, from 0",
                found=str(index),
                advice="`explorer.diagnosis` lists them.",
            )
        return diagnosis[index]

    def _diagnosis_for(self, state: State) -> Diagnosis:
        with self._diagnosing:
            diagnosis = diagnose(self.full_batch, a=state.a, b=state.b)
        if (
            len(diagnosis)
            and (roles := diagnosis[0].view.facts.memo.get("roles")) is not None
        ):
            self.own_columns.use_roles(roles)
        return diagnosis

    @property
    def filtered_batch(self) -> FilteredBatch:
        """What the filter keeps of the batch."""
        return self.filter_for(self.state)

    def with_all_rounds(self) -> FilteredBatch:
        """Return `filtered_batch` without the filter by round."""
        keep = {k: value for k, value in self.state.filter.items() if k != "round"}
        return self.filter_for(replace(self.state, filter=keep))

    @property
    def whole_batch(self) -> FilteredBatch:
        """All of the batch."""
        return self.filter_for(_without_filter(self.state))

    @property
    def selected_cells(self) -> CellBox:
        """The selected cells; without a selection, the cell of the current token."""
        place = self.state.current
        alone = CellBox(samples=(place.sample,), rounds=(place.round, place.round))
        return self.state.cells or alone

    @property
    def selection(self) -> pd.DataFrame:
        """The kept tokens of the selected cells.

        Without selected cells, all that the filter keeps; without a filter, those of
        the current round.
        """
        tokens = self.filtered_batch.tokens
        if self.state.cells or not self.state.filter:
            tokens = self.select_rows(tokens)
        return tokens

    def selection_frame(self) -> pd.DataFrame:
        """Return `selection` with text and role, if known, and both log-probs."""
        chosen, columns = self.selection, self.own_columns
        names = [
            f"{engine}_log_prob"
            for engine in ("rollout", "old")
            if not self.batch.lacks(engine)
        ]
        names += ["role"] if "role" in columns.names else []
        names += [] if self.batch.lacks("text") else ["text"]
        sample = chosen["sample"].to_numpy()
        parts = self.batch.where(np.isin(np.arange(self.batch.num_samples), sample))
        frame = token_frame(parts, names)
        known = np.unique(sample)
        frame["sample"] = known[frame["sample"]]
        more = frame.columns.difference(chosen.columns, sort=False)
        keys = ["sample", "round", "token"]
        return chosen.merge(frame[[*keys, *more]], on=keys, how="left")

    def select_rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a frame that are within the selected cells."""
        return _rows_within(frame, self.selected_cells)

    def worst_token(self, cells: CellBox) -> Cursor:
        """Return the token with the largest |diff| in some cells.

        The current token, if the cells have none.
        """
        return _worst_token(self.filtered_batch.tokens, cells) or self.state.current

    def filter_for(self, state: State) -> FilteredBatch:
        """Return what the filter of a state keeps of the batch."""
        keep = json.dumps(state.filter, sort_keys=True)
        return self._filter_batch(
            keep, state.a, state.b, state.by, reads_pictures=state.metric == OF_PICTURES
        )

    def _worst_place(self) -> Cursor:
        for state in (self.state, _without_filter(self.state)):
            filtered = self.filter_for(state)
            if not has_pair(filtered.batch) and len(filtered.tokens):
                return _first_picture(filtered)
            first = _best_to_see(filtered.worst_rounds, filtered.batch)
            cells = bounding_cells(first)
            if cells is not None:
                return _worst_token(filtered.tokens, cells) or Cursor()
        return Cursor()

    def _require_valid(self, state: State) -> State:
        batch = self.full_batch
        for score in (state.a, state.b):
            if score not in ("old", "rollout"):
                batch.log_probs(score)
        if state.metric == ACTION:
            known = [name for name, *_ in self.options["metric"]]
            advice = "Leave it out, or choose a value that the batch has."
            require_one_of(ACTION, known, key="metric", advice=advice)
        elif state.metric not in metrics_of(batch):
            Measured.of(batch).values(get_measure(state.metric))  # raises
        check_options(state, self.options, batch.num_samples)
        self._check_place(state.current)
        self.filter_for(state)  # raises if the filter is not valid
        return state

    def _check_place(self, place: Cursor) -> None:
        """Raise if the batch lacks a token; the default place is always valid."""
        rounds = self.full_batch.rounds
        columns = (rounds.sample, rounds.round, rounds.num_tokens)
        sample, index, sizes = (column.cpu().numpy() for column in columns)
        size = sizes[(sample == place.sample) & (index == place.round)].sum()
        if not 0 <= place.token < size and place != Cursor():
            raise FrameError.build(
                key="current",
                expected="a sample, a round and a token that the batch has",
                found=f"sample {place.sample}, round {place.round},"
                f" token {place.token}",
                advice="`rounddiag.round_frame(batch)` has samples, rounds and counts.",
            )


def _filter_batch(
    columns: BatchColumns,
    keep: str,
    a: str,
    b: str,
    by: str | None,
    *,
    reads_pictures: bool,
) -> FilteredBatch:
    chosen = json.loads(keep)
    return filter_batch(columns, chosen, a, b, by, reads_pictures=reads_pictures)


def first_with_tokens(diagnosis: Diagnosis) -> int | None:
    """Return the number of the first finding that some tokens show, and not all."""
    numbers = (
        number
        for number, finding in enumerate(diagnosis)
        if finding.kind != "level" and len(finding.indices)
    )
    return next(numbers, None)


def evidence_place(finding: Finding) -> Cursor | None:
    """Return the token of a finding to look at first; None without tokens."""
    if not len(finding.indices):
        return None
    return worst_of(finding.view, finding.indices)


def worst_of(view: View, index: Array) -> Cursor:
    """Return the token to look at first of some tokens of a view."""
    worst = view.worst(index)
    return Cursor(
        sample=int(view.sample[worst]),
        round=int(view.round[worst]),
        token=int(view.token[worst]),
    )


def _first_picture(filtered: FilteredBatch) -> Cursor:
    rounds = filtered.tokens.drop_duplicates(["sample", "round"])
    images = filtered.batch.images or ()
    seen = {
        (sample, shot.round) for sample, shots in enumerate(images) for shot in shots
    }
    places = [*zip(rounds["sample"], rounds["round"], rounds["token"], strict=True)]
    place = next((place for place in places if place[:2] in seen), places[0])
    sample, round_, token = map(int, place)
    return Cursor(sample=sample, round=round_, token=token)


def _best_to_see(rounds: pd.DataFrame, batch: Batch) -> pd.DataFrame:
    if rounds.empty:
        return rounds
    at = most_to_see(rounds["low"].to_numpy(), rounds["sample"].to_numpy(), batch)
    return rounds.iloc[[at]]


def _rows_within(frame: pd.DataFrame, cells: CellBox) -> pd.DataFrame:
    sample = frame["sample"].to_numpy()  # in order
    samples = np.unique(cells.samples)
    begins = np.searchsorted(sample, samples, side="left")
    stops = np.searchsorted(sample, samples, side="right")
    rows = np.concatenate([*map(np.arange, begins, stops)])
    inside = frame.iloc[rows]
    return inside[inside["round"].between(*cells.rounds)]


def _worst_token(tokens: pd.DataFrame, cells: CellBox) -> Cursor | None:
    inside = _rows_within(tokens, cells)
    if inside.empty:
        return None
    size = inside["diff"].abs().replace(np.inf, np.nan)
    row = inside.iloc[int(np.nanargmax(size)) if size.notna().any() else 0]
    return Cursor(**{key: int(row[key]) for key in ("sample", "round", "token")})


def _without_filter(state: State) -> State:
    return replace(state, filter={}, by=None)
