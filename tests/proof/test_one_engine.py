"""A batch with one engine's log-probs, or none, scored by the model of its step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.proof.engines.opening import open_engine
from rounddiag.proof.rescoring import rescore_with
from rounddiag.proof.scorer import Scorer
from tests.proof.test_prove import make_batch, other, score, without_system
from tests.proof.test_prove import sound as score_all


def sound() -> rd.Batch:
    return make_batch(score_all)


def exact(batch: rd.Batch) -> torch.Tensor:
    """The log-probs of `score` at what the model wrote, in float32."""
    assert batch.prompt_ids is not None
    rows = []
    for sample in range(len(batch)):
        begin, stop = batch.offsets[sample : sample + 2].tolist()
        prompt = batch.prompt_ids.reshape(len(batch), -1)[sample].tolist()
        ids = [*prompt, *batch.require_ids()[begin:stop].tolist()]
        rows += score(ids, [])[len(prompt) :]
    return torch.tensor(rows, dtype=torch.float64).float()


@pytest.mark.parametrize(
    ("missing", "filled"),
    [(["old"], "old"), (["rollout"], "rollout"), (["rollout", "old"], "old")],
)
def test_the_model_stands_for_the_engine_that_is_missing(
    missing: list[str], filled: str
) -> None:
    lost: dict[str, Any] = {f"{name}_log_probs": None for name in missing}
    batch = replace(sound(), **lost)
    rescored = rd.rescore(batch, score)
    written = batch.response_mask != 0
    assert torch.equal(rescored.log_probs(filled)[written], exact(batch)[written])
    assert not rescored.scores
    assert rescored.meta["rescored"] == filled
    assert str(rescored.meta[f"{filled}_log_probs_source"]).startswith(
        "scored again with"
    )
    (left,) = {"old", "rollout"} - {filled}
    assert (rescored.lacks(left) is None) == (left not in missing)


def test_a_second_call_adds_the_second_engine() -> None:
    batch = replace(sound(), rollout_log_probs=None, old_log_probs=None)
    both = rd.rescore(rd.rescore(batch, score), score)
    assert rd.diagnose(both).verdict == "identical"


def test_a_hypothesis_is_one_more_score_and_fills_nothing() -> None:
    rescored = rd.rescore(
        replace(sound(), old_log_probs=None), score, "first_message_removed"
    )
    assert [*rescored.scores] == ["first_message_removed"]
    assert rescored.old_log_probs is None


@pytest.mark.parametrize("first", [True, False])
def test_what_serves_is_judged_and_its_scorer_is_no_engine(first: bool) -> None:
    """Scored before or not: the proof is of the one engine that has served."""
    faulty = make_batch(without_system).log_probs("old")
    later = torch.arange(len(faulty)) % 68 >= 38
    values = torch.where(later, faulty, sound().log_probs("old"))
    for served, engine, wanted in (
        (sound().log_probs("rollout"), score, ("nothing_to_prove", None)),
        (values, score, ("proved", "prompt_mismatch")),
        (faulty, score, ("proved", "prompt_mismatch")),  # no token is sound
        (faulty, other, ("scorer_differs", None)),
        (sound().log_probs("rollout"), other, ("scorer_differs", None)),
    ):
        batch = replace(sound(), rollout_log_probs=served, old_log_probs=None)
        batch = rd.rescore(batch, engine) if first else batch
        proof = rd.prove(batch, engine)
        assert (proof.verdict, proof.cause) == wanted
        assert [*proof.base] == ["rollout"]
        is_alone = served is faulty and engine is score
        assert ("No token is reproduced without it" in proof.note) == is_alone


def test_what_was_scored_to_judge_a_batch_is_not_scored_again_to_prove_it() -> None:
    asked: list[tuple[int, ...]] = []

    def counted(ids: list[int], images: list[Any]) -> list[float]:
        asked.append(tuple(ids))
        return score(ids, images)

    faulty = make_batch(without_system).log_probs("old")
    batch = replace(sound(), rollout_log_probs=faulty, old_log_probs=None)
    scorer = Scorer(batch, open_engine(counted))
    both = rescore_with(scorer)
    assert len(asked) == len(batch)
    proof = rd.prove(both, scorer)
    assert (proof.verdict, proof.cause) == ("proved", "prompt_mismatch")
    assert max(Counter(asked).values()) == 1


def test_the_file_of_a_scored_batch_says_what_was_scored(tmp_path: Any) -> None:
    rescored = rd.rescore(replace(sound(), old_log_probs=None), score)
    rd.save(rescored, tmp_path / "scored.parquet")
    again = rd.load(tmp_path / "scored.parquet")
    assert again.meta["rescored"] == "old"
    np.testing.assert_array_equal(again.log_probs("old"), rescored.log_probs("old"))
