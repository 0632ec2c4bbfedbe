"""Rows that are steps, in every command: joined by `--sample-by`, else a first line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.cli import main
from rounddiag.cli.lab import prepare_notebook
from rounddiag.errors import RounddiagError
from rounddiag.proof.episodes import read_episodes

NOTE = "rows are steps of trajectories: `--sample-by traj_uid` joins them"
JOIN = ["--sample-by", "traj_uid"]
Capture = pytest.CaptureFixture[str]


def step_rows() -> rd.Batch:
    """Two trajectories of two steps, shuffled; prompts append."""
    prompts = [[1, 2, 5, 6, 3], [1, 2], [1, 4], [1, 4, 8, 3]]
    responses = [[7, 8], [5, 6], [8], [5]]
    rows = [torch.tensor(row) for row in responses]
    return rd.Batch.from_rows(
        response_ids=rows,
        response_mask=[torch.ones(len(row), dtype=torch.int64) for row in rows],
        rollout_log_probs=[torch.full((len(row),), -1.0) for row in rows],
        old_log_probs=[torch.full((len(row),), -2.0) for row in rows],
        prompt_ids=[torch.tensor(row) for row in prompts],
        sample_columns={
            "traj_uid": np.array(["a", "a", "b", "b"], dtype=object),
            "step_idx": np.array([1, 0, 0, 1]),
        },
    )


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rd.save(step_rows(), tmp_path / "steps.parquet")
    return tmp_path / "steps.parquet"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for step in (1, 2):
        batch = replace(step_rows(), step=step)
        rd.save(batch, tmp_path / "run" / f"step_{step}.parquet")
    return tmp_path / "run"


COMMANDS: dict[str, list[str]] = {
    "summary": [],
    "check": [],
    "show": ["0"],
    "report": [],
    "ingest": ["-o", "ingested"],
}
OF_RUNS: dict[str, list[str]] = {**COMMANDS, "check --all": [], "watch": ["--once"]}


def first_line(command: str, path: Path, more: list[str], capsys: Capture) -> str:
    name, *flags = command.split()
    main([name, str(path), *more, *flags])
    return capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_line_on_a_file_says_how_to_join(
    command: str, file: Path, capsys: Capture
) -> None:
    more = COMMANDS[command]
    assert first_line(command, file, more, capsys) == NOTE
    assert first_line(command, file, [*more, *JOIN], capsys) != NOTE


@pytest.mark.parametrize("command", OF_RUNS)
def test_the_first_line_on_a_run_says_how_to_join(
    command: str, folder: Path, capsys: Capture
) -> None:
    more = OF_RUNS[command]
    assert first_line(command, folder, more, capsys) == NOTE
    assert first_line(command, folder, [*more, *JOIN], capsys) != NOTE


@pytest.mark.parametrize("path", ["file", "folder"])
def test_the_summary_of_joined_rows_has_their_rounds(
    path: str, request: pytest.FixtureRequest, capsys: Capture
) -> None:
    """4 rows are 2 samples of 2 rounds, in each of the steps of a run."""
    source = request.getfixturevalue(path)
    assert main(["summary", str(source), *JOIN]) == 0
    out = capsys.readouterr().out
    num_steps = 1 if path == "file" else 2
    assert f"{2 * num_steps} samples, " in out


def test_json_stays_one_object(file: Path, capsys: Capture) -> None:
    main(["check", str(file), "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["file"] == str(file)
    assert err == f"{NOTE}\n"


def test_a_place_in_joined_rows(file: Path, capsys: Capture) -> None:
    """Trajectory a wrote 5 6, then 7 8, which is the first row of the file."""
    assert main(["show", str(file), "a / r1", *JOIN, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["rounds"]
    assert [token["token_id"] for token in shown["tokens"]] == [7, 8]


def test_several_columns_and_the_order_of_the_file(file: Path, capsys: Capture) -> None:
    """In the order of the file, 5 6 comes second."""
    options = ["--sample-by", "traj_uid, traj_uid", "--order-by", "row"]
    assert main(["show", str(file), "a_a / r1", *options, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["rounds"]
    assert [token["token_id"] for token in shown["tokens"]] == [5, 6]


def test_a_proof_is_of_joined_rows(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    sizes = []

    def prove(batch: rd.Batch, *_: object, **__: object) -> Any:
        sizes.append(len(batch))
        return SimpleNamespace()

    monkeypatch.setattr("rounddiag.proof.prove", prove)
    words = ["prove", str(file), "--model", "m"]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[0] == NOTE
    assert main([*words, *JOIN]) == 0
    assert sizes == [4, 2]


def test_episodes_of_a_preflight_are_joined_rows(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[rd.Batch] = []

    def run_preflight(*_: object, episodes: rd.Batch, **__: object) -> Any:
        given.append(episodes)
        return "", False

    monkeypatch.setattr("rounddiag.cli.preflight.run_preflight", run_preflight)
    words = ["preflight", "m", "--server", "http://a", "--episodes", str(file)]
    main(words)
    main([*words, *JOIN])
    assert [*map(len, given)] == [4, 2]
    with pytest.raises(RounddiagError, match=r"load\(..., sample_by='traj_uid'\)"):
        read_episodes(given[0], cast("Any", None))
    assert main(["preflight", "m", "--server", "http://a", *JOIN]) == 2


def test_ingested_rows_are_joined_once(folder: Path, capsys: Capture) -> None:
    assert main(["ingest", str(folder), "-o", "joined", *JOIN]) == 0
    capsys.readouterr()
    run = rd.open_run("joined")
    assert [len(run.batch(step)) for step in run.steps] == [2, 2]
    assert first_line("summary", Path("joined"), [], capsys) != NOTE


def test_tables_of_a_run_are_of_joined_rows_and_have_an_index_of_their_own(
    folder: Path,
) -> None:
    """Round 0 of 2 samples, and round 1 of them; unjoined, round 0 of 4 rows."""
    plain, joined = rd.open_run(folder), rd.open_run(folder, sample_by="traj_uid")
    for _ in range(2):
        assert plain.summary()["num_samples"].tolist() == [4, 4]
        assert joined.summary()["num_samples"].tolist() == [2, 2, 2, 2]
    assert joined.summary()["round"].tolist() == [0, 1, 0, 1]
    assert joined.step_summary()["num_samples"].tolist() == [2, 2]
    assert joined.sample(1, 0).num_rounds == 2
    assert "rounds" not in joined.batch(1).meta


def test_rows_that_were_ingested_unjoined_have_known_rounds_once_joined(
    file: Path,
) -> None:
    """The step file keeps the note that rounds are unknown, until rows are joined."""
    assert main(["ingest", str(file), "-o", "rows"]) == 0
    assert rd.open_run("rows").batch(0).meta["rounds"] == "unknown"
    joined = rd.open_run("rows", sample_by="traj_uid").batch(0)
    assert "rounds" not in joined.meta
    assert joined.rounds.round.tolist() == [0, 1, 0, 1]


def test_an_order_alone_is_refused(folder: Path, file: Path) -> None:
    with pytest.raises(RounddiagError, match="together with `sample_by`"):
        rd.open_run(folder, order_by="step_idx")
    with pytest.raises(RounddiagError, match="together with `sample_by`"):
        prepare_notebook(file, file.parent, order_by="step_idx")


@pytest.mark.parametrize("path", ["file", "folder"])
@pytest.mark.parametrize("names", [["traj_uid"], ["traj_uid", "step_idx"]])
def test_the_notebook_joins_the_rows(
    path: str, names: list[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source = request.getfixturevalue(path)
    notebook = prepare_notebook(source, tmp_path, sample_by=names, order_by="step_idx")
    cells = json.loads(notebook.read_text())["cells"]
    code = next(cell["source"] for cell in cells if cell["cell_type"] == "code")
    called: list[tuple[Any, Any]] = []

    def open_it(_: str, **options: Any) -> None:
        called.append((options["sample_by"], options["order_by"]))

    stub = SimpleNamespace(load=open_it, open_run=open_it, explore=lambda _: None)
    exec(code.replace("import rounddiag as rd", ""), {"rd": stub})  # noqa: S102 ours
    assert called == [(names[0] if len(names) == 1 else names, "step_idx")]
