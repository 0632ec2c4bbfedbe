"""The state of an explorer, and the frames of its one or two batches for that state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
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
from rounddiag.errors import FrameError
from rounddiag.findings import (
    Diagnosis,
    Finding,
    Range,
    View,
    diagnose,
    known_diagnosis,
)
from rounddiag.findings.view import most_to_see
from rounddiag.schema import Correction
from rounddiag.widgets.columns import BatchColumns
from rounddiag.widgets.corrections import chosen_correction, find_fates
from rounddiag.widgets.filters import FilteredBatch, filter_batch, nothing_kept
from rounddiag.widgets.pair import BatchPair, FilteredPair
from rounddiag.widgets.state import (
    CellBox,
    Cursor,
    State,
    available_options,
    bounding_cells,
    check_options,
    plain_changes,
)
from rounddiag.widgets.trajectory_columns import TrajectoryTexts

# For each batch: all of it, what is kept of all rounds, and of some.
_CACHED_PER_BATCH = 3
# Entries of the state that are a place which somebody has chosen.
CHOSEN = {"current", "cells", "finding"}


class Session:
    """A batch, or a pair of them, and a state that is valid for it.

    Parameters
    ----------
    batches : mapping of str to Batch
        One or two, by their names.
    state : mapping
        As from `State.as_dict`, or a part of it.

    Attributes
    ----------
    pair: Of two batches.
    options: The available choices for each batch.
    is_placed: Whether anybody has chosen a place, a finding or cells.
    """

    def __init__(self, batches: Mapping[str, Batch], state: Mapping[str, Any]) -> None:
        self.batches = tuple(batches.values())
        self.pair = BatchPair(batches) if len(batches) > 1 else None
        self.columns = tuple(BatchColumns(batch) for batch in self.batches)
        self.trajectories = tuple(TrajectoryTexts(batch) for batch in self.batches)
        # Without a reference to the session: nothing has to wait for a collector.
        cached = lru_cache(_CACHED_PER_BATCH * len(self.batches))
        self._filter_batch = cached(partial(_filter_batch, self.columns))
        self._read_view = lru_cache(partial(_read_view, self.batches))
        self._find_fates = lru_cache(partial(_find_fates, self.batches))
        # Python and the page, which asks in a thread, wait for one and the same.
        self._diagnosing = RLock()
        options = [available_options(columns) for columns in self.columns]
        self.options = options if self.pair is None else self.pair.options(options)
        # Without a pair of log-probs the overview shows what there is.
        metric = self.options[0]["metric"][0][0]
        initial: dict[str, Any] = {"metric": metric}
        if not has_pair(self.batches[0]):
            orders = self.options[0]["order"]
            initial["order"] = "reward" if "reward" in orders else "rounds"
        if self.pair is not None:
            initial = self.pair.initial_state
        state = plain_changes(state)
        state = self._number_sample(state, state.get("batch", 0))
        self.state = self._require_valid(State.from_dict({**initial, **state}))
        # Two batches are opened where they differ most.
        self.is_placed = bool(CHOSEN & set(state)) or self.pair is not None
        if "current" not in state:
            self.state = replace(self.state, current=self._worst_place())
        if self.known_diagnosis is not None:
            self.open_at_evidence()

    @property
    def full_batch(self) -> Batch:
        """The active batch, with all its scores."""
        return self.batches[self.state.batch]

    @property
    def batch(self) -> Batch:
        """The active batch; its two log-probs are those of the chosen pair."""
        return Measured.of(self.full_batch, self.state.a, self.state.b).require_batch()

    def change(self, changes: Mapping[str, Any]) -> None:
        """Replace entries of the state; an invalid entry changes nothing.

        A change of `batch` keeps to the partners of the samples, as far as there are; a
        change of `finding` goes to its evidence.
        """
        changes = plain_changes(changes)
        self.is_placed |= bool(CHOSEN & set(changes))
        batch = changes.get("batch", self.state.batch)
        changes = self._number_sample(changes, batch)
        if self.pair is None or batch == self.state.batch:
            state = self._require_valid(self.state.with_changes(changes))
            if changes.get("finding") is not None and "current" not in changes:
                finding = self._finding(state)
                state = replace(state, current=evidence_place(finding) or state.current)
            self.state = state
        else:
            self._switch_batch(self.pair, {"finding": None, **changes})

    def _number_sample(
        self, changes: Mapping[str, Any], batch: object
    ) -> Mapping[str, Any]:
        """Replace the id of the current sample by its number."""
        match changes, batch:
            case {"current": {"sample": str(name), **others}}, 0 | 1:
                index = min(int(batch), len(self.batches) - 1)
                number = self.batches[index].sample_number(name)
                return {**changes, "current": {"sample": number, **others}}
        return changes

    def clear_cache(self) -> None:
        """Free all frames; they are computed again when they are needed."""
        self._filter_batch.cache_clear()
        self._read_view.cache_clear()
        self._find_fates.cache_clear()

    @property
    def diagnosis(self) -> Diagnosis:
        """What is wrong with the active batch, for the chosen pair of scores."""
        return self._diagnosis_for(self.state)

    @property
    def view(self) -> View:
        """The tokens that the diagnosis has read, with the places found in them."""
        diagnosis, state = self.diagnosis, self.state
        if len(diagnosis):
            return diagnosis[0].view
        return self._read_view(state.batch, state.a, state.b, diagnosis.reference)

    @property
    def known_diagnosis(self) -> Diagnosis | None:
        """The diagnosis, if somebody has asked for it before: it takes long."""
        return known_diagnosis(self.full_batch, self.state.a, self.state.b)

    @property
    def fates(self) -> Array | None:
        """What the chosen correction does to each token of the active batch."""
        state = self.state
        correction = chosen_correction(state.correction, state.limit)
        if correction is None:
            return None
        return self._find_fates(state.batch, correction, state.a, state.b)

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
            diagnosis = diagnose(self.batches[state.batch], a=state.a, b=state.b)
        if (
            len(diagnosis)
            and (roles := diagnosis[0].view.facts.memo.get("roles")) is not None
        ):
            self.columns[state.batch].use_roles(roles)
        return diagnosis

    @property
    def filtered_batch(self) -> FilteredBatch:
        """What the filter keeps of the active batch."""
        return self.filter_for(self.state)

    @property
    def filtered_pair(self) -> FilteredPair | None:
        """What the filter keeps of two batches; None for one."""
        return self._filter_pair(self.state)

    def with_all_rounds(self) -> tuple[FilteredBatch, FilteredPair | None]:
        """Return `filtered_batch` and `filtered_pair` without the filter by round."""
        keep = {k: value for k, value in self.state.filter.items() if k != "round"}
        state = replace(self.state, filter=keep)
        return self.filter_for(state), self._filter_pair(state)

    @property
    def whole_batch(self) -> FilteredBatch:
        """All of the active batch."""
        return self.filter_for(_without_filter(self.state))

    @property
    def difference(self) -> FilteredPair | None:
        """The pair, if the difference of two batches is shown."""
        return self.filtered_pair if self.state.heatmap == "difference" else None

    @property
    def own_columns(self) -> BatchColumns:
        """The columns of the active batch."""
        return self.columns[self.state.batch]

    @property
    def trajectory_texts(self) -> TrajectoryTexts:
        """The outcomes and tasks of the active batch."""
        return self.trajectories[self.state.batch]

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
        """Return what the filter of a state keeps of its active batch."""
        keep = json.dumps(state.filter, sort_keys=True)
        return self._filter_batch(state.batch, keep, state.a, state.b, state.by)

    def _filter_pair(self, state: State) -> FilteredPair | None:
        if self.pair is None:
            return None
        own, other = self.filter_for(state), self._other_side(self.pair, state)
        sides = (other, own) if state.batch else (own, other)
        return FilteredPair(self.pair, sides, state.batch)

    def _other_side(self, pair: BatchPair, state: State) -> FilteredBatch:
        other = 1 - state.batch
        keep = pair.translate_filter(state)
        try:
            return self.filter_for(replace(state, batch=other, filter=keep))
        except FrameError:  # the filter is valid for the active batch only
            other_side = Measured.of(self.batches[other], state.a, state.b)
            return nothing_kept(other_side.require_batch())

    def _switch_batch(self, pair: BatchPair, changes: Mapping[str, Any]) -> None:
        """Activate the other batch, at the same token unless `changes` has another.

        A filter that is not valid for it, by a group that it does not have, is removed.
        """
        before = self.state
        switched = {"current": Cursor(), **pair.translate_state(before), **changes}
        try:
            self.state = self._require_valid(before.with_changes(switched))
        except FrameError:
            if "filter" in changes:
                raise
            switched["filter"] = {}
            self.state = self._require_valid(before.with_changes(switched))
        if "current" not in changes:
            sample = pair.partners[before.batch].get(before.current.sample)
            place = self._nearest_place(sample, before.current)
            self.state = replace(self.state, current=place)

    def _nearest_place(self, sample: int | None, place: Cursor) -> Cursor:
        """Return the token of a sample that is nearest to a place in another one."""
        counts = {} if sample is None else self._round_sizes(sample, self.state.batch)
        rounds = [index for index in counts if index <= place.round]
        if sample is None or not rounds:
            return self._worst_place()
        token = min(place.token, counts[rounds[-1]] - 1)
        return Cursor(sample=sample, round=rounds[-1], token=token)

    def _worst_place(self) -> Cursor:
        """Return the worst token of the worst round that is kept, or else of all."""
        for state in (self.state, _without_filter(self.state)):
            filtered = self.filter_for(state)
            if not has_pair(filtered.batch) and len(filtered.tokens):
                return _first_picture(filtered)
            ranked = [filtered.worst_rounds]
            if state.heatmap == "difference" and (pair := self._filter_pair(state)):
                ranked.insert(0, pair.worst["rounds"])
            for rounds in ranked:
                first = _best_to_see(rounds, filtered.batch)
                cells = bounding_cells(first)
                if cells is not None:
                    return _worst_token(filtered.tokens, cells) or Cursor()
        return Cursor()

    def _require_valid(self, state: State) -> State:
        """Raise if a batch, or one of two, lacks what the state refers to."""
        for batch in self.batches:
            for score in (state.a, state.b):
                if score not in ("old", "rollout"):
                    batch.log_probs(score)
        index = min(state.batch, len(self.batches) - 1)
        if state.metric not in metrics_of(self.batches[index]):
            Measured.of(self.batches[index]).values(get_measure(state.metric))  # raises
        check_options(state, self.options[index], self.batches[index].num_samples)
        self._check_place(state.current, index)
        self.filter_for(state)  # raises if the filter is not valid
        return state

    def _check_place(self, place: Cursor, batch: int) -> None:
        """Raise if a batch lacks a token; the default place is valid for any batch."""
        is_sample = 0 <= place.sample < self.batches[batch].num_samples
        sizes = self._round_sizes(place.sample, batch) if is_sample else {}
        size = sizes.get(place.round, 0)
        if not 0 <= place.token < size and place != Cursor():
            raise FrameError.build(
                key="current",
                expected="a sample, a round and a token that the batch has",
                found=f"sample {place.sample}, round {place.round},"
                f" token {place.token}",
                advice="`rounddiag.round_frame(batch)` has samples, rounds and counts.",
            )

    def _round_sizes(self, sample: int, batch: int) -> dict[int, int]:
        rounds = self.batches[batch].rounds
        is_own = rounds.sample == sample
        indices, sizes = rounds.round[is_own], rounds.num_tokens[is_own]
        return dict(zip(indices.tolist(), sizes.tolist(), strict=True))


def _filter_batch(
    columns: Sequence[BatchColumns],
    batch: int,
    keep: str,
    a: str,
    b: str,
    by: str | None,
) -> FilteredBatch:
    return filter_batch(columns[batch], json.loads(keep), a, b, by)


def _read_view(
    batches: Sequence[Batch], batch: int, a: str, b: str, usual: Range
) -> View:
    return View.from_batch(batches[batch], a, b, usual)


def _find_fates(
    batches: Sequence[Batch], batch: int, correction: Correction, a: str, b: str
) -> Array:
    return find_fates(batches[batch], correction, a, b)


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
    """Return the first round that is kept and has a screenshot, else the first one."""
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
    """Return the worst of some rounds; of tied ones, one with screenshots."""
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
    """Return the token with the largest |diff| in some cells; None without tokens."""
    inside = _rows_within(tokens, cells)
    if inside.empty:
        return None
    size = inside["diff"].abs().replace(np.inf, np.nan)
    row = inside.iloc[int(np.nanargmax(size)) if size.notna().any() else 0]
    return Cursor(**{key: int(row[key]) for key in ("sample", "round", "token")})


def _without_filter(state: State) -> State:
    return replace(state, filter={}, by=None)
