"""Notebook 7: it hears keys before an explorer does; widgets can be linked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.explorers import IMPORTS, explorer, write_notebook
from tests.browser.lab import LabNotebook, ask
from tests.browser.linked import CELLS as LINKED
from tests.browser.linked import check_link
from tests.browser.server import TOKEN, free_port, running, server_arguments

NO_NOTEBOOK = "Notebook 7 is not installed: `pip install notebook`"
CELLS = (IMPORTS.format(root=str(ROOT)), "rd.explore(batch)", "1", "2")
SOURCES = """() => Array.from(jupyterapp.shell.currentWidget.content.model.cells)
  .map(cell => cell.sharedModel.source)"""
# The first control of a kind that can have the focus has it.
FOCUS = """selector => {
  for (const control of document.querySelectorAll(`.rdx ${selector}`)) {
    control.focus();
    if (document.activeElement === control) return true;
  }
  return false;
}"""
# They cut a cell, delete it, insert one below and above, make it code, paste, undo.
KEYS = ("x", "d", "d", "b", "a", "y", "v", "z")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if find_spec("notebook") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(NO_NOTEBOOK)
    home, port = tmp_path_factory.mktemp("notebook7"), free_port()
    write_notebook(home / "keys.ipynb", *CELLS)
    write_notebook(home / "linked.ipynb", *LINKED)
    command = [sys.executable, "-m", "notebook", *server_arguments(port)]
    command += [f"--ServerApp.root_dir={home}"]
    command += ["--JupyterNotebookApp.expose_app_in_browser=True"]
    with running(command, port, home, Path(home)) as found:
        yield found


@contextmanager
def notebook(chromium: Browser, address: str, name: str) -> Iterator[LabNotebook]:
    opened = LabNotebook(chromium, address, ARTEFACTS)
    opened.page.goto(f"{address}/notebooks/{name}?token={TOKEN}")
    opened.wait_for_kernel()
    opened.run_all()
    yield opened
    assert opened.errors == []
    opened.close()


def test_keys_in_a_control_leave_the_cells_alone(
    chromium: Browser, address: str
) -> None:
    controls = (
        "select[aria-label=by]",
        "[type=range]",
        "[type=checkbox]",
        "[type=radio]",
        "button",
    )
    with notebook(chromium, address, "keys.ipynb") as lab:
        explorer(lab)
        for control, key in product(controls, KEYS):
            assert ask(lab.page, FOCUS, control) is True
            lab.page.keyboard.press(key)
            lab.settle()
            assert ask(lab.page, SOURCES) == [*CELLS], (control, key)


def test_linked_explorers_go_to_the_same_places(
    chromium: Browser, address: str
) -> None:
    with notebook(chromium, address, "linked.ipynb") as lab:
        check_link(lab)
