"""Folders of steps on the command line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import rounddiag as rd
from rounddiag.cli import main
from rounddiag.cli.lab import prepare_notebook
from rounddiag.errors import LoadError
from rounddiag.loaders.untrusted import guard
from rounddiag.runs import Run
from tests.fuzz.forked import run_forked
from tests.runs.step_folders import scaled_batch, small_dump, write_steps

Capture = pytest.CaptureFixture[str]
BREAK = "from step 12: rounds 0 to 1, round 1 most: 0.165 to 1.65 nat"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of 20 steps, whose mismatch is ten times as large from step 12 on."""
    factors = {step: 0.1 * (1 + step % 3 / 10) for step in range(1, 21)}
    factors |= {step: 10 * factors[step] for step in range(12, 21)}
    return write_steps(tmp_path / "run", factors)


def test_the_summary_of_a_run(folder: Path, capsys: Capture) -> None:
    assert main(["summary", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith("(20 of 20 steps diagnosed)")
    assert f"\n  {BREAK}\n" in out
    assert "\n20 steps, from 1 to 20; 60 samples, 160 generated tokens\n" in out
    table = re.findall(
        r"^ +(\d) +([\d.]+) +([\d.]+) +(\d+) +([\d.]+)$", out, re.MULTILINE
    )
    assert [(row[0], row[3]) for row in table] == [("0", "14"), ("1", "14")]
    assert float(table[1][2]) == pytest.approx(10 * float(table[1][1]), rel=0.2)


def test_a_folder_of_one_step_is_still_a_batch(tmp_path: Path, capsys: Capture) -> None:
    write_steps(tmp_path, {3: 1})
    assert main(["summary", str(tmp_path)]) == 0
    assert "\n3 samples, 5 rounds, 8 generated tokens\n" in capsys.readouterr().out


def test_trajectories_are_one_batch_where_the_first_is_damaged(
    tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree("sample_data/osworld/chrome", folder)
    (folder / "bookmark-bar" / "traj.jsonl").write_text("")
    assert main(["summary", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "\n2 samples, " in out
    assert "not opened: bookmark-bar/traj.jsonl: expected a saved batch" in out


def test_an_empty_path_is_not_this_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(folder)
    assert main(["summary", ""]) == 1
    assert "'': expected a file, a folder or a glob" in capsys.readouterr().err
    with pytest.raises(LoadError, match="expected a path; found an empty text"):
        rd.load("")


def write_broken(folder: Path, *steps: int) -> None:
    for step in steps:
        (folder / f"step_{step}.parquet").write_bytes(b"PAR1")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("command", ["summary", "report"])
def test_broken_files_of_a_run_are_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, command: str
) -> None:
    monkeypatch.chdir(folder.parent)
    write_broken(folder, *range(3, 10))
    assert main([command, "run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line for line in lines if re.match(r"step \d cannot be read: ", line)]
    assert [line.split()[1] for line in listed] == ["3", "4", "5", "6", "7"]
    assert "found ArrowInvalid: Parquet" in listed[0]
    assert lines[-1] == "nor can 2 other steps"
    if command == "report":
        page = Path("run.html").read_text(encoding="utf-8")
        assert page.count("step_9.parquet: expected a whole Parquet file") == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("command", ["summary", "report"])
def test_a_run_of_broken_files_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_broken(tmp_path, 1, 2)
    assert main([command, str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"rounddiag: {tmp_path}/step_1.parquet: expected a whole")
    assert error.count("\n") == 1


def test_a_run_without_tokens_says_so(tmp_path: Path, capsys: Capture) -> None:
    for step in (1, 2):
        rd.save(
            scaled_batch(step).where([False] * 3), tmp_path / f"step_{step}.parquet"
        )
    assert main(["summary", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("\n\nno step has a generated token\n")


def test_the_report_of_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["report", "run"]) == 0
    assert capsys.readouterr().out.startswith("wrote run.html (")
    page = Path("run.html").read_text(encoding="utf-8")
    assert "<h1>run</h1>" in page
    assert f"<li>{BREAK}</li>" in page
    assert "<h2>Before and at step 12</h2>" in page
    assert page.count('class="plot"') == 3  # the run, both steps, the finding


def test_the_notebook_of_a_run_runs(folder: Path, tmp_path: Path) -> None:
    notebook = prepare_notebook(folder, tmp_path)
    assert notebook == tmp_path / "rounddiag_notebooks" / "run.ipynb"
    cells = json.loads(notebook.read_bytes())["cells"]
    assert cells[0]["source"].startswith("# When did the two engines")
    names: dict[str, object] = {}
    for cell in cells[1:-1]:
        exec(cell["source"], names)  # noqa: S102 our own cells
    assert isinstance(names["run"], Run)
    assert prepare_notebook(folder, tmp_path) == notebook


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("command", ["summary", "check", "report"])
def test_a_run_from_a_stranger_is_not_opened(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A run reads its files in this process; one step is read in a child."""
    monkeypatch.chdir(folder.parent)
    for name in ("rounddiag.runs.open_run", "rounddiag.runs.step_tables.load_step"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("opened without guard"))
    assert main([command, "run", "--untrusted"]) == (2 if command == "check" else 1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"rounddiag: {folder}: expected the files of one step; found")
    assert "20 batches: step_1.parquet, step_2.parquet, " in err
    assert not Path("run.html").exists()


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("address", ["s3://bucket/run", "memory://run"])
def test_a_url_from_a_stranger_is_not_opened(address: str, capsys: Capture) -> None:
    assert main(["summary", address, "--untrusted"]) == 1
    assert "expected a local path; found a URL" in capsys.readouterr().err


def test_one_step_from_a_stranger_is_read_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    children = []

    def run_child(*arguments: Any) -> tuple[int, str]:
        children.append(arguments)
        return run_forked(*arguments)

    monkeypatch.setattr(guard, "run_child", run_child)
    write_steps(tmp_path, {3: 1})
    assert main(["summary", str(tmp_path), "--untrusted"]) == 0
    assert "\n3 samples, 5 rounds, 8 generated tokens\n" in capsys.readouterr().out
    assert len(children) == 1


def test_ingest_lists_what_failed(tmp_path: Path, capsys: Capture) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    torch.save(small_dump(1), raw / "global_step_1.pt")
    (raw / "global_step_2.pt").write_bytes(b"PK\x03\x04 cut off")
    command = ["ingest", str(raw), "-o", str(tmp_path / "out"), "--images", "none"]
    assert main(command) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("1 step written, 0 unchanged, 1 failed")
    assert out[1].startswith(f"failed: {raw / 'global_step_2.pt'}: ")
    (raw / "global_step_2.pt").unlink()
    assert main(command) == 0
    assert capsys.readouterr().out.endswith("0 steps written, 1 unchanged, 0 failed\n")
