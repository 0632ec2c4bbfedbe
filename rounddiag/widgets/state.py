"""What an explorer shows, as plain data that can be saved and restored."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from rounddiag.columns.column import python_value
from rounddiag.core.columns import equal_so_far
from rounddiag.core.divergence import FACTOR_2
from rounddiag.core.measured import metrics_of
from rounddiag.core.scores import has_pair
from rounddiag.errors import FrameError
from rounddiag.schema import MEAN_COLUMNS, METRICS, ROUNDS, metric_name
from rounddiag.stats.heatmap_rows import Order
from rounddiag.widgets.actions import has_actions
from rounddiag.widgets.columns import BatchColumns
from rounddiag.widgets.corrections import chosen_correction, offered

# What happened in each round: no mean, and what is shown without log-probs.
ACTION = "action"
OFFERED_METRICS = (
    *(name for name, metric in METRICS.items() if metric.short),
    ACTION,
)
Colors: TypeAlias = Literal["fixed", "fitted"]
_Scope: TypeAlias = Literal["auto", "round", "sample"]
# What colours the text: the mismatch, or a number that each token has.
TextColor: TypeAlias = Literal[
    "diff", "probability", "entropy", "advantage", "loss_mask", "importance_weight"
]
# What the numbers of actions count; by default what their grammar says.
Frame: TypeAlias = Literal["pixels", "thousand", "unit"]
# Columns that an order of the heatmap has.
_ORDERED = ("group_id", "num_rounds", *get_args(Order))
_CELLS = "{'samples': [...], 'rounds': [first, last]}"
_CHOICES = {
    "metric": OFFERED_METRICS,
    "colors": get_args(Colors),
    "scope": get_args(_Scope),
    "text_color": get_args(TextColor),
    "coordinates": (None, *get_args(Frame)),
}
# Entries of states that older versions saved: the value that shows nothing else, and
# what to use for the others.
_TWO_BATCHES = "`rounddiag.plot_compare([before, after])`, and an explorer of each"
_REMOVED: dict[str, tuple[object, str]] = {
    "batch": (0, _TWO_BATCHES),
    "heatmap": ("batch", _TWO_BATCHES),
    "axis": ("round", "`rounddiag.plot_positions(batch, along=...)`"),
    "layers": ({}, "`rounddiag.plot_rounds(batch, layers=...)`"),
}
# What a note is on: a sample, a round of it, or a token of that.
_NOTE_KEYS = ("sample", "round", "token")
_NOTES = [{"text", *_NOTE_KEYS[:num]} for num in (1, 2, 3)]
# Sizes of the panes: pixels, or shares of the width; None for what fits.
LAYOUT = dict.fromkeys(("height", "columns", "side", "drawer", "list"))


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """A token, by sample, round and token in its round."""

    sample: int = 0
    round: int = 0
    token: int = 0


@dataclass(frozen=True, kw_only=True)
class CellBox:
    """Some samples in a range of rounds: a box in the heatmap."""

    samples: tuple[int, ...]
    rounds: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class State:
    """Everything that can be chosen in an explorer; see `Explorer.state`.

    Attributes
    ----------
    metric, order, a, b, by: What the overview shows. `by` is any column; `order` is one
        of the heatmap's, or a column of samples: their values in order, the worst first
        among equal ones.
    colors: Whether a colour means the same in every batch, or the range fits this one.
    threshold: |diff| beyond which tokens are underlined and counted, in nats.
    filter: Conditions by column; see `kept_tokens`.
    finding: Which finding of the diagnosis is marked.
    current, cells: The current token, and a box of selected cells.
    scope: What the token plot shows: above 1,000 tokens the current round, by default.
    log_probs: Whether it shows both log-probs too.
    text_color: What colours the text: `diff`, `probability`, `entropy`, `advantage`,
        `loss_mask` or `importance_weight`.
    sight: Whether the screenshot has the tiles of the answer: where a model looked.
    coordinates: The frame in which the numbers of all actions are read: `pixels` of the
        screenshot, `thousand` (0 to 1000) or `unit` (0 to 1); None for that of their
        grammar.
    correction: Of `rounddiag.schema.CORRECTIONS`: tokens that it drops are struck.
    limit: Its upper bound or largest weight; None for the default of the trainers.
    notes: What somebody wrote: `text`, and the `sample` it is on, or the `sample` and
        `round`, or the `sample`, `round` and `token`.
    layout: `height` of the explorer and of its `drawer` in pixels; which `list` the
        drawer shows, or `"closed"`; the shares of width of the left one of the
        `columns` and of the `side` with the screenshot. None is what fits the window.
    """

    metric: str = "abs_diff"
    threshold: float = FACTOR_2
    order: str = "worst"
    a: str = "old"
    b: str = "rollout"
    by: str | None = None
    colors: Colors = "fixed"
    filter: Mapping[str, Any] = field(default_factory=dict)
    finding: int | None = None
    current: Cursor = Cursor()
    cells: CellBox | None = None
    scope: _Scope = "auto"
    log_probs: bool = False
    text_color: TextColor = "diff"
    sight: bool = False
    coordinates: Frame | None = None
    correction: str | None = None
    limit: float | None = None
    notes: Sequence[Mapping[str, Any]] = field(default_factory=list)
    layout: Mapping[str, Any] = field(default_factory=lambda: dict(LAYOUT))

    def __post_init__(self) -> None:
        for key, known in _CHOICES.items():
            value = getattr(self, key)
            _check_entry(key, value, f"one of {[*known]}", is_valid=value in known)
        size = self.threshold
        is_size = _is_number(size) and size > 0
        _check_entry("threshold", size, "a number of nats above 0", is_valid=is_size)
        limit = self.limit
        is_limit = limit is None or (_is_number(limit) and limit > 0)
        _check_entry("limit", limit, "a number above 0, or None", is_valid=is_limit)
        for key in ("a", "b"):
            name = getattr(self, key)
            is_text = isinstance(name, str)
            _check_entry(key, name, "the name of a score", is_valid=is_text)
        other = f"another score than `a`, {self.a!r}"
        _check_entry("b", self.b, other, is_valid=self.b != self.a)
        keep: Any = self.filter
        is_named = isinstance(keep, Mapping) and all(
            isinstance(name, str) for name in keep
        )
        conditions = "a dictionary of columns to conditions"
        _check_entry("filter", keep, conditions, is_valid=is_named)
        is_number = type(self.finding) is int and self.finding >= 0
        is_finding = self.finding is None or is_number
        number = "the number of a finding, or None"
        _check_entry("finding", self.finding, number, is_valid=is_finding)
        for key in ("log_probs", "sight"):
            value = getattr(self, key)
            is_switch = isinstance(value, bool)
            _check_entry(key, value, "True or False", is_valid=is_switch)
        are_notes = isinstance(self.notes, list | tuple) and all(
            isinstance(note, Mapping)
            and set(note) in _NOTES
            and isinstance(note["text"], str)
            and all(type(note[key]) is int for key in set(note) - {"text"})
            for note in self.notes
        )
        written = f"a list of dictionaries with `text` and some of {[*_NOTE_KEYS]}"
        _check_entry("notes", self.notes, written, is_valid=are_notes)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> State:
        """Build it from the output of `as_dict`, or a part of that."""
        return cls().with_changes(state)

    def with_changes(self, changes: Mapping[str, Any]) -> State:
        """Return a copy with entries replaced, also within `current` and `layout`."""
        known = [field.name for field in fields(self)]
        parsed = {}
        for key, value in changes.items():
            if key in known:
                parsed[key] = self._parse(key, value)
            elif key not in _REMOVED:
                raise _unknown_entry(key, value, known)
            elif value != _REMOVED[key][0]:
                raise _removed_entry(key, value, _REMOVED[key][1])
        return replace(self, **parsed)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data that JSON can hold."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def mean_metric(self) -> str:
        """The metric of means: beside actions, the length of rounds."""
        return "round_length" if self.metric == ACTION else self.metric

    def _parse(self, key: str, value: Any) -> Any:  # noqa: ANN401 whatever JSON holds
        if key == "metric":
            value = metric_name(value) if value in MEAN_COLUMNS.values() else value
            is_known = isinstance(value, str) and value in METRICS
            if is_known and value not in OFFERED_METRICS:
                rounds = f"`rounddiag.plot_rounds(batch, metric={value!r})`"
                raise _removed_entry(key, value, rounds)
        if key == "current":
            return _replace_entries(value, self.current)
        if key == "filter" and isinstance(value, Mapping):
            return {name: entry for name, entry in value.items() if entry is not None}
        if key == "layout":
            return _layout(self.layout, value)
        if key == "cells" and value is not None and not isinstance(value, CellBox):
            return parse_cells(value)
        return value


def plain_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries of a state as JSON holds them; a FrameError for what it cannot."""
    return {key: _plain_entry(key, value) for key, value in changes.items()}


