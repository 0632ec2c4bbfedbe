"""The agent that is committed gives the log-probs of the sample data again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.proof.engines.opening import open_engine, open_low_precision
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.hypotheses.sampling import TopP
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.weights import weight_hypotheses

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"


def scored(batch: rd.Batch, model: str) -> rd.Batch:
    return rd.rescore(batch, str(SAMPLE_DATA / model))


def mismatch(batch: rd.Batch, b: str) -> float:
    """Return the mean |diff| of the rescored log-probs."""
    diff = rd.token_frame(batch, a="rescored", b=b)["diff"]
    return float(diff.abs().mean())


@pytest.mark.parametrize("name", ["healthy", "stale"])
def test_the_model_gives_old_log_probs(name: str) -> None:
    batch = rd.load(SAMPLE_DATA / f"{name}.parquet")[::6]
    diff = rd.token_frame(scored(batch, "model"), a="rescored", b="old")["diff"]
    assert float(diff.abs().max()) < 1e-4


def test_the_older_model_gives_rollout_log_probs_of_stale_samples() -> None:
    batch = rd.load(SAMPLE_DATA / "stale.parquet")[4::16]
    assert {int(version) for version in batch.round_columns["weight_version"]} == {1544}
    # 0.003 nat is what vLLM in bfloat16 differs by.
    assert mismatch(scored(batch, "older_model"), "rollout") < 0.006
    assert mismatch(scored(batch, "model"), "rollout") > 0.02


def test_older_weights_and_a_truncated_distribution_are_both_proved() -> None:
    batch = rd.load(SAMPLE_DATA / "healthy.parquet")[:6]
    opened = open_engine(str(SAMPLE_DATA / "model"))
    scorer = Scorer(batch, opened, open_low_precision(opened))
    older = {"1544": str(SAMPLE_DATA / "older_model")}
    nucleus = Hypothesis(
        name="top_p", cause="truncated_sampling", says="", processor=TopP(0.9)
    )
    chain = (*weight_hypotheses(scorer, older)[:2], nucleus)
    rollout = batch.log_probs("rollout").clone()
    for sample in range(batch.num_samples):
        values = scorer.scores(chain, sample)
        assert values is not None
        at = scorer.samples[sample].targets - scorer.samples[sample].start
        drawn = np.where(np.isfinite(values), values, np.nan)  # none is drawn outside
        rollout[torch.from_numpy(at + int(batch.offsets[sample]))] = torch.from_numpy(
            drawn
        ).float()
    faulty = replace(batch, rollout_log_probs=rollout)
    proof = rd.prove(
        faulty,
        str(SAMPLE_DATA / "model"),
        hypotheses=["stale_weights", "truncated_sampling", "temperature"],
        checkpoints=older,
    )
    assert (proof.verdict, proof.side) == ("proved", "rollout")
    assert set(proof.causes) == {"stale_weights", "truncated_sampling"}
    # What `explore` shows is both changes together: no mismatch is left.
    assert proof.pair == ("weights_1544 + top_p", "rollout")
    left = rd.token_frame(proof.batch, a=proof.pair[0], b="rollout")["diff"].abs()
    assert float(left.median()) < 1e-4
    before = rd.token_frame(proof.batch, a="base", b="rollout")["diff"].abs()
    assert float(left.mean()) < 0.1 * float(before.mean())


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_trainer_on_older_weights_is_at_fault_not_the_sampler(noise: float) -> None:
    """The given model is that of the step, however noisy the engine that has it is."""
    batch = rd.load(SAMPLE_DATA / "healthy.parquet")[:8]
    older = scored(batch, "older_model").scores["rescored"]
    rollout = batch.log_probs("rollout").double()
    drawn = torch.randn(len(rollout), generator=torch.Generator().manual_seed(0))
    faulty = replace(
        batch,
        old_log_probs=torch.where(older.isfinite(), older, batch.log_probs("old")),
        rollout_log_probs=(rollout + noise * drawn * -rollout.expm1()).clamp(max=0),
    )
    proof = rd.prove(
        faulty,
        str(SAMPLE_DATA / "model"),
        hypotheses=["stale_weights"],
        checkpoints={"1544": str(SAMPLE_DATA / "older_model")},
    )
    assert (proof.verdict, proof.side) == ("proved", "old")
    assert proof.conclusions[0].says == ("the weights of 1544",)
