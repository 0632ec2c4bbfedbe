"""The figure of a proof, the explorer on it, and the calls that findings name."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.errors import FrameError
from rounddiag.findings.causes import PROVABLE
from rounddiag.proof import Proof
from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.hypotheses.choices import STRUCTURED
from rounddiag.proof.hypotheses.sampling import FITTED
from tests.figures.plots import shapes, words
from tests.proof.fake_server import make_batch, score
from tests.proof.test_servers import without_system

OF_COLUMNS = {
    *("shifted_log_probs", "swapped_rows", "filled_log_probs", "low_precision"),
    *("stale_weights", "mixed_weights", "stale_cache", "lora_mismatch"),
}


def function(ids: list[int], images: list[Any]) -> Any:
    del images
    return score(ids)


@pytest.fixture(scope="module")
def proof() -> Proof:
    return rd.prove(make_batch(without_system, pictures=False), function)


def test_the_proved_hypothesis_is_a_diamond_in_the_noise(proof: Proof) -> None:
    figure = rd.plot_proof(proof)
    _, before, after = figure.data
    assert after.y[0] == "old: first_message_removed"
    assert after.marker.symbol[0] == "diamond"
    assert set(after.marker.symbol[1:]) == {"circle"}
    assert after.y[-1] == "rollout: base"
    (shaded,) = shapes(figure)
    assert after.x[0] < shaded.x1 < before.x[0]
    best = proof.frame[proof.frame["is_proved"]].iloc[0]
    assert before.x[0] == pytest.approx(best["residual_to_noise_before"])
    assert "proved: the training engine" in words(figure)
    assert after.marker.opacity == 1  # the colour of the key
    assert f'<span style="color:{after.marker.color[0]}">◆</span>' in words(figure)


def test_something_else_is_an_error() -> None:
    with pytest.raises(FrameError, match="found a str"):
        rd.plot_proof("proof")  # type: ignore[arg-type]


def test_the_explorer_compares_the_hypothesis_with_the_engine(proof: Proof) -> None:
    with rd.explore(proof) as explorer:
        assert explorer.state["a"] == "first_message_removed"
        assert explorer.state["b"] == "old"
        explorer.state = {"a": "base"}
    frame = rd.token_frame(proof.batch, a="first_message_removed", b="old")
    assert float(np.abs(frame["diff"]).max()) < 0.02


def test_findings_name_the_call_that_proves_them() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    finding: Any = rd.diagnose(batch).findings[0]
    assert finding.cause == "unknown"
    assert "image_window" in [row.cause for row in finding.candidates]
    families = ["ids", "context", "positions"]
    assert finding.prove_call == f"rd.prove(batch, model, hypotheses={families})"
    assert finding.prove_command == (
        "rounddiag prove sample_data/image_window.parquet --model MODEL"
        " --hypotheses ids,context,positions"
    )
    assert f"prove: {finding.prove_command}" in repr(finding)
    diagnosis = rd.diagnose(batch)
    assert finding.prove_command in repr(diagnosis)
    assert escape(finding.prove_call) in diagnosis._repr_html_()
    assert "Prove it" not in diagnosis.text
    moved = replace(batch, meta={**batch.meta, "source": "no such file"})
    finding = rd.diagnose(moved).findings[0]
    assert finding.prove_command == ""
    assert f"prove: {finding.prove_call}" in repr(finding)


def test_provable_causes_are_those_of_hypotheses() -> None:
    registered = {hypothesis.cause for hypothesis in all_registered()}
    fitted = {family.cause for family in FITTED}
    assert registered | fitted | OF_COLUMNS | {STRUCTURED} == PROVABLE