def _plain_entry(key: str, value: object) -> object:
    if isinstance(value, Cursor | CellBox):
        return value
    try:
        return json.loads(json.dumps(value, default=np.generic.item))
    except (TypeError, ValueError, RecursionError):
        expected = "numbers, texts, and lists and dictionaries of them"
        raise _invalid_entry(key, value, expected) from None


def bounding_cells(rows: pd.DataFrame) -> CellBox | None:
    """Return the smallest box of cells that holds the samples and rounds of a frame."""
    ROUNDS.require(rows.columns, "sample", "round")
    if rows.empty:
        return None
    samples = tuple(int(sample) for sample in rows["sample"].unique())
    low, high = int(rows["round"].min()), int(rows["round"].max())
    return CellBox(samples=samples, rounds=(low, high))


def _replace_entries(changes: Any, now: Cursor) -> Cursor:  # noqa: ANN401 whatever JSON holds
    if isinstance(changes, Cursor):
        return changes
    names = [field.name for field in fields(now)]
    is_known = (
        isinstance(changes, Mapping)
        and set(changes) <= set(names)
        and all(type(n) is int for n in changes.values())
    )
    expected = f"a dictionary with some of {names}, numbers"
    _check_entry("current", changes, expected, is_valid=is_known)
    return replace(now, **changes)


