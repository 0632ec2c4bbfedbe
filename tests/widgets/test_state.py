"""What an explorer shows, as plain data."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import explore
from rounddiag.errors import FrameError, RounddiagError
from rounddiag.widgets.corrections import offered
from rounddiag.widgets.state import (
    OFFERED_METRICS,
    CellBox,
    Cursor,
    State,
    bounding_cells,
)
from tests.batches import hand_batch

PLACES = st.builds(Cursor, sample=st.integers(0), round=st.integers(0))
RANGES = st.fixed_dictionaries({"from": st.integers(0), "to": st.integers(0)})
FILTERS = st.dictionaries(st.text(), RANGES | st.text() | st.lists(st.text()))
CELLS = st.builds(
    CellBox,
    samples=st.lists(st.integers(0), min_size=1).map(tuple),
    rounds=st.tuples(st.integers(0), st.integers(0)),
)
STATES = st.builds(
    State,
    metric=st.sampled_from(OFFERED_METRICS),
    threshold=st.floats(1e-6, 100),
    current=PLACES,
    filter=FILTERS,
    cells=CELLS | st.none(),
)


def test_notes_and_the_colour_of_the_text_are_part_of_the_state() -> None:
    note = {"sample": 1, "round": 0, "token": 2, "text": "here"}
    state = State(notes=[note], text_color="entropy")
    assert state.as_dict()["notes"] == [note]
    for wrong in ([{**note, "text": 3}], [{"text": "no place"}], "text"):
        with pytest.raises(FrameError, match=r"^`notes`: expected a list of dict"):
            State(notes=wrong)  # type: ignore[arg-type]
    with pytest.raises(FrameError, match=r"^`text_color`: expected one of"):
        State(text_color="red")  # type: ignore[arg-type]


@given(STATES)
def test_a_state_that_went_through_json_is_the_same(state: State) -> None:
    assert State.from_dict(json.loads(json.dumps(state.as_dict()))) == state


def test_a_part_of_an_entry_leaves_the_rest() -> None:
    state = State.from_dict(
        {"layout": {"columns": 0.5}, "current": {"sample": 2, "token": 5}}
    )
    changed = state.with_changes(
        {"layout": {"list": "rounds"}, "current": {"round": 1}}
    )
    assert changed.layout == {**State().layout, "columns": 0.5, "list": "rounds"}
    assert changed.current == Cursor(sample=2, round=1, token=5)


def test_a_state_of_an_older_version_that_shows_nothing_else_is_taken() -> None:
    old: dict[str, Any] = {
        "batch": 0,
        "heatmap": "batch",
        "axis": "round",
        "layers": {},
    }
    with explore(hand_batch(), **old, metric="diff") as explorer:
        assert explorer.state["metric"] == "diff"
        assert not {*old} & {*explorer.state}


def test_a_filter_is_replaced_and_loses_what_is_none() -> None:
    state = State.from_dict({"filter": {"sample": 1, "text": None}})
    assert state.filter == {"sample": 1}
    assert state.with_changes({"filter": {"text": "a"}}).filter == {"text": "a"}


def test_a_metric_goes_by_the_column_of_its_mean_too() -> None:
    assert State.from_dict({"metric": "mean_abs_diff"}).metric == "abs_diff"
    assert State.from_dict({"metric": "mean_diff"}).metric == "diff"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "kl"}, "`metric`: expected one of ['abs_diff', 'diff',"),
        ({"threshold": 0}, "`threshold`: expected a number of nats above 0; found 0."),
        ({"threshold": float("nan")}, "expected a number of nats above 0; found nan."),
        ({"threshold": True}, "expected a number of nats above 0; found True."),
        (
            {"a": "rollout"},
            "`b`: expected another score than `a`, 'rollout'; found 'rollout'."
            " Leave it out for the default.",
        ),
        ({"metric": "k3"}, "Use `rounddiag.plot_rounds(batch, metric='k3')`."),
        ({"layers": {"ci": False}}, "Use `rounddiag.plot_rounds(batch, layers=...)`."),
        ({"axis": "context"}, "Use `rounddiag.plot_positions(batch, along=...)`."),
        ({"batch": 1}, "Use `rounddiag.plot_compare([before, after])`"),
        ({"heatmap": "difference"}, "Use `rounddiag.plot_compare([before, after])`"),
        ({"filter": 3}, "`filter`: expected a dictionary of columns to conditions;"),
        ({"finding": -1}, "`finding`: expected the number of a finding, or None;"),
        ({"log_probs": 1}, "`log_probs`: expected True or False; found 1."),
        ({"scope": "all"}, "`scope`: expected one of ['auto', 'round', 'sample'];"),
        ({"layout": {"left": 3}}, "`layout`: expected a dictionary with some of"),
        ({"current": {"row": 3}}, "expected a dictionary with some of ['sample',"),
        ({"cells": 3}, "expected {'samples': [...], 'rounds': [first, last]}; found 3"),
        ({"cells": {"samples": [1], "rounds": [1]}}, "'rounds': [first, last]}; found"),
    ],
)
def test_what_a_state_cannot_be_is_an_error(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FrameError, match=re.escape(message)):
        State.from_dict(changes)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("text", "Leave it out; conditions on columns belong into `filter`."),
        ("sample", "Write `current={'sample': 999}`."),
    ],
)
def test_an_entry_that_there_is_not_is_named(key: str, advice: str) -> None:
    message = (
        f"^`{key}`: expected a state entry out of \\['metric', .*\\];"
        f" found an unknown entry. {re.escape(advice)}$"
    )
    with pytest.raises(FrameError, match=message):
        State.from_dict({key: 999})


def test_a_box_holds_all_rows_of_a_frame() -> None:
    rows = pd.DataFrame({"sample": [3, 1, 3], "round": [4, 2, 2]})
    assert bounding_cells(rows) == CellBox(samples=(3, 1), rounds=(2, 4))
    assert bounding_cells(rows[:0]) is None
    with pytest.raises(FrameError, match="round"):
        bounding_cells(rows[["sample"]])


ODD = [
    *(None, True, -1, 1.5, math.nan, math.inf, 10**400, 10**5000, "x", "9" * 5000),
    *(b"b", [], [[]], [1], {}, {"a": [1]}, {1: 2}, {(1,): 2}, (1, 2), {1}, object()),
    *(np.array([1, 2]), np.float32(2), np.int64(1), pd.NaT, 1j),
]
INNER = {
    "current": ("sample", "round", "token"),
    "layout": ("height", "columns", "side", "drawer", "list"),
    "cells": ("samples", "rounds"),
    "notes": ("text", "sample"),
    "filter": ("diff", "sample", "role"),
}


@pytest.mark.parametrize("key", [*State().as_dict()])
def test_a_value_of_any_type_is_valid_or_a_clear_error(key: str) -> None:
    """And of a valid one the state is plain: JSON can hold it."""
    batch = hand_batch()
    explorer = explore(batch)
    for value in ODD:
        inner = [{**_INNER.get(key, {}), name: value} for name in INNER.get(key, ())]
        for entry in (value, [value], *inner, inner):
            before = explorer.state
            try:
                explorer.state = {key: entry}
            except RounddiagError:
                assert explorer.state == before
            assert json.loads(json.dumps(explorer.state, allow_nan=False))
            explorer.to_code()
    explorer.close()


def test_the_rule_of_the_run_is_first_in_the_menu_of_corrections() -> None:
    settings = {"rollout_is": "sequence", "rollout_is_threshold": 2.0}
    own, *others = offered(hand_batch(meta={"rollout_correction": settings}))
    assert (own["name"], own["is_own"]) == ("sequence_tis", True)
    assert not any(option["is_own"] for option in [*others, *offered(hand_batch())])


_INNER: dict[str, dict[str, Any]] = {
    "cells": {"samples": [0], "rounds": [0, 1]},
    "notes": {"text": "a", "sample": 0},
}


@pytest.mark.parametrize(
    "entry",
    [
        {"layout": {"height": "500"}},
        {"filter": {"round": {"from": math.nan}}},
        {"cells": {"samples": ["1"], "rounds": [0, 1]}},
        {"cells": {"samples": [1.5], "rounds": [0, 1]}},
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused_by_its_name(entry: dict[str, Any]) -> None:
    (name,) = entry
    name = "round" if name == "filter" else name
    with pytest.raises(FrameError, match=f"`{name}`: expected"):
        explore(hand_batch(), **entry)
