"""`rounddiag show FILE ADDRESS`: the tokens of a place, as text and as JSON."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch

import rounddiag as rd
from rounddiag.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WINDOW = "sample_data/image_window.parquet"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["show", *words]) == 0
    return capsys.readouterr().out


def found(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(shown(capsys, *words, "--json"))


def test_the_address_that_check_prints_leads_to_its_tokens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", WINDOW, "--json"]) == 1
    address = json.loads(capsys.readouterr().out)["findings"][0]["address"]
    assert address == "step 1584 / task-04/2 / r3 / t2"
    place = found(capsys, WINDOW, address)
    assert place["address"] == address
    (shown,) = place["rounds"]
    frame = rd.token_frame(
        rd.load(WINDOW), ["old_log_prob", "rollout_log_prob", "text", "role"]
    )
    own = frame[(frame["sample"] == place["sample"]) & (frame["round"] == 3)]
    assert own["diff"].abs().to_numpy().argmax() == 2
    assert shown["num_tokens"] == len(own)
    assert shown["mean_abs_diff"] == pytest.approx(own["diff"].abs().mean())
    assert shown["text"] == "".join(own["text"])
    for name in ("old_log_prob", "rollout_log_prob", "diff", "text", "role"):
        assert [token[name] for token in shown["tokens"]] == own[name].tolist()


def test_a_token_is_marked_in_its_round(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, WINDOW, "task-08/1 / r3 / t7").splitlines()
    assert lines[0] == "step 1584 / task-08/1 / r3 / t7 (sample 33, 1 round)"
    assert lines[2:4] == [
        "r3: 16 tokens, mean |diff| 0.5122 nat",
        "action: click(52, 80)",
    ]
    names = "token diff old_log_prob rollout_log_prob role text"
    assert lines[4].split() == names.split()
    marked = [line for line in lines if line.startswith(" > ")]
    assert marked == [line for line in lines if "t7" in line and "syntax" in line]
    assert marked[0].split() == [
        ">",
        "t7",
        "-0.0006",
        "-0.0012",
        "-0.0006",
        "syntax",
        "'('",
    ]
    assert len(lines) == 5 + 16


def test_a_sample_is_shown_round_by_round(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = found(capsys, WINDOW, "33")["rounds"]
    assert [entry["round"] for entry in rounds] == [0, 1, 2, 3, 4, 5]
    assert rounds[3]["action"] == "click(52, 80)"
    assert "tokens" not in rounds[3]
    text = shown(capsys, WINDOW, "33")
    assert 'r1: 11 tokens, mean |diff| 0.001298 nat\naction: type("Emmy")\n' in text


@pytest.mark.parametrize("engine", ["old", "rollout"])
def test_of_one_engine_its_number_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, engine: str
) -> None:
    scores: dict[str, Any] = {f"{engine}_log_probs": torch.tensor([[-1.0, -0.5, -2.0]])}
    batch = rd.Batch.from_padded(
        response_ids=torch.tensor([[5, 6, 7]]),
        response_mask=torch.tensor([[1, 0, 1]]),
        **scores,
    )
    rd.save(batch, tmp_path / "one.parquet")
    (printed,) = found(capsys, str(tmp_path / "one.parquet"), "0 / r1")["rounds"]
    token = {"token": 0, "position": 2, "token_id": 7, f"{engine}_log_prob": -2.0}
    assert printed["tokens"] == [token]
    assert printed["mean_abs_diff"] is None
    assert "-2.0000" in shown(capsys, str(tmp_path / "one.parquet"), "0 / r1")


def steps(folder: Path, wanted: Sequence[int]) -> str:
    for step in wanted:
        shutil.copy(f"sample_data/run/step_{step}.parquet", folder)
    return str(folder)


def test_of_a_run_the_step_is_that_of_the_address(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = steps(tmp_path, (230, 240))
    first = found(capsys, folder, "step 230 / sample 0 / r0")["address"]
    assert first.startswith("step 230 / ")
    assert found(capsys, folder, "0 / r0")["address"].startswith("step 240 / ")
