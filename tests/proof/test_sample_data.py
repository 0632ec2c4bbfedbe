"""The agent that is committed gives the log-probs of the sample data again."""

from __future__ import annotations

from pathlib import Path

import pytest

import rounddiag as rd

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
    assert {int(one) for one in batch.round_columns["weight_version"]} == {1544}
    # 0.003 nat is what vLLM in bfloat16 differs by.
    assert mismatch(scored(batch, "older_model"), "rollout") < 0.006
    assert mismatch(scored(batch, "model"), "rollout") > 0.02
