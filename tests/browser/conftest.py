"""A browser, an isolated JupyterLab, and notebooks open in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

import rounddiag as rd
from tests.browser.direct import DirectPage
from tests.browser.explored import CELLS, Explored, faulty
from tests.browser.explorers import write_notebook
from tests.browser.lab import LabNotebook
from tests.browser.server import PATIENCE_SECONDS, answer_without_delay, jupyterlab
from tests.browser.text_boxes import FigurePage

ROOT = Path(__file__).parents[2]
ARTEFACTS = ROOT / "tests" / "artefacts"
NO_BROWSER = "no Chromium or Chrome is installed: the browser tests cannot run"
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-dev-shm-usage"),
]


expect.set_options(timeout=1000 * PATIENCE_SECONDS)


def find_browser() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the browser tests first: short files then fill what time is left.

    The tests of `explored` are the last of them: it stays open in the one JupyterLab.
    """
    items.sort(
        key=lambda item: (
            Path(__file__).parent not in item.path.parents,
            "opened_explorer" in getattr(item, "fixturenames", ()),
        )
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if any(NO_BROWSER in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"SKIPPED: {NO_BROWSER}", red=True, bold=True)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Chromium without a window; skips where there is none, fails under CI."""
    path = find_browser()
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(NO_BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def figure_page(chromium: Browser) -> Iterator[FigurePage]:
    """A page that shows one figure at a time."""
    opened = FigurePage(chromium)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def lab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that JupyterLab serves: copies of the notebooks and their data."""
    folder = tmp_path_factory.mktemp("lab")
    for name in ("notebooks", "sample_data"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def lab_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that has the settings of JupyterLab."""
    home = tmp_path_factory.mktemp("home")
    answer_without_delay(home)
    return home


@pytest.fixture(scope="session")
def lab_address(lab_home: Path, lab_folder: Path) -> Iterator[str]:
    with jupyterlab(lab_home, lab_folder) as address:
        yield address


@pytest.fixture(scope="session")
def one_lab(
    chromium: Browser, lab_address: str, lab_folder: Path
) -> Iterator[LabNotebook]:
    """A JupyterLab that stays open: a page and a kernel take long to start."""
    write_notebook(lab_folder / "first.ipynb")
    lab = LabNotebook(chromium, lab_address, ARTEFACTS)
    lab.open("first.ipynb")
    yield lab
    lab.close()


@pytest.fixture(scope="session")
def next_notebook(
    one_lab: LabNotebook, lab_folder: Path
) -> Callable[..., AbstractContextManager[LabNotebook]]:
    """Open a notebook of `lab_folder` in the one JupyterLab.

    It is on the kernel of the last one: `own_kernel` is for a test that ends it.
    """

    @contextmanager
    def opened(notebook: str, *, own_kernel: bool = False) -> Iterator[LabNotebook]:
        one_lab.open_next(notebook, own_kernel=own_kernel)
        one_lab.value(
            f"__import__('os').chdir({str((lab_folder / notebook).parent)!r})"
        )
        try:
            yield one_lab
        finally:  # its explorers answer the next one's page, too
            one_lab.close_notebook(own_kernel=own_kernel)

    return opened


@pytest.fixture(scope="session")
def next_cells(
    lab_folder: Path,
    next_notebook: Callable[..., AbstractContextManager[LabNotebook]],
) -> Callable[..., AbstractContextManager[LabNotebook]]:
    """Open a new notebook of these cells in the one JupyterLab."""

    def opened(
        name: str, *cells: str, own_kernel: bool = False
    ) -> AbstractContextManager[LabNotebook]:
        write_notebook(lab_folder / name, *cells)
        return next_notebook(name, own_kernel=own_kernel)

    return opened


@pytest.fixture(scope="module")
def opened(chromium: Browser) -> Iterator[DirectPage]:
    """An explorer of the faulty batch, in a page without a notebook."""
    explorer = rd.explore(ROOT / "sample_data" / "image_window.parquet")
    page = DirectPage(chromium, explorer, size=(1280, 800))
    yield page
    assert page.complaints == []
    page.close()


@pytest.fixture(scope="session")
def seen(lab_folder: Path) -> rd.Batch:
    """The batch that `explored` shows."""
    return faulty(lab_folder)


@pytest.fixture(scope="session")
def opened_explorer(
    seen: rd.Batch, next_cells: Callable[..., AbstractContextManager[LabNotebook]]
) -> Iterator[Explored]:
    assert seen.num_samples
    with next_cells("explored.ipynb", *CELLS) as lab:
        lab.set_theme("light")  # others may have left it dark
        lab.run_all()
        yield Explored(lab)
        assert (lab.console_errors, lab.errors, lab.strangers) == ([], [], [])


@pytest.fixture
def explored(opened_explorer: Explored) -> Explored:
    """An explorer in a notebook, as it is when it has just opened."""
    opened_explorer.reset()
    return opened_explorer
