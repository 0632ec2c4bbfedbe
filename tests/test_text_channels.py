"""Text of a file that acts: on a terminal, in HTML of a notebook, in a notebook."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import nbformat
import pytest

from rounddiag import check, diagnose, token_text
from rounddiag.cli import main
from rounddiag.cli.lab import prepare_notebook
from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.batches import hand_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rounddiag import Batch

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
    cells = nbformat.read(notebook, as_version=4).cells
    assert notebook.name == "a_`![](x)`.ipynb"
    assert [cell.cell_type for cell in cells] == ["code"]  # in markdown it would act
    assert f"rd.load({str(file)!r}, untrusted=True)" in cells[0].source
    assert prepare_notebook(file, tmp_path, untrusted=True) == notebook


def test_lone_surrogates_are_shown_escaped() -> None:
    batch = replace(hand_batch(), meta={"\ud800": "\ud800"})
    assert "\\ud800" in batch._repr_html_().encode().decode()
