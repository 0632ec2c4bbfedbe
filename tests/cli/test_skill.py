"""`rounddiag skill`: the page for coding agents, and each command in it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import rounddiag as rd
from rounddiag.cli import main
from rounddiag.cli.options import build_parser
from rounddiag.cli.skill import read_skill

COMMANDS = re.findall(r"`(rounddiag [^`]+)`", read_skill())
ADDRESS = "task-04/2 / r3 / t2"
MODEL = Path("sample_data/model").resolve()
EXIT_CODES = {"check": {0, 1}}  # the batch is broken, the run is healthy
NEEDS_A_SERVER = "preflight"


@pytest.fixture(scope="module")
def stands_for(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a batch of four samples, and a run of its step."""
    folder = tmp_path_factory.mktemp("skill")
    batch = rd.load("sample_data/image_window.parquet")
    small = batch.where([group == "task-04" for group in batch.group_ids or ()])
    run = folder / "run"
    run.mkdir()
    rd.save(small, run / "step_00000001.parquet")
    rd.save(small, folder / "file.parquet")
    paths = {"FILE": folder / "file.parquet", "FOLDER": run, "MODEL": MODEL}
    return {**{name: str(path) for name, path in paths.items()}, "ADDRESS": ADDRESS}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_runs(
    command: str,
    stands_for: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, name, *words = shlex.split(command)
    words = [stands_for.get(word, word) for word in words]
    monkeypatch.chdir(tmp_path)
    if name == NEEDS_A_SERVER:
        build_parser().parse_args([name, *words])
        return
    assert main([name, *words]) in EXIT_CODES.get(name, {0})
    out, err = capsys.readouterr()
    assert out
    assert "Traceback" not in err


def test_the_page_is_printed_and_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skill"]) == 0
    assert capsys.readouterr().out.strip() == read_skill().strip()
    path = tmp_path / "skills" / "rounddiag" / "SKILL.md"
    for _ in range(2):  # the same page again is no error
        assert main(["skill", "--to", str(tmp_path / "skills")]) == 0
    assert path.read_text() == read_skill()


def test_another_page_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rounddiag" / "SKILL.md"
    path.parent.mkdir()
    path.write_text("mine")
    assert main(["skill", "--to", str(tmp_path)]) == 1
    assert path.read_text() == "mine"
    assert "SKILL.md: expected no file" in capsys.readouterr().err
