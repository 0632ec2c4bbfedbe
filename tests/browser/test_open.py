"""`rounddiag lab FILE`, which `./notebooks/open` ends in, as a person meets it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.explorers import waits_until
from tests.browser.lab import LabNotebook
from tests.browser.server import TOKEN, free_port, running, server_arguments
from tests.browser.test_explorer_layout import box_of, is_inside

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COMMAND = Path(sys.executable).with_name("rounddiag")
FILE = ROOT / "sample_data" / "image_window.parquet"


def test_a_file_opens_at_a_notebook_that_loads_and_draws_it(
    chromium: Browser, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder of mine"
    folder.mkdir()
    port = free_port()
    command = [str(COMMAND), "lab", str(FILE), "--", *server_arguments(port)]
    with running(command, port, tmp_path, folder) as address:
        lab = LabNotebook(chromium, address, ARTEFACTS)
        lab.page.goto(f"{address}/?token={TOKEN}")
        lab.wait_for_kernel()
        lab.page.locator(".jp-Cell .cm-content").first.click()
        lab.page.keyboard.press("Shift+Enter")
        lab.outputs.locator(".rdx:not([data-waiting])").wait_for()
        assert lab.errors == []
        node = lab.outputs.locator(".rdx")
        area = lab.page.locator(".jp-NotebookPanel .jp-WindowedPanel-outer")
        waits_until(lambda: is_inside(box_of(node), box_of(area)))
        assert lab.value("batch.num_tokens") > 0
        lab.outputs.locator(".rdx-plot svg.main-svg").nth(2).wait_for()
        assert lab.value("len(explorer.selection)") > 0
        lab.screenshot(f"lab_{FILE.stem}")
        lab.close()
    assert (folder / "rounddiag_notebooks" / f"{FILE.stem}.ipynb").is_file()
