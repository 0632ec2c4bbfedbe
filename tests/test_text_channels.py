"""Text of a file that acts: on a terminal, in HTML of a notebook, in a notebook."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rounddiag import Batch, check, diagnose, token_text
from rounddiag.cli import main
from rounddiag.cli.lab import prepare_notebook
from rounddiag.errors import LoadError
from rounddiag.loaders import load, save
from tests.batches import hand_batch
from tests.runs.step_folders import small_dump

ACTS = "$\\href{https://attacker.invalid}{x}$\x1b[31m\u202e`![](//a)`"
HTML: dict[str, Callable[[Batch], str]] = {
    "batch": lambda batch: batch._repr_html_(),
    "checks": lambda batch: check(batch)._repr_html_(),
    "diagnosis": lambda batch: diagnose(batch)._repr_html_(),
    "text": lambda batch: token_text(batch, sample=0)._repr_html_(),
}


@pytest.mark.parametrize("name", HTML)
def test_html_is_not_typeset(name: str) -> None:
    batch = hand_batch(meta={"source": ACTS}, tokenizer=lambda ids: ACTS * len(ids))
    root = HTML[name](batch).partition(">")[0]
    assert "mathjax_ignore" in root


def test_errors_command_no_terminal(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        load(tmp_path / ACTS.replace("/", ""))
    assert str(caught.value).isprintable()


def test_a_terminal_gets_printable_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", ACTS]) == 1
    assert all(line.isprintable() for line in capsys.readouterr().err.splitlines())


def test_a_notebook_of_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"a\xff`![](x)`.pkl")
    file.touch()
    notebook = prepare_notebook(file, tmp_path, untrusted=True)
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    assert notebook.name == "a_`![](x)`.ipynb"
    assert [cell["cell_type"] for cell in cells] == ["code"]  # in markdown it would act
    assert f"rd.load({str(file)!r}, untrusted=True)" in "".join(cells[0]["source"])
    trusting = prepare_notebook(file, tmp_path)
    assert prepare_notebook(file, tmp_path) == trusting


def test_lone_surrogates_are_shown_escaped() -> None:
    batch = replace(hand_batch(), meta={"\ud800": "\ud800"})
    assert "\\ud800" in batch._repr_html_().encode().decode()


def hostile_batch() -> Batch:
    num = 3
    return hand_batch(
        meta={"source": ACTS, ACTS: ACTS},
        tokenizer=lambda ids: ACTS * len(ids),
        sample_ids=tuple(f"{ACTS}{i}" for i in range(num)),
        group_ids=(ACTS,) * num,
        sample_columns={ACTS: np.array([ACTS] * num)},
    )


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of names and files that act: a batch, a run, what is damaged."""
    name = ACTS.replace("/", "")
    folder = tmp_path_factory.mktemp("theirs") / name
    run = folder / "run" / name
    run.mkdir(parents=True)
    save(hostile_batch(), folder / f"{name}.parquet")
    for step in range(2):
        batch = replace(hostile_batch(), step=step)
        save(batch, run / f"step_{step}.parquet")
    (run / "step_2.parquet").write_bytes(b"PAR1 cut off")
    bad = b"\x80\x02c\x1b[31mos\nsystem\n."
    (folder / f"{name}.pkl").write_bytes(bad)
    (folder / "raw").mkdir()
    torch.save(dict.fromkeys(["responses", ACTS], ACTS), folder / "raw" / f"{name}.pt")
    torch.save(small_dump(1), folder / "raw" / f"{name}_2.pt")
    return folder


COMMANDS = {
    "summary": ["summary", "{file}.parquet"],
    "summary of a run": ["summary", "run/{file}"],
    "summary of a damaged file": ["summary", "{file}.pkl"],
    "summary of no file": ["summary", "{file}"],
    "summary of a folder": ["summary", "."],
    "summary of two": ["summary", "{file}.parquet", "{file}.pkl"],
    "check": ["check", "{file}.parquet"],
    "check, JSON": ["check", "--json", "{file}.parquet"],
    "check of a damaged file": ["check", "{file}.pkl"],
    "check, level": ["check", "{file}.pkl", "--fail-on", "{file}"],
    "report": ["report", "{file}.parquet", "-o", "{file}.html"],
    "report again": ["report", "{file}.parquet", "-o", "{file}.html"],
    "report of a run": ["report", "run/{file}", "-o", "{file}_run.html"],
    "lab": ["lab", "{file}.parquet"],
    "lab, run": ["lab", "run/{file}"],
    "lab, no file": ["lab", "{file}"],
    "tokenizer": ["summary", "{file}.parquet", "--tokenizer", "./{file}"],
    "ingest": ["ingest", "raw", "-o", "out/{file}"],
    "recipe": ["recipe", "{file}"],
    "command": ["{file}"],
}


REFUSED = {
    *("summary of a damaged file", "summary of no file", "summary of a folder"),
    *("check of a damaged file", "lab, no file", "tokenizer", "recipe"),
}
LISTING = {"summary of a run", "report of a run"}  # whose last step is damaged


@pytest.mark.filterwarnings("always")  # they reach the terminal as well
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_sends_commands_to_the_terminal(
    command: str,
    theirs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """The bytes of standard output and standard error, of each command."""
    monkeypatch.chdir(theirs)
    monkeypatch.setattr("rounddiag.cli.lab.start_lab", lambda *_, **__: None)
    words = [word.format(file=theirs.name) for word in COMMANDS[command]]
    # As Python does outside of a test.
    monkeypatch.setattr(warnings, "showwarning", show_on_terminal)
    with suppress(SystemExit):
        main(words)
    out, err = capfdbinary.readouterr()
    assert (b"expected" in err) == (command in REFUSED)
    assert (b"step 2 cannot be read: " in out) == (command in LISTING)
    lines = (out + err).decode("utf-8").splitlines()
    assert [line for line in lines if not line.isprintable()] == []


def show_on_terminal(message: object, *_: object) -> None:
    print(message, file=sys.stderr)
