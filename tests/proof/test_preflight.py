"""A preflight against the sample model behind a stand-in of vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import rounddiag as rd
from rounddiag.cli import main
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.flight import SampledPair
from tests.proof.fake_server import serving
from tests.proof.model_server import MODEL, ModelServer


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine.open(MODEL, dtype="bfloat16")


@pytest.fixture(scope="module")
def sound(engine: LocalEngine) -> rd.Preflight:
    with serving(ModelServer(engine=engine)) as server:
        return rd.preflight(MODEL, server.url)


def test_a_sound_server_passes(sound: rd.Preflight) -> None:
    assert sound.passed
    assert sound.failed == ()
    assert set(sound.frame["result"]) == {"passes"}
    assert [*sound.frame] == ["check", "result", "value", "limit", "where", "why"]


def test_the_batch_has_the_ids_that_the_server_read(sound: rd.Preflight) -> None:
    """Scoring it again gives what is in it, and pictures lie at their tokens."""
    batch = sound.batch
    assert batch.num_samples == 4
    assert batch.sample_ids == ("small", "large", "tall", "several")
    again = rd.rescore(batch, MODEL)
    pair = SampledPair.of_batch(again, "rescored")
    assert torch.allclose(
        torch.from_numpy(pair.other),
        torch.from_numpy(SampledPair.of_batch(again, "old").other),
        atol=1e-5,
    )
    assert batch.images is not None
    for sample, shots in enumerate(batch.images):
        begin = int(batch.offsets[sample])
        assert batch.prompt_ids is not None
        assert batch.prompt_offsets is not None
        stop = int(batch.prompt_offsets[sample + 1])
        for shot in shots:
            assert shot.position is not None
            ids, at = (
                (batch.prompt_ids, stop + shot.position)
                if shot.position < 0
                else (batch.require_ids(), begin + shot.position)
            )
            assert int(ids[at]) == 5
            assert int(ids[at - 1]) == 3  # where a picture opens


def test_the_command_prints_a_line_a_check(
    engine: LocalEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "episodes.parquet"
    with serving(ModelServer(engine=engine)) as server:
        words = ["preflight", MODEL, "--server", server.url, "--json", "-o", str(file)]
        code = main(words)
        host = server.url.removeprefix("http://")
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["passed"]
    assert found["verdict"] == "healthy"
    assert host in found["server"]
    assert [row["check"] for row in found["checks"]][:3] == [
        "ids",
        "images",
        "log-probs",
    ]
    saved = rd.load(file)
    assert saved.num_samples == 4
    assert rd.diagnose(saved).verdict == "healthy"


def test_no_server_is_exit_code_two(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["preflight", MODEL, "--server", "http://127.0.0.1:9"])
    assert code == 2
    assert "127.0.0.1:9" in capsys.readouterr().err
