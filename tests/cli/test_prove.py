"""`rounddiag prove`: a tiny model, a file, and what is printed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import rounddiag as rd
from rounddiag.cli import main
from tests.proof import test_local
from tests.proof.test_local import make_batch

folder = test_local.folder  # the same fixture


@pytest.fixture(scope="module")
def file(folder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A batch whose sampler had a temperature of 0.8, and which names its weights."""
    batch = make_batch(folder, temperature=0.8)
    batch = replace(batch, step=7, meta={"facts": {"checkpoint": f"{folder}/{{step}}"}})
    path = tmp_path_factory.mktemp("batch") / "step_7.parquet"
    rd.save(batch, path)
    return str(path)


def test_it_prints_the_proof(
    file: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", file, "--model", folder]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("proved: the sampling engine (rollout): temperature.\n")
    assert "rollout: temperature 0.8. " in out
    assert f"rounddiag prove with {folder}: " in err


def test_hypotheses_are_names_or_causes(
    file: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["prove", file, "--model", folder, "--json"]
    assert main([*command, "--hypotheses", "rotary_bfloat16, packing_leak"]) == 0
    facts = json.loads(capsys.readouterr().out)
    names = {row["hypothesis"] for row in facts["hypotheses"]}
    causes = {row["cause"] for row in facts["hypotheses"]}
    assert "rotary_bfloat16" in names
    assert "packing_leak" in causes
    # Neither what was not named, nor the temperature that it is.
    assert not {"prompt_masked", "temperature"} & names
    assert (facts["verdict"], facts["side"]) == ("none_of_these", "rollout")
    assert main([*command, "--hypotheses", "packing_leek"]) != 0
    assert "Did you mean 'packing_leak'?" in capsys.readouterr().err


def test_the_checkpoint_of_the_step_is_in_the_printed_command(
    file: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", file])
    out = capsys.readouterr().out
    assert f" --model {folder}/7 --hypotheses " in out
