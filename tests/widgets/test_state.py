"""What an explorer shows, as plain data."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.errors import FrameError
from rounddiag.widgets.state import METRICS, Cells, Filter, Place, State, bounding_cells

PLACES = st.builds(Place, sample=st.integers(0), round=st.integers(0))
RANGES = st.tuples(st.integers(0), st.integers(0)) | st.none()
FILTERS = st.builds(Filter, text=st.text() | st.none(), rounds=RANGES)
CELLS = st.builds(
    Cells,
    samples=st.lists(st.integers(0), min_size=1).map(tuple),
    rounds=st.tuples(st.integers(0), st.integers(0)),
)
STATES = st.builds(
    State,
    metric=st.sampled_from([*METRICS]),
    threshold=st.floats(1e-6, 100),
    layers=st.dictionaries(st.text(), st.booleans()),
    current=PLACES,
    filter=FILTERS,
    cells=CELLS | st.none(),
)


@given(STATES)
def test_a_state_that_went_through_json_is_the_same(state: State) -> None:
    assert State.from_dict(json.loads(json.dumps(state.as_dict()))) == state


def test_a_part_of_an_entry_leaves_the_rest() -> None:
    state = State.from_dict(
        {"filter": {"sample": 1}, "current": {"sample": 2, "token": 5}}
    )
    changed = state.updated({"filter": {"text": "a"}, "current": {"round": 1}})
    assert changed.filter == Filter(sample=1, text="a")
    assert changed.current == Place(sample=2, round=1, token=5)


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
        (
            {"layers": [1]},
            "`layers`: expected a dictionary of layer names to True or False; found",
        ),
        (
            {"layers": {"mean": 1}},
            "expected a dictionary of layer names to True or False; found",
        ),
        ({"filter": 3}, "`filter`: expected a dictionary with some of ['sample',"),
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
        ("colour", "Leave it out."),
        ("sample", "Write `current={'sample': 999}`."),
        ("text", "Write `filter={'text': 999}`."),
    ],
)
def test_an_entry_that_there_is_not_is_named(key: str, advice: str) -> None:
    message = (
        f"^`{key}`: expected a state entry out of \\['metric', .*\\];"
        f" found an unknown entry. {re.escape(advice)}$"
    )
    with pytest.raises(FrameError, match=message):
        State.from_dict({key: 999})


def test_a_filter_is_empty_whatever_its_text_would_be() -> None:
    assert Filter(is_regex=True).is_empty
    assert not Filter(sample=0).is_empty


def test_a_box_holds_all_rows_of_a_frame() -> None:
    rows = pd.DataFrame({"sample": [3, 1, 3], "round": [4, 2, 2]})
    assert bounding_cells(rows) == Cells(samples=(3, 1), rounds=(2, 4))
    assert bounding_cells(rows[:0]) is None
    with pytest.raises(FrameError, match="round"):
        bounding_cells(rows[["sample"]])
