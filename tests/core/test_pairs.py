"""Another pair of scores: what a batch of it is, and frames that say whose they are."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest
import torch

from rounddiag import Batch, round_frame, round_summary, sample_frame, token_frame
from rounddiag.core import rounds_of_tokens
from rounddiag.core.scores import check_pair, pair_of, select_scores
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import Pair
from tests.batches import hand_batch

CURRENT = Pair("current", "rollout")


def three_scores(**others: Any) -> Batch:
    scores = {
        name: torch.full((3, 6), float(x)) for name, x in (("current", -1), ("ref", -2))
    }
    return hand_batch(scores=scores, **others)


def test_the_standard_pair_is_the_batch_itself() -> None:
    batch = three_scores(meta={"checks": []})
    assert select_scores(batch, "old", "rollout") is batch
    assert pair_of(batch) == Pair()


def test_a_batch_of_another_pair_has_its_scores_in_place_of_the_standard_ones() -> None:
    batch = three_scores()
    found = select_scores(batch, "ref", "current")
    assert found.old_log_probs is batch.scores["ref"]
    assert found.rollout_log_probs is batch.scores["current"]
    assert found.meta == {"pair": ["ref", "current"]}
    assert pair_of(found) == Pair("ref", "current")
    assert pair_of(found[1]) == Pair("ref", "current")


def test_what_was_known_of_the_standard_pair_only_is_left_out() -> None:
    facts = {
        "checks": [{"name": "x", "status": "failed", "detail": ""}],
        "not_measurable": "both are the same",
        "old_log_probs_source": "a pass of its own",
        "source": "step.parquet",
    }
    batch = three_scores(meta=facts)
    assert select_scores(batch, "current", "rollout").meta == {
        "source": "step.parquet",
        "pair": ["current", "rollout"],
    }
    assert batch.meta == facts


def test_a_score_that_the_batch_lacks_is_an_error() -> None:
    message = (
        "expected one of the scores ['current', 'old', 'ref', 'rollout']; found 'new'."
        " Name a score that the batch has."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        select_scores(three_scores(), "new", "rollout")


def test_a_batch_of_a_pair_is_of_no_other() -> None:
    found = select_scores(three_scores(), "current", "rollout")
    assert select_scores(found, "old", "rollout") is found
    assert select_scores(found, "current", "rollout") is found
    message = (
        "expected a batch of the pair 'old', 'rollout', to choose `a` and `b`; found"
        " one of the pair 'current', 'rollout'. Choose them of the batch that it was"
        " made from."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        select_scores(found, "ref", "rollout")


@pytest.mark.parametrize("pair", [None, "ab", ["old"], [1, 2], {"a": "old", "b": "x"}])
def test_what_is_no_pair_is_the_standard_one(pair: object) -> None:
    assert pair_of(hand_batch(meta={"pair": pair})) == Pair()


@pytest.mark.parametrize(
    "build", [token_frame, round_frame, sample_frame, round_summary]
)
def test_every_frame_says_which_pair_it_is_of(build: Any) -> None:
    batch = three_scores()
    assert build(batch).attrs == {}
    assert build(batch, a="current").attrs == {"pair": ["current", "rollout"]}
    # The same numbers, whoever chose the pair.
    chosen = select_scores(batch, "current", "rollout")
    pd.testing.assert_frame_equal(build(chosen), build(batch, a="current"))
    assert pair_of(build(chosen)) == CURRENT


def test_frames_of_a_token_frame_are_of_its_pair() -> None:
    tokens = token_frame(three_scores(), a="current")
    assert pair_of(rounds_of_tokens(tokens)) == CURRENT
    assert pair_of(round_summary(tokens)) == CURRENT
    assert pair_of(round_summary(tokens, a="current")) == CURRENT


def test_both_log_probs_of_a_token_frame_are_of_its_pair() -> None:
    names = ["rollout_log_prob", "old_log_prob"]
    tokens = token_frame(three_scores(), names, a="ref", b="current")
    assert tokens["old_log_prob"].tolist() == [-2.0] * 8
    assert tokens["rollout_log_prob"].tolist() == [-1.0] * 8
    assert tokens["diff"].tolist() == [-1.0] * 8


def test_a_frame_of_another_pair_than_asked_for_is_an_error() -> None:
    tokens = token_frame(three_scores(), a="current")
    check_pair(tokens, "old", "rollout")
    check_pair(tokens, "current", "rollout")
    message = (
        "expected a Batch, to choose `a` and `b`; found a frame of the pair 'current',"
        " 'rollout'. Choose them in `rounddiag.token_frame(batch, a=..., b=...)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        check_pair(tokens, "ref", "rollout")
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        round_summary(tokens, b="ref")
