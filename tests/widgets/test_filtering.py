"""Which tokens a filter keeps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import Batch, token_frame
from rounddiag.core.scores import pair_of
from rounddiag.errors import FrameError
from rounddiag.widgets.filters import kept_tokens
from rounddiag.widgets.state import Filter
from tests.batches import hand_batch
from tests.widgets.samples import worded

ADVICE = "Leave it out of the filter, or choose another."
OTHERWISE = "Write it otherwise, or look for the plain text."


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
            f"`group`: expected a text; found 3. {ADVICE}",
        ),
        (
            Filter(sample="1"),  # type: ignore[arg-type]
            f"`sample`: expected a number of a sample; found '1'. {ADVICE}",
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
            "`text`: expected a regular expression of Python's `re`; found 'a('"
            f" (missing ), unterminated subpattern at position 1). {OTHERWISE}",
        ),
        (
            Filter(text="a" * 1001, is_regex=True),
            f"`text`: expected at most 1,000 characters; found {'a' * 1001!r:.80}"
            f" (1,001 of them). {OTHERWISE}",
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


def test_an_expression_that_never_ends_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rounddiag.widgets.filters._SECONDS", 0.5)
    batch = worded([["a" * 40]])
    message = (
        "`text`: expected a regular expression that is done within 0.5 seconds; found"
        f" '(a+)+b' (it is not). {OTHERWISE}"
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        kept_tokens(batch, Filter(text="(a+)+b", is_regex=True))
    assert len(kept_tokens(batch, Filter(text="(a+)+b"))) == 0


def test_of_a_batch_without_samples_nothing_is_kept() -> None:
    batch = batch_of_three()[[]]
    assert len(kept_tokens(batch, Filter(text="a", is_regex=True))) == 0
    assert len(kept_tokens(batch, Filter(rounds=(0, 1)))) == 0


def test_samples_keep_their_numbers_and_types() -> None:
    found = kept_tokens(batch_of_three(), Filter(group="a"))
    assert np.unique(found["sample"]).tolist() == [0, 2]
    assert found["sample"].dtype == "int32"
