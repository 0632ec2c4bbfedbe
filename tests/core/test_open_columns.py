"""Columns that only this file has, in the frames."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import sample_frame, token_frame
from rounddiag.columns.column import scatter_with_missing
from rounddiag.core import round_frame
from rounddiag.errors import FrameError
from rounddiag.findings import View
from rounddiag.findings.conditions import columns_of_tokens
from tests.batches import hand_batch

# Rounds of the hand batch: sample 0 has two tokens and one, sample 1 three and one,
# sample 2 one.
ROUNDS = {
    "sample": np.array([1, 0, 1]),
    "round": np.array([1, 0, 0]),
    "version": np.array(["c", "a", "b"], dtype=object),
    "cached": np.array([30, 10, 20]),
}


def test_a_column_of_rounds_stands_at_each_of_their_tokens() -> None:
    frame = token_frame(hand_batch(round_columns=ROUNDS), ["version", "cached"])

    absent = [value is None or value != value for value in frame["version"]]  # noqa: PLR0124 NaN
    assert absent == [False, False, True, False, False, False, False, True]
    assert frame["version"].dropna().tolist() == ["a", "a", "b", "b", "b", "c"]
    assert frame["cached"].fillna(-1).tolist() == [10, 10, -1, 20, 20, 20, 30, -1]


@pytest.mark.parametrize("make", [token_frame, round_frame, sample_frame])
def test_a_text_that_repeats_is_one_object_in_a_frame(make: Any) -> None:
    note = "a long note " * 10
    rounds = {name: ROUNDS[name] for name in ("sample", "round")}
    batch = hand_batch(
        sample_columns={"note": np.array([note] * 3, dtype=object)},
        round_columns={**rounds, "of_round": np.array([note] * 3, dtype=object)},
    )
    frame = make(batch, ["note"]) if make is token_frame else make(batch)
    name = "of_round" if make is round_frame else "note"
    texts = frame[name].dropna()
    assert len(texts) > 1
    assert all(text is note for text in texts)


def test_a_column_of_samples_stands_at_each_of_their_tokens() -> None:
    batch = hand_batch(sample_columns={"rank": np.array([7, 8, 9], dtype=np.int16)})

    frame = token_frame(batch, ["rank", "position"])

    assert frame["rank"].tolist() == [7, 7, 7, 8, 8, 8, 8, 9]
    assert str(frame["rank"].dtype) == "int16"
    assert frame["position"].tolist() == [0, 1, 3, 1, 2, 3, 5, 0]


def test_a_name_that_rounds_and_samples_have_is_that_of_the_rounds() -> None:
    others = {"cached": np.array([1, 2, 3])}
    batch = hand_batch(round_columns=ROUNDS, sample_columns=others)

    assert token_frame(batch, ["cached"])["cached"].tolist()[3:6] == [20, 20, 20]


def test_an_unknown_column_is_an_error_that_names_those_of_the_batch() -> None:
    batch = hand_batch(sample_columns={"rank": np.array([7, 8, 9])})

    message = (
        "expected columns out of ['position', 'token_id', 'rollout_log_prob',"
        " 'old_log_prob', 'entropy', 'advantage', 'loss_mask', 'importance_weight',"
        " 'prob_diff', 'equal_so_far', 'surprise', 'round_length', 'round_seconds',"
        " 'round_reward', 'round_change', 'round_advantage', 'role', 'text', 'rank'];"
        " found 'ranks'. `sample`, `round` and `token` are always there."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        token_frame(batch, ["ranks"])


def test_rows_of_rounds_that_are_not_there_are_left_out() -> None:
    odd = {
        "sample": np.array([0, 0, 9, -1, 2, 2]),
        "round": np.array([-1, 2, 0, 0, 0, 0], dtype=np.int8),
        "kind": np.array([1, 2, 3, 4, 5, 6]),
    }

    frame = round_frame(hand_batch(round_columns=odd))

    assert frame["kind"].fillna(0).tolist() == [0, 0, 0, 0, 6]


def test_diagnose_and_frames_read_the_same_rows_of_rounds() -> None:
    again = {name: np.r_[values, values[:1]] for name, values in ROUNDS.items()}
    again["cached"] = np.array([30, 10, 20, 40])  # sample 1, round 0: two rows
    batch = hand_batch(round_columns=again)
    known = round_frame(batch)["cached"].fillna(-1).tolist()
    assert known == [10, -1, 20, 40, -1]
    found = columns_of_tokens(View.from_batch(batch))
    (cached,) = [column for column in found if column.name == "cached"]
    of_tokens = [-1 if code < 0 else cached.values[code] for code in cached.codes]
    # Two tokens, one, three, one, one: as many as each round has.
    assert of_tokens == [10, 10, -1, 20, 20, 20, 40, -1]


def test_values_keep_their_dtype_where_none_is_absent() -> None:
    assert scatter_with_missing(
        np.array([True, False]), np.array([1, 0]), 2
    ).tolist() == [False, True]
    assert (
        scatter_with_missing(np.array([3], dtype=np.uint8), np.array([0]), 1).dtype
        == np.uint8
    )


def test_what_a_float_cannot_hold_is_none_where_it_is_absent() -> None:
    large = np.array([(1 << 53) + 1])
    assert scatter_with_missing(large, np.array([0]), 2).tolist() == [
        (1 << 53) + 1,
        None,
    ]
    assert scatter_with_missing(np.array([True]), np.array([1]), 2).tolist() == [
        None,
        True,
    ]
    assert scatter_with_missing(
        np.array([], dtype=object), np.array([], dtype=int), 1
    ).tolist() == [None]
    assert (
        scatter_with_missing(np.array([0.5], dtype=np.float32), np.array([0]), 2).dtype
        == np.float32
    )


@given(st.lists(st.integers(-(1 << 53), 1 << 53), max_size=8), st.integers(0, 4))
def test_spread_values_come_back(values: list[int], absent: int) -> None:
    size = len(values) + absent
    places = np.random.default_rng(0).permutation(size)[: len(values)]
    assert (
        scatter_with_missing(np.array(values), places, size)[places].tolist() == values
    )
