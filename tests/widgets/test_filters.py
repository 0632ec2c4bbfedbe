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

from rounddiag import Batch, token_frame
from rounddiag.core.scores import pair_of
from rounddiag.errors import FrameError
from rounddiag.widgets.filters import kept_tokens, match_spans, tokens_matching
from rounddiag.widgets.state import Filter
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


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (Filter(), [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]]),
        (Filter(sample=1), [[1, 0], [1, 1]]),
        (Filter(group="a"), [[0, 0], [0, 1], [2, 0]]),
        (Filter(reward=(0.5, 1.0)), [[1, 0], [1, 1]]),
        (Filter(reward=(0, 0.5)), [[0, 0], [0, 1], [1, 0], [1, 1]]),
        (Filter(rounds=(1, 1)), [[0, 1], [1, 1]]),
        (Filter(rounds=(1, 9), group="a"), [[0, 1]]),
        (Filter(sample=2, group="b"), []),
        (Filter(reward=(2, 3)), []),
        (Filter(rounds=(1, 0)), []),
        (Filter(text="⟨9⟩"), [[1, 0]]),
        (Filter(text=""), [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]]),
    ],
)
def test_a_filter_keeps_what_all_of_it_holds_for(
    keep: Filter, expected: list[list[int]]
) -> None:
    assert cells(kept_tokens(batch_of_three(), keep)) == expected


def test_what_is_kept_is_as_it_was() -> None:
    batch = batch_of_three(entropy=torch.arange(18.0).reshape(3, 6))
    columns = ["position", "prob_diff", "entropy"]
    found = kept_tokens(batch, Filter(group="b", text="8"), columns=columns)
    every = token_frame(batch, columns)
    expected = every[(every["sample"] == 1) & (every["position"] == 2)]
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True))


def test_nothing_that_matches_is_an_empty_frame() -> None:
    batch = batch_of_three()
    for keep in (Filter(text="nowhere"), Filter(sample=2, group="b")):
        found = kept_tokens(batch, keep, columns=["position"])
        pd.testing.assert_frame_equal(found, token_frame(batch, ["position"]).iloc[:0])


def test_another_pair_of_scores_is_compared() -> None:
    batch = batch_of_three()
    found = kept_tokens(batch, Filter(sample=1), a="rollout", b="old")
    assert found["diff"].tolist() == [0.0, -0.25, 0.5, -2.0]
    assert pair_of(found).a == "rollout"


def test_text_is_found_across_tokens_and_within_a_round() -> None:
    batch = worded([["cl", "ick", "(1", ")"], ["(", "2", "cl"], ["ick"]])

    def found(text: str, *, is_regex: bool = False) -> list[str]:
        keep = Filter(text=text, is_regex=is_regex)
        kept = kept_tokens(batch, keep, columns=["text"])
        return [*kept["text"]]

    assert found("click(") == ["cl", "ick", "(1"]
    assert found("Click(") == []
    assert found("(") == ["(1", "("]
    assert found(r"\(\d", is_regex=True) == ["(1", "(", "2"]
    assert found(r"k\b|^i", is_regex=True) == ["ick", "ick"]
    assert found("(?i)CLICK", is_regex=True) == ["cl", "ick"]
    assert found("x*", is_regex=True) == []


def test_hostile_text_is_looked_for_as_it_stands() -> None:
    words = ["<script>", "<|im_start|>", "\u202e\u05d0", "\u200b", "a.b"]
    batch = worded([words])
    for word in words:
        kept = kept_tokens(batch, Filter(text=word), columns=["text"])
        assert [*kept["text"]] == [word]
    assert len(kept_tokens(batch, Filter(text="axb"))) == 0
    assert len(kept_tokens(batch, Filter(text="\ud83d"))) == 0
    assert len(kept_tokens(batch, Filter(text="\ud83d", is_regex=True))) == 0


def test_tokens_of_one_character_stay_together() -> None:
    batch = worded([["a", "\N{SNOWMAN}", "", "b"]])
    assert kept_tokens(batch, Filter(text="\N{SNOWMAN}"))["token"].tolist() == [1]
    halves = worded([["a", "\ud83d", "\ude00", "b"]])
    found = kept_tokens(halves, Filter(text="\N{GRINNING FACE}"))
    assert found["token"].tolist() == [1, 2]


