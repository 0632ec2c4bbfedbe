"""A JupyterLab behind a base URL, and one that lacks widgets or plotly."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.explorers import IMPORTS, explorer, write_notebook
from tests.browser.lab import LabNotebook
from tests.browser.server import free_port, running, server_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

BASE = "/user/x"
NAME = "explorer.ipynb"
CELLS = [
    IMPORTS.format(root=str(ROOT)),
    "ex = rd.explore(batch)\nex",
    "rd.plot_rounds(batch)",
]
FIGURES = "figures.ipynb"
# This server has plotly: it is as if it had not.
PICTURE = """from unittest.mock import patch
from rounddiag.figures._parts import display
with patch.object(display, "is_plotly_missing", return_value=True):
    rd.plot_heatmap(batch).show()"""
ADVICE = (
    "The explorer itself needs a running JupyterLab. If it is missing, run"
    " pip install jupyterlab_widgets anywidget in the environment of"
    " JupyterLab, and reload the page."
)
EXTENSIONS = ("anywidget", "@jupyter-widgets/jupyterlab-manager")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def address(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("folder"), free_port()
    write_notebook(folder / NAME, *CELLS)
    write_notebook(folder / FIGURES, CELLS[0], CELLS[2], PICTURE)
    command = [sys.executable, "-m", "jupyterlab", *server_arguments(port)]
    command += [f"--ServerApp.root_dir={folder}", f"--ServerApp.base_url={BASE}/"]
    with running(command, port, home, folder, base_url=BASE) as found:
        yield found


@pytest.fixture
def lab(chromium: Browser, address: str) -> Iterator[LabNotebook]:
    """A page of its own; the kernel goes on, as it does when a page is closed."""
    opened = LabNotebook(chromium, address, ARTEFACTS)
    yield opened
    opened.page.close()


def without(home: Path, *extensions: str) -> None:
    """Switch off extensions of JupyterLab, as if they were not installed."""
    folder = home / "config" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    config = {"disabledExtensions": dict.fromkeys(extensions, True)}
    (folder / "page_config.json").write_text(json.dumps(config), encoding="utf-8")


def test_it_works_behind_a_base_url(home: Path, lab: LabNotebook) -> None:
    without(home)
    lab.open(NAME)
    lab.run_all()
    explorer(lab)
    assert lab.errors == lab.strangers == lab.console_errors == []


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_without_widgets_a_line_says_what_to_install(
    extension: str, home: Path, lab: LabNotebook
) -> None:
    without(home, extension)
    lab.open(NAME)
    lab.run_all()
    expect(lab.outputs.locator("p", has_text=ADVICE)).to_be_visible()
    expect(lab.outputs.locator("table").first).to_be_visible()
    assert lab.page.locator(".rdx").count() == 0
    assert lab.errors == []
    lab.screenshot(f"explorer_without_{extension.rsplit('/', maxsplit=1)[-1]}")


def test_without_plotly_a_figure_says_what_to_install(
    home: Path, lab: LabNotebook
) -> None:
    without(home)
    # Its renderer cannot be switched off: it is as if it were not installed.
    lab.page.route("**/jupyterlab-plotly/**", lambda route: route.abort())
    lab.open(FIGURES)
    lab.run_all()
    words = lab.outputs.locator("div", has_text="Run pip install plotly in the")
    expect(words.get_by_text("Mismatch per round")).to_be_visible()
    expect(words.get_by_role("listitem").first).to_contain_text("onset: round 2")
    picture = lab.outputs.get_by_alt_text("Mismatch per sample and round")
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.decode().then(() => one.naturalWidth)") == 900
    assert lab.page.locator(".js-plotly-plot:not(.rdx-plot)").count() == 0
    assert lab.errors == []
