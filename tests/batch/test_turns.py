"""Batches of what each role said: without token ids, with one engine or none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag import Batch
from rounddiag.batch import Turn
from rounddiag.batch.turns import piece_texts, split_text
from rounddiag.errors import BatchError
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch

SHOT = EncodedScreenshot(data=b"")
TURNS: list[list[tuple[Any, ...]]] = [
    [
        ("system", "You click."),
        ("user", "Open it.", (SHOT,)),
        ("assistant", "Go\nclick(1)"),
        ("tool", "ok", (SHOT, SHOT)),
        ("assistant", ""),
        ("assistant", "done"),
        ("tool", "end"),
    ],
    [("user", "Say."), ("assistant", "ab c", (), ("ab", " c"), (-1.0, -2.0))],
    [("user", "Nobody answers.")],
]


def test_turns_become_positions_with_pieces_of_text() -> None:
    batch = Batch.from_turns(TURNS, rewards=[1.0, 0.5, 0.0])
    assert [piece_texts(batch, sample) for sample in range(3)] == [
        ["Go", "\n", "click", "(", "1", ")", "ok", "", "done", "end"],
        ["ab", " c"],
        [],
    ]
    assert batch.response_mask.tolist() == [1] * 6 + [0, 1, 1, 0] + [1, 1]
    assert batch.lengths.tolist() == [10, 2, 0]
    # A turn without words is a round of its own, and so is the one right after it.
    assert batch.rounds.num_tokens.tolist() == [6, 1, 1, 2]
    assert batch.turns[0][3] == Turn("tool", "ok", 2)
    assert batch.response_ids is None
    assert batch.old_log_probs is None
    assert batch.rollout_log_probs[-2:].tolist() == [-1.0, -2.0]
    assert bool(batch.rollout_log_probs[:-2].isnan().all())


def test_screenshots_lie_at_their_turns() -> None:
    images = Batch.from_turns(TURNS).images
    places = [[(shot.round, shot.position) for shot in row] for row in images]
    assert places == [[(0, None), (1, 6), (1, 6)], [], []]


def test_what_was_not_said_is_absent() -> None:
    batch = Batch.from_turns([[("user", "Say."), ("assistant", "ab c")]])
    assert (batch.images, batch.rollout_log_probs, batch.round_ids) == (None,) * 3


def test_only_what_an_engine_scored_is_called_a_token() -> None:
    scored, unscored = (Batch.from_turns([row]) for row in (TURNS[1], TURNS[0]))
    assert [batch.token_noun for batch in (scored, unscored)] == ["token", "word"]
    assert {hand_batch().token_noun} == {"token"}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_joined_pieces_are_the_text(text: str) -> None:
    assert "".join(split_text(text)) == text


def test_a_batch_of_texts_comes_back_from_its_file(tmp_path: Path) -> None:
    batch = Batch.from_turns(TURNS, sample_ids=["a", "b", "c"])
    rd.save(batch, tmp_path / "texts.parquet")
    again = rd.load(tmp_path / "texts.parquet")
    assert again.turns == batch.turns
    assert batch.pieces is not None
    assert torch.equal(again.pieces, batch.pieces)
    assert piece_texts(again[1:], 0) == ["ab", " c"]
    frame = rd.token_frame(again[1], ["text", "rollout_log_prob"])
    assert [*frame] == ["sample", "round", "token", "text", "rollout_log_prob"]
    assert frame["text"].tolist() == ["ab", " c"]
    rd.save(batch, tmp_path / "redacted.parquet", redact=True)
    without = rd.load(tmp_path / "redacted.parquet")
    assert (without.turns, without.pieces, without.num_rounds) == (None, None, 4)


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (
            ("assistant", "ab c", (), ("ab", "c")),
            "`turns`: expected tokens of a turn of sample 0 that have the text 'ab c';"
            " found 'abc'. Give the tokens of the whole turn, or its text alone.",
        ),
        (
            ("assistant", "ab c", (), ("ab", " c"), (-1.0,)),
            "`turns`: expected tokens of a turn of sample 0 that have 2 log-probs;"
            " found 1. Give the tokens of the whole turn, or its text alone.",
        ),
    ],
)
def test_tokens_that_are_not_the_turn_are_refused(
    turn: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        Batch.from_turns([[turn]])


ONE = Batch.from_turns(TURNS)
LACKS = [
    (hand_batch(), ("ids", "text", "old", "rollout"), None),
    (
        hand_batch(rollout_log_probs=None),
        ("old", "rollout"),
        "This batch has the training engine's log-probs only:"
        " `rd.rescore(batch, MODEL)` adds the second.",
    ),
    (
        hand_batch(old_log_probs=None),
        ("old", "rollout"),
        "This batch has the sampler's log-probs only:"
        " `rd.rescore(batch, MODEL)` adds the second.",
    ),
    (
        hand_batch(old_log_probs=None, rollout_log_probs=None),
        ("rollout",),
        "This batch has no log-probs: `rd.rescore(batch, MODEL)` adds one engine's.",
    ),
    (
        ONE,
        ("text", "tokenizer", "rollout", "old"),
        "This batch has the sampler's log-probs only: save both engines' with the"
        " token ids.",
    ),
    (
        ONE,
        ("ids",),
        "This batch has text without token ids: save the ids that the engine had,"
        " since text cannot be turned back into them.",
    ),
    (ONE, ("advantages",), "This batch has no `advantages`."),
]


@pytest.mark.parametrize(("batch", "what", "why"), LACKS)
def test_one_sentence_says_what_is_missing(
    batch: Batch, what: tuple[str, ...], why: str | None
) -> None:
    assert batch.lacks(*what) == why