def test_a_role_keeps_its_tokens() -> None:
    batch = worded([["so ", "click", "(", "12", ")", "<end>"]], special=["<end>"])

    def found(role: str) -> list[int]:
        return kept_tokens(batch, Filter(role=role))["token"].tolist()

    assert (found("coordinates"), found("special"), found("other")) == ([3], [5], [])


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (
            Filter(group="c"),
            f"`group`: expected one of 'a', 'b'; found 'c'. {ADVICE}",
        ),
        (
            Filter(group=3),  # type: ignore[arg-type]
            f"`group`: expected a string; found 3. {ADVICE}",
        ),
        (
            Filter(sample="1"),  # type: ignore[arg-type]
            f"`sample`: expected the number of a sample; found '1'. {ADVICE}",
        ),
        (
            Filter(sample=3),
            "`sample`: expected a sample from 0 to 2; found 3. Count samples from 0, as"
            " in `rounddiag.sample_frame(batch)`.",
        ),
        (
            Filter(rounds=(1,)),  # type: ignore[arg-type]
            "`rounds`: expected two numbers, the lowest and the highest; found (1,)."
            f" {ADVICE}",
        ),
        (
            Filter(reward="high"),  # type: ignore[arg-type]
            "`reward`: expected two numbers, the lowest and the highest; found 'high'."
            f" {ADVICE}",
        ),
        (
            Filter(role="thought"),
            "`role`: expected a batch with a tokenizer; found a batch without one. Pass"
            " `tokenizer=` to `rounddiag.load`.",
        ),
        (
            Filter(text="a(", is_regex=True),
            RE2.format("'a(' (missing ): a()"),
        ),
        (
            Filter(text="a(?=b)", is_regex=True),
            RE2.format("'a(?=b)' (invalid perl operator: (?=)"),
        ),
        (
            Filter(text=r"(a)\1", is_regex=True),
            RE2.format(r"'(a)\\1' (invalid escape sequence: \1)"),
        ),
        (
            Filter(text="a{2000}", is_regex=True),
            RE2.format("'a{2000}' (invalid repetition size: {2000})"),
        ),
    ],
)
def test_what_cannot_be_filtered_by_is_told(keep: Filter, message: str) -> None:
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        kept_tokens(batch_of_three(), keep)


def test_an_unknown_role_is_told() -> None:
    message = (
        "`role`: expected one of 'thought', 'action', 'coordinates', 'typed text',"
        f" 'syntax', 'special', 'other'; found 'thoughts'. {ADVICE}"
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        kept_tokens(worded([["a"]]), Filter(role="thoughts"))


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (
            Filter(group="a"),
            "`group`: expected a batch with `group_ids`; found a batch without them.",
        ),
        (
            Filter(reward=(0, 1)),
            "`reward`: expected a batch with `rewards`; found a batch without them.",
        ),
    ],
)
def test_a_batch_without_what_is_asked_for_is_told(keep: Filter, message: str) -> None:
    with pytest.raises(FrameError, match=f"^{re.escape(f'{message} {ADVICE}')}$"):
        kept_tokens(hand_batch(), keep)


def test_an_expression_that_would_backtrack_for_ever_is_matched() -> None:
    batch = worded([["a" * 40, "b" * 2]])
    kept = kept_tokens(batch, Filter(text="(a+)+b", is_regex=True))
    assert kept["token"].tolist() == [0, 1]
    assert len(kept_tokens(batch, Filter(text="(a+)+c", is_regex=True))) == 0
    assert len(kept_tokens(batch, Filter(text="(a+)+b"))) == 0


def test_of_a_batch_without_samples_nothing_is_kept() -> None:
    batch = batch_of_three()[[]]
    assert len(kept_tokens(batch, Filter(text="a", is_regex=True))) == 0
    assert len(kept_tokens(batch, Filter(rounds=(0, 1)))) == 0


def test_samples_keep_their_numbers_and_types() -> None:
    found = kept_tokens(batch_of_three(), Filter(group="a"))
    assert np.unique(found["sample"]).tolist() == [0, 2]
    assert found["sample"].dtype == "int32"


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


@pytest.mark.parametrize("pattern", PATTERNS)
@given(st.lists(st.text("ab🙂\n\U000f0000", max_size=6), max_size=4))
def test_spans_are_those_of_a_loop_over_the_texts(
    pattern: str, texts: list[str]
) -> None:
    texts = [text.rstrip("\n") for text in texts]  # where `$` of Python differs
    expected, first = [], 0
    for text in texts:
        spans = [match.span() for match in re.finditer(pattern, text)]
        expected += [[first + i, first + j] for i, j in spans if i < j]
        first += len(text)
    assert match_spans(pattern, texts).tolist() == expected


def test_an_expression_sees_each_round_alone() -> None:
    starts = np.array([0, 2])
    found = tokens_matching("^a$", ["a", "b", "a"], starts, is_regex=True)
    assert found.tolist() == [False, False, True]
