"""Which tokens a filter keeps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import Batch, load, token_frame
from rounddiag.columns.predicates import Condition
from rounddiag.errors import FrameError
from rounddiag.findings import View
from rounddiag.findings.place import Place
from rounddiag.widgets.columns import BatchColumns
from rounddiag.widgets.filters import (
    filter_of_place,
    kept_tokens,
    match_spans,
    tokens_matching,
)
from tests.batches import hand_batch
from tests.widgets.samples import worded

ADVICE = "Remove it from the filter, or choose another value."
RE2 = (
    "`text`: expected a regular expression in the syntax of RE2, which has neither"
    " lookaround nor backreferences; found {}. Rewrite it, or search for the literal"
    " text."
)


def batch_of_three(**others: Any) -> Batch:
    rewards = torch.tensor([0.0, 0.5, float("nan")])
    return hand_batch(rewards=rewards, group_ids=("a", "b", "a"), **others)


def cells(tokens: pd.DataFrame) -> list[list[int]]:
    pairs = tokens[["sample", "round"]].drop_duplicates()
    return [*map(list, pairs.to_numpy().tolist())]


def kept(batch: Batch, /, **keep: Any) -> pd.DataFrame:
    """The token frame of what a filter keeps."""
    frame = token_frame(batch, ["text"])
    return frame[kept_tokens(BatchColumns(batch), keep)]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ({}, [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]]),
        ({"sample": 1}, [[1, 0], [1, 1]]),
        ({"sample": [0, 2]}, [[0, 0], [0, 1], [2, 0]]),
        ({"sample": "y"}, [[1, 0], [1, 1]]),
        ({"sample": ["z", 1]}, [[1, 0], [1, 1], [2, 0]]),
        ({"group_id": "a"}, [[0, 0], [0, 1], [2, 0]]),
        ({"rank": [5]}, [[1, 0], [1, 1], [2, 0]]),
        ({"rank": {"to": 4}}, [[0, 0], [0, 1]]),
        ({"engine": ["x"]}, [[0, 1], [2, 0]]),
        ({"reward": {"from": 0.5, "to": 1.0}}, [[1, 0], [1, 1]]),
        ({"reward": {"to": 0.5}}, [[0, 0], [0, 1], [1, 0], [1, 1]]),
        ({"reward": {"from": 0.25, "to": None}}, [[1, 0], [1, 1]]),
        ({"round": {"from": 1, "to": 1}}, [[0, 1], [1, 1]]),
        ({"round": 1, "group_id": ["a"]}, [[0, 1]]),
        ({"token": {"from": 2}}, [[1, 0]]),
        ({"sample": 2, "group_id": "b"}, []),
        ({"reward": {"from": 2}}, []),
        ({"text": "⟨9⟩"}, [[1, 0]]),
    ],
)
def test_a_filter_keeps_what_all_of_it_holds_for(
    keep: dict[str, Any], expected: list[list[int]]
) -> None:
    batch = batch_of_three(
        sample_ids=("x", "y", "z"),
        sample_columns={"rank": np.array([4, 5, 5])},
        round_columns={
            "sample": np.array([0, 0, 1, 1, 2]),
            "round": np.array([0, 1, 0, 1, 0]),
            "engine": np.array(["w", "x", "w", "w", "x"]),
        },
    )
    assert cells(kept(batch, **keep)) == expected


def filter_of(
    batch: Batch, *conditions: tuple[str, Any, Any], tokens: Any = True
) -> dict[str, Any] | str:
    """The filter of a place with these conditions, and with these tokens."""
    view = View.from_batch(batch)
    none = np.zeros(len(view), dtype=bool)
    place = Place(
        conditions=tuple(Condition(*one, text=f"in {one[0]}") for one in conditions),
        tokens=np.broadcast_to(tokens, len(view)),
        candidates=np.arange(len(batch)),
        over=none,
        exceeding=none,
        base=none,
        **_MEASURES,
    )
    return filter_of_place(BatchColumns(batch), place, view)


_COUNTS = ("num_tokens", "num_large", "num_samples")
_MEASURES: dict[str, Any] = dict.fromkeys(
    (*_COUNTS, "share", "ratio", "low", "high", "p", "log_likelihood_ratio"), 1
)


def test_the_conditions_of_a_place_are_a_filter() -> None:
    batch = batch_of_three(sample_columns={"rank": np.array([4, 5, 5])})
    keep = filter_of(
        batch, ("rank", "=", 5), ("round", ">=", 1), ("first_tokens", "<=", 1)
    )
    assert keep == {"rank": [5], "round": {"from": 1}, "token": {"to": 0}}
    tokens = kept(batch, **keep)
    assert tokens[["sample", "round", "token"]].to_numpy().tolist() == [[1, 1, 0]]
    within = filter_of(batch, ("round", ">=", 1), ("round", "<=", 3))
    assert within == {"round": {"from": 1, "to": 3}}
    shown = load("sample_data/image_window.parquet")
    assert filter_of(shown, ("images_seen", ">=", 3)) == {"num_images": {"from": 3}}


def test_a_set_of_samples_is_a_filter_by_their_numbers() -> None:
    batch = batch_of_three()
    own = View.from_batch(batch).sample != 1
    keep = filter_of(batch, ("round", "=", 0), ("every_nth", "=", 2), tokens=own)
    assert keep == {"round": [0], "sample": [0, 2]}
    assert cells(kept(batch, **keep)) == [[0, 0], [2, 0]]


@pytest.mark.parametrize(
    "name", ["last_tokens", "after_image", "since_image", "own_start", "images_seen"]
)
def test_a_condition_that_no_filter_has_is_named(name: str) -> None:
    found = filter_of(batch_of_three(), ("round", "=", 0), (name, "<=", 2))
    assert found == f"in {name}"


def test_a_filter_marks_all_tokens_of_the_batch() -> None:
    found = kept_tokens(BatchColumns(batch_of_three()), {"group_id": "b", "text": "8"})
    assert np.flatnonzero(found).tolist() == [4]
    assert len(found) == batch_of_three().num_tokens


def test_text_is_found_across_tokens_and_within_a_round() -> None:
    batch = worded([["cl", "ick", "(1", ")"], ["(", "2", "cl"], ["ick"]])

    def found(text: Any) -> list[str]:
        return [*kept(batch, text=text)["text"]]

    assert found("click(") == ["cl", "ick", "(1"]
    assert found("CLICK(") == ["cl", "ick", "(1"]
    assert found("(") == ["(1", "("]
    assert found({"regex": r"\(\d"}) == ["(1", "(", "2"]
    assert found({"regex": r"k\b|^i"}) == ["ick", "ick"]
    assert found({"regex": "(?i)CLICK"}) == ["cl", "ick"]
    assert found({"regex": "x*"}) == []


def test_hostile_text_is_looked_for_as_it_stands() -> None:
    words = ["<script>", "<|im_start|>", "\u202e\u05d0", "\u200b", "a.b"]
    batch = worded([words])
    for word in words:
        assert [*kept(batch, text=word)["text"]] == [word]
    assert len(kept(batch, text="axb")) == 0
    assert len(kept(batch, text="\ud83d")) == 0
    assert len(kept(batch, text={"regex": "\ud83d"})) == 0


def test_tokens_of_one_character_stay_together() -> None:
    batch = worded([["a", "\N{SNOWMAN}", "", "b"]])
    assert kept(batch, text="\N{SNOWMAN}")["token"].tolist() == [1]
    halves = worded([["a", "\ud83d", "\ude00", "b"]])
    found = kept(halves, text="\N{GRINNING FACE}")
    assert found["token"].tolist() == [1, 2]


def test_a_role_keeps_its_tokens() -> None:
    batch = worded([["so ", "click", "(", "12", ")", "<end>"]], special=["<end>"])

    def found(*roles: str) -> list[int]:
        return kept(batch, role=[*roles])["token"].tolist()

    assert (found("coordinates"), found("special"), found("other")) == ([3], [5], [])
    assert found("coordinates", "special") == [3, 5]


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (
            {"group_id": "c"},
            f"`group_id`: expected values out of 'a', 'b'; found ['c']. {ADVICE}",
        ),
        (
            {"group_id": [["a"]]},
            f"`group_id`: expected values out of 'a', 'b'; found [['a']]. {ADVICE}",
        ),
        (
            {"group_id": {"from": 1}},
            "`group_id`: expected a column of numbers for a range; found a column of"
            f" text. {ADVICE}",
        ),
        (
            {"sample": [0, 3]},
            "`sample`: expected samples from 0 to 2, or their ids; found [3]."
            f" {ADVICE}",
        ),
        (
            {"round": {"first": 1}},
            "`round`: expected {'from': lowest, 'to': highest}, with one of them at"
            f" least; found {{'first': 1}}. {ADVICE}",
        ),
        (
            {"reward": {"from": "high"}},
            "`reward`: expected {'from': lowest, 'to': highest}, with one of them at"
            f" least; found {{'from': 'high'}}. {ADVICE}",
        ),
        (
            {"role": "thought"},
            "`role`: expected a column out of group_id, reward, num_rounds, num_tokens,"
            f" importance_weight, sample, round, token; found none. {ADVICE}",
        ),
        (
            {"text": 3},
            f"`text`: expected a text, or {{'regex': expression}}; found 3. {ADVICE}",
        ),
        (
            {"text": {"regex": "a("}},
            RE2.format("'a(' (missing ): a()"),
        ),
        (
            {"text": {"regex": "a(?=b)"}},
            RE2.format("'a(?=b)' (invalid perl operator: (?=)"),
        ),
        (
            {"text": {"regex": r"(a)\1"}},
            RE2.format(r"'(a)\\1' (invalid escape sequence: \1)"),
        ),
        (
            {"text": {"regex": "a{2000}"}},
            RE2.format("'a{2000}' (invalid repetition size: {2000})"),
        ),
    ],
)
def test_what_cannot_be_filtered_by_is_refused(
    keep: dict[str, Any], message: str
) -> None:
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        kept_tokens(BatchColumns(batch_of_three()), keep)


def test_an_expression_that_would_backtrack_for_ever_is_matched() -> None:
    batch = worded([["a" * 40, "b" * 2]])
    found = kept(batch, text={"regex": "(a+)+b"})
    assert found["token"].tolist() == [0, 1]
    assert len(kept(batch, text={"regex": "(a+)+c"})) == 0
    assert len(kept(batch, text="(a+)+b")) == 0


def test_of_a_batch_without_samples_nothing_is_kept() -> None:
    batch = batch_of_three()[[]]
    assert len(kept(batch, text={"regex": "a"})) == 0
    assert len(kept(batch, round={"from": 0, "to": 1})) == 0


PIECES = st.lists(st.text("ab", max_size=3), min_size=1, max_size=5)


@given(st.lists(PIECES, max_size=4), st.text("ab", min_size=1, max_size=3))
def test_tokens_that_share_a_character_with_a_match_are_found(
    rounds: list[list[str]], text: str
) -> None:
    # Of a character that several tokens make the first one has the text.
    rounds = [["a", *pieces] for pieces in rounds]
    expected = []
    for pieces in rounds:
        joined = "".join(pieces)
        inside = {i for m in re.finditer(text, joined) for i in range(*m.span())}
        at, is_found = 0, False
        for piece in pieces:
            if piece:
                is_found = not inside.isdisjoint(range(at, at + len(piece)))
            expected.append(is_found)
            at += len(piece)
    sizes = [len(pieces) for pieces in rounds]
    starts = np.cumsum([0, *sizes])[:-1].astype(np.int64)
    flat = [piece for pieces in rounds for piece in pieces]
    assert tokens_matching(text, flat, starts).tolist() == expected


PATTERNS = [
    "a",
    "b+",
    "a|bb",
    "(ab)+?",
    "a*",
    "^a",
    "b$",
    "[^a]",
    "a.b",
    "(?i)B",
    "🙂?a",
]


@given(
    st.sampled_from(PATTERNS),
    st.lists(st.text("aBb🙂\n\U000f0000", max_size=6), max_size=4),
)
def test_spans_are_those_of_a_loop_over_the_texts(
    pattern: str, texts: list[str]
) -> None:
    texts = [text.rstrip("\n") for text in texts]  # where `$` of Python differs
    expected, first = [], 0
    for text in texts:
        found = re.finditer(pattern, text, re.IGNORECASE)
        spans = [match.span() for match in found]
        expected += [[first + i, first + j] for i, j in spans if i < j]
        first += len(text)
    assert match_spans(pattern, texts).tolist() == expected


def test_an_expression_sees_each_round_alone() -> None:
    starts = np.array([0, 2])
    found = tokens_matching("^a$", ["a", "b", "a"], starts, is_regex=True)
    assert found.tolist() == [False, False, True]
