"""Numbers are fitted to the fault, also between those of the grid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses.numbered import NUMBERED
from rounddiag.proof.hypotheses.sampling import FITTED
from rounddiag.proof.scorer import Scorer

if TYPE_CHECKING:
    from rounddiag.proof.hypotheses.hypothesis import Hypothesis

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
BY_NAME: dict[str, Any] = {family.name: family for family in NUMBERED}
BY_NAME |= {family.name: family for family in FITTED}


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine.open(str(SAMPLE_DATA / "model"), dtype="float32")


@pytest.fixture(scope="module")
def batch() -> rd.Batch:
    """Samples with three pictures or more."""
    whole = rd.load(SAMPLE_DATA / "healthy.parquet")
    assert whole.images is not None
    long = [i for i, shots in enumerate(whole.images) if len(shots) >= 3]
    return whole[long[:6]]


def inject(
    batch: rd.Batch, engine: LocalEngine, hypothesis: Hypothesis, side: str
) -> rd.Batch:
    """Return the batch with the log-probs of one engine under a hypothesis."""
    scorer = Scorer(batch, engine)
    values = batch.log_probs(side).clone()
    for sample in range(batch.num_samples):
        scores = scorer.scores((hypothesis,), sample)
        if scores is None:
            continue
        trajectory = scorer.samples[sample]
        at = trajectory.targets - trajectory.start + int(batch.offsets[sample])
        values[torch.from_numpy(at)] = torch.from_numpy(
            np.where(np.isfinite(scores), scores, np.nan)
        ).float()
    return replace(batch, **{f"{side}_log_probs": values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "number", "says"),
    [
        ("first_prompt_tokens_removed", 21, "no first 21 tokens of the prompt"),
        ("prompt_cut_to", 37, "the last 37 tokens of the prompt only"),
        ("position_gap", 137, "positions of the response that are larger by 137"),
        ("observation_masked", 2, "observation 2 not attended to"),
        ("blurred_by", 3, "pictures blurred by 3 pixels"),
        (
            "percent_of_the_pixels",
            60,
            "pictures of 60 % of the pixels, with other numbers of image tokens",
        ),
        ("image_blank", 2, "no pixels of image 2, counted from 1"),
        ("images_exchanged", 1, "image 1, counted from 1, exchanged with the next one"),
        ("top_k", 7, "the 7 likeliest tokens only"),
    ],
)
def test_the_number_of_a_fault_is_found(
    batch: rd.Batch, engine: LocalEngine, name: str, number: int, says: str
) -> None:
    family: Any = BY_NAME[name]
    hypothesis = family.at(number)
    side = "rollout" if name == "top_k" else "old"
    proof = rd.prove(
        inject(batch, engine, hypothesis, side), engine, hypotheses=[name], samples=4
    )
    assert (proof.verdict, proof.side, proof.cause) == (
        "proved",
        side,
        hypothesis.cause,
    )
    assert proof.conclusions[0].says == (says,)
