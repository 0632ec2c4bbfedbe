"""A JupyterLab behind a base URL, and one that lacks widgets or plotly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.explored import Explored
from tests.browser.explorers import IMPORTS
from tests.browser.lab import LabNotebook
from tests.browser.server import BASE_URL

NAME = "explorer.ipynb"
CELLS = [
    IMPORTS.format(root=str(ROOT)),
    "ex = rd.explore(batch)\nex",
    "rd.plot_rounds(batch, onset=rd.diagnose(batch).onset)",
]
ADVICE = (
    "The explorer itself needs a running JupyterLab. If it is missing, run"
    " pip install jupyterlab_widgets anywidget in the environment of"
    " JupyterLab, and reload the page."
)


@pytest.fixture(scope="module")
def served(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    """The notebook in the page that stays open: other pages share its kernel."""
    with next_cells(NAME, *CELLS) as it:
        yield it


@pytest.fixture
def lab(
    chromium: Browser, served: LabNotebook, lab_address: str
) -> Iterator[LabNotebook]:
    """A page of its own; the kernel goes on, as it does when a page is closed."""
    assert served.value("6 * 7") == 42
    opened = LabNotebook(chromium, lab_address, ARTEFACTS)
    yield opened
    opened.page.close()


@contextmanager
def without(home: Path, extension: str) -> Iterator[None]:
    """Switch off an extension of JupyterLab, as if it were not installed."""
    folder = home / "config" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "page_config.json"
    config = {"disabledExtensions": {extension: True}}
    file.write_text(json.dumps(config), encoding="utf-8")
    yield
    file.unlink()


def test_it_works_behind_a_base_url(explored: Explored) -> None:
    assert urlsplit(explored.page.url).path.startswith(f"{BASE_URL}/lab/")
    assert explored.lab.errors == explored.lab.strangers == []
    assert explored.lab.console_errors == []


def test_without_the_manager_of_widgets_a_line_says_what_to_install(
    lab_home: Path, lab: LabNotebook
) -> None:
    with without(lab_home, "@jupyter-widgets/jupyterlab-manager"):
        lab.open(NAME)
    for cell in (0, 1):
        lab.run_cell(cell)
    check_table_and_advice(lab)
    lab.screenshot("explorer_without_manager")


def test_without_anywidget_and_plotly_lines_say_what_to_install(
    lab_home: Path, lab: LabNotebook
) -> None:
    # Plotly's renderer cannot be switched off: it is as if it were not installed.
    lab.page.route("**/jupyterlab-plotly/**", lambda route: route.abort())
    with without(lab_home, "anywidget"):
        lab.open(NAME)
    lab.run_all()
    check_table_and_advice(lab)
    words = lab.outputs.locator("div", has_text="run pip install plotly in its")
    expect(words.get_by_text("Mismatch per round")).to_be_visible()
    expect(words.get_by_role("listitem").first).to_contain_text("onset: round 2")
    assert lab.page.locator(".js-plotly-plot:not(.rdx-plot)").count() == 0
    lab.screenshot("explorer_without_anywidget")


def check_table_and_advice(lab: LabNotebook) -> None:
    """Check what is shown instead of an explorer."""
    expect(lab.outputs.locator("p", has_text=ADVICE)).to_be_visible()
    expect(lab.outputs.locator("table").first).to_be_visible()
    assert lab.page.locator(".rdx").count() == 0
    assert lab.errors == []
