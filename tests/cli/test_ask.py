"""`rounddiag ask`: a tiny model, a file, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rounddiag as rd
from rounddiag.cli import main
from tests.proof import test_local
from tests.proof.test_local import make_batch

folder = test_local.folder  # the same fixture


def test_it_prints_the_answer_and_writes_it(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, kept = tmp_path / "batch.parquet", tmp_path / "answer.json"
    rd.save(make_batch(folder), file)
    words = ["ask", str(file), "--model", folder, "--at", "0 / r0 / t3", "--at", "1"]
    assert main([*words, "-o", str(kept)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("sample 0 / r0: the model would write ")
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["file"], facts["model"]) == (str(file), folder)
    assert facts["text"].split() == text.split()
    places = {(row["sample"], row["token"]) for row in facts["alternatives"]}
    assert places == {(0, 3), *((1, token) for token in range(50))}
    assert facts["sight"] == facts["tiles"] == []
    again = rd.load_answer(kept, rd.load(file))
    assert len(again.alternatives) == len(facts["alternatives"])
    assert main([*words[:5], "0 / r9"]) == 1
    assert "expected a round of" in capsys.readouterr().err
    assert main([*words, "-o", str(tmp_path / "new" / "answer.json")]) == 0
    rd.load_answer(tmp_path / "new" / "answer.json")


@pytest.mark.parametrize("command", ["ask", "prove"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "batch.parquet"
    file.write_bytes(b"PAR1 damaged")
    words = [command, str(file), "-o", str(tmp_path / "a" / "b" / "c.json")]
    assert main([*words, "--model", str(tmp_path)]) == 1
    assert f"found no folder {tmp_path / 'a'}" in capsys.readouterr().err


def test_what_a_batch_lacks_is_said_of_its_file(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("ask", "prove"):
        assert main([command, "sample_data/osworld", "--model", folder]) == 1
        err = capsys.readouterr().err
        assert err.startswith("rounddiag: sample_data/osworld: This batch has")
