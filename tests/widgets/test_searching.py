"""Matches over tokens: the same as a loop over characters."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.widgets.filters import tokens_with
from rounddiag.widgets.regex_worker import matched

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
    assert tokens_with(text, flat, starts).tolist() == expected


def test_matches_that_touch_are_one_and_empty_ones_are_none() -> None:
    assert matched("a", ["aab", "a"]) == [(0, 2), (3, 4)]
    assert matched("b*", ["abba"]) == [(1, 3)]
    assert matched("$", ["a"]) == []
    assert matched("a", []) == []


def test_an_expression_sees_each_round_alone() -> None:
    starts = np.array([0, 2])
    found = tokens_with("^a$", ["a", "b", "a"], starts, is_regex=True)
    assert found.tolist() == [False, False, True]
