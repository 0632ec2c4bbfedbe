"""`rounddiag lab FILE`, which `./notebooks/open` ends in, as a person meets it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.sync_api import Browser

from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.explorers import waits_until
from tests.browser.lab import LabNotebook
from tests.browser.server import free_port, running, server_arguments
from tests.browser.test_explorer_layout import box_of, is_inside

COMMAND = Path(sys.executable).with_name("rounddiag")
FILE = ROOT / "sample_data" / "image_window.parquet"


def read_announcement(log: Path) -> list[str]:
    """Return the tunnel and the address that `--remote` prints once it is served."""
    waits_until(lambda: "Then open there:" in log.read_text(encoding="utf-8"))
    line = r"^(?:On your own computer|Then open there): +(.+)$"
    return re.findall(line, log.read_text(encoding="utf-8"), re.MULTILINE)


def test_a_file_opens_at_a_notebook_that_loads_and_draws_it(
    chromium: Browser, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder of mine"
    folder.mkdir()
    port = free_port()
    command = [str(COMMAND), "lab", str(FILE), "--remote", "--"]
    with running([*command, *server_arguments(port)], port, tmp_path, folder) as there:
        tunnel, address = read_announcement(tmp_path / "server.log")
        assert tunnel.startswith(f"ssh -N -L {port}:127.0.0.1:{port} ")
        assert address.startswith(there)
        lab = LabNotebook(chromium, there, ARTEFACTS)
        lab.page.goto(address)
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
