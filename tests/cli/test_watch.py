"""`rounddiag watch RUN`, and `rounddiag check` of a run."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rounddiag as rd
from rounddiag.cli import main
from rounddiag.runs import Run, open_run
from rounddiag.runs.folder import RunFolder
from tests.runs.step_folders import write_steps

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sound steps and one that is broken, with another engine from step 20 on."""
    path = tmp_path_factory.mktemp("run")
    names = {10: "healthy", 20: "healthy", 30: "image_window"}
    for step, name in names.items():
        batch = rd.load(f"sample_data/{name}.parquet")
        facts = {"kind": "vlm", "vllm": "0.31" if step < 20 else "0.32"}
        meta = {**batch.meta, "facts": facts}
        batch = replace(batch, step=step, meta=meta, images=None, tokenizer=None)
        rd.save(batch, path / f"step_{step}.parquet")
    return path


def test_a_line_for_each_step_and_the_exit_code(folder: Path, capsys: Capture) -> None:
    assert main(["watch", str(folder), "--once"]) == 1
    lines = capsys.readouterr().out.splitlines()
    *lines, finding = lines
    assert [line.split()[:3] for line in lines] == [
        ["step", "10", "healthy"],
        ["step", "20", "vllm"],
        ["step", "20", "healthy"],
        ["step", "30", "broken"],
    ]
    assert lines[1] == "step     20  vllm changes from 0.31 to 0.32"
    assert "from round 2 on" in lines[3]
    assert finding.startswith("             Cause not known; possible: ")


def test_json_lines(folder: Path, capsys: Capture) -> None:
    command = ["check", str(folder), "--last", "2", "--json", "--fail-on", "broken"]
    assert main(command) == 1
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["step"], first["verdict"], first["failed"]) == (20, "healthy", False)
    assert first["events"] == ["vllm changes from 0.31 to 0.32"]
    assert (last["step"], last["verdict"], last["failed"]) == (30, "broken", True)
    assert (last["causes"], last["updates"]) == ([], [])
    (place,) = last["places"]
    assert "round 2 on" in place
    mean = rd.open_run(folder).step_summary()["mean_abs_diff"].iloc[-1]
    assert last["mean_abs_diff"] == pytest.approx(mean)


def test_check_of_a_run_judges_the_newest_step(folder: Path, capsys: Capture) -> None:
    assert main(["check", str(folder)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("broken: ")
    assert main(["check", str(folder), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["file"] == f"{folder}, step 30"


@pytest.mark.parametrize("last", ["0", "-1", "x"])
def test_a_number_of_steps_that_is_none(
    last: str, folder: Path, capsys: Capture
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", str(folder), "--last", last])
    assert "expected a number from 1 on" in capsys.readouterr().err


def test_a_step_that_cannot_be_read_is_a_line_and_exit_code_2(
    tmp_path: Path, capsys: Capture
) -> None:
    write_steps(tmp_path, {1: 0.01})
    (tmp_path / "step_2.parquet").write_bytes(b"PAR1")
    assert main(["watch", str(tmp_path), "--once"]) == 2
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("step      1  ")
    assert second.startswith("step      2  cannot be read: ")


def test_it_waits_for_the_first_step_and_ends_at_the_first_that_fails(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    run, codes = tmp_path / "run", []
    run.mkdir()
    command = ["watch", str(run), "--every", "0.02"]
    watch = threading.Thread(target=lambda: codes.append(main(command)))
    watch.start()
    for step in (10, 30):
        data = (folder / f"step_{step}.parquet").read_bytes()
        (run / "partial").write_bytes(data)
        (run / "partial").rename(run / f"step_{step}.parquet")
    watch.join(timeout=60)
    assert codes == [1]
    lines = capsys.readouterr().out.splitlines()
    judged = [line.split()[1:3] for line in lines if line.startswith("step ")]
    assert judged == [["10", "healthy"], ["30", "vllm"], ["30", "broken"]]


def test_a_step_may_be_written_while_the_run_is_opened(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()

    def open_late(path: str, **options: Any) -> Run:
        try:
            return open_run(path, **options)
        finally:  # the first step comes when the folder has been listed
            shutil.copy(folder / "step_30.parquet", run)

    monkeypatch.setattr("rounddiag.cli.watch.open_run", open_late)
    assert main(["watch", str(run), "--every", "0.02"]) == 1


def test_a_folder_that_is_away_is_waited_for(
    folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes as its last step is to be judged, and comes back while it is waited for.

    The first step is deleted meanwhile, as where only the newest are kept.
    """
    path, away = tmp_path / "run", tmp_path / "away"
    shutil.copytree(folder, path)
    diagnose = Run.diagnose
    looks: list[bool] = []

    def leave(run: Run, steps: list[int]) -> object:
        if steps[-1] == 30 and not looks:
            (path / "step_10.parquet").unlink()
            path.rename(away)
        return diagnose(run, steps)

    def look(_: RunFolder) -> bool:
        looks.append(path.exists())
        if len(looks) == 3:
            away.rename(path)
        return not path.exists()

    monkeypatch.setattr(Run, "diagnose", leave)
    monkeypatch.setattr(RunFolder, "is_away", property(look))
    assert main(["watch", str(path), "--every", "0.01"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines[:-1]] == [
        ["10", "healthy"],
        ["20", "vllm"],
        ["20", "healthy"],
        ["30", "broken"],
    ]
    assert looks == [False, False, False]