def _layout(now: Mapping[str, Any], changes: Any) -> dict[str, Any]:  # noqa: ANN401
    expected = f"a dictionary with some of {[*LAYOUT]}, numbers and a name"
    is_known = (
        isinstance(changes, Mapping)
        and set(changes) <= set(LAYOUT)
        and all(
            value is None
            or (isinstance(value, str) if name == "list" else _is_number(value))
            for name, value in changes.items()
        )
    )
    _check_entry("layout", changes, expected, is_valid=is_known)
    return {**now, **changes}


def parse_cells(value: Any) -> CellBox:  # noqa: ANN401 whatever JSON holds
    """Build cells from plain data, or raise a FrameError."""
    try:
        low, high = value["rounds"]
        samples = tuple(map(_whole, value["samples"]))
        return CellBox(samples=samples, rounds=(_whole(low), _whole(high)))
    except (LookupError, TypeError, ValueError):
        raise _invalid_entry(key="cells", value=value, expected=_CELLS) from None


def _whole(value: object) -> int:
    number = python_value(value)
    if not _is_number(number) or number % 1:
        raise TypeError
    return int(number)


def _unknown_entry(key: str, value: object, known: list[str]) -> FrameError:
    inner = {field.name: "current" for field in fields(Cursor)}
    whole = f"{inner[key]}={{{key!r}: {value!r:.80}}}" if key in inner else ""
    return FrameError.build(
        key=key,
        expected=f"a state entry out of {known}",
        found="an unknown entry",
        advice=f"Write `{whole}`."
        if whole
        else "Leave it out; conditions on columns belong into `filter`.",
    )


def _removed_entry(key: str, value: object, instead: str) -> FrameError:
    return FrameError.build(
        key=key,
        expected="an entry that explorers still have",
        found=f"{value!r:.80}",
        advice=f"Use {instead}.",
    )


def _is_number(value: object) -> bool:
    """Return whether a value is a finite number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def _check_entry(key: str, value: object, expected: str, *, is_valid: bool) -> None:
    if not is_valid:
        raise _invalid_entry(key, value, expected)


def _invalid_entry(
    key: str,
    value: object,
    expected: str,
    advice: str = "Leave it out for the default.",
) -> FrameError:
    try:
        shown = f"{value!r:.80}"
    except Exception:  # noqa: BLE001 of any type; also a number of over 4,300 digits
        shown = f"a {type(value).__name__} that cannot be shown"
    return FrameError.build(key=key, expected=expected, found=shown, advice=advice)


def available_options(columns: BatchColumns) -> dict[str, Any]:
    """Return the values that each choice can have for a batch."""
    batch, names = columns.batch, columns.names
    lacking = {"reward": batch.rewards is None, "group": batch.group_ids is None}
    # Engines that are not meant to be bitwise equal differ from the first token on.
    is_compared = has_pair(batch)
    is_equal = is_compared and bool(equal_so_far(batch).any())
    metrics = [
        [name, METRICS[name].short, METRICS[name].hint]
        for name in metrics_of(batch)
        if name in OFFERED_METRICS
        and is_compared == (METRICS[name].of == "pair")
        and (name != "after_first_unequal" or is_equal)
    ]
    if batch.lacks("rollout") and batch.lacks("old") and has_actions(batch):
        metrics.insert(0, [ACTION, ACTION, "what the model did in each round"])
    return {
        "metric": metrics,
        "order": [
            *(order for order in get_args(Order) if not lacking.get(order)),
            *(name for name in columns.sample_names if name not in _ORDERED),
        ],
        "scores": [
            *(
                engine
                for engine in ("old", "rollout")
                if is_compared or not batch.lacks(engine)
            ),
            *batch.scores,
        ],
        "by": names,
        "columns": columns.offers(),
        "correction": offered(batch),
        "samples": [*(batch.sample_ids or ())],
    }


def check_options(state: State, options: Mapping[str, Any], num_samples: int) -> None:
    """Raise if a state has a value that the batch does not offer."""
    for key in ("order", "by"):
        known = [None, *options[key]] if key == "by" else options[key]
        value = getattr(state, key)
        _check_option(key, value, f"one of {known}", is_valid=value in known)
    known = [None, *(correction["name"] for correction in options["correction"])]
    expected = f"one of {known}"
    is_known = state.correction in known
    _check_option("correction", state.correction, expected, is_valid=is_known)
    chosen_correction(state.correction, state.limit)  # raises at a wrong limit
    if state.cells is not None:
        samples = state.cells.samples
        are_present = all(0 <= sample < num_samples for sample in samples)
        expected = f"samples from 0 to {num_samples - 1}"
        is_valid = bool(samples) and are_present
        _check_option("cells", samples, expected, is_valid=is_valid)


def _check_option(key: str, value: object, expected: str, *, is_valid: bool) -> None:
    if not is_valid:
        advice = "Leave it out, or choose a value that the batch has."
        raise _invalid_entry(key, value, expected, advice)
