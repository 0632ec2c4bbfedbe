"""`rounddiag lab FILE`, which `./notebooks/open` ends in, as a person meets it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.lab import LabNotebook
from tests.browser.server import TOKEN, free_port, running, server_arguments

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COMMAND = Path(sys.executable).with_name("rounddiag")
SAMPLES = sorted((ROOT / "sample_data").glob("*.parquet"))


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.stem)
def test_a_file_opens_at_a_notebook_that_loads_and_draws_it(
    chromium: Browser, tmp_path: Path, file: Path
) -> None:
    folder = tmp_path / "a folder of mine"
    folder.mkdir()
    port = free_port()
    command = [str(COMMAND), "lab", str(file), "--", *server_arguments(port)]
    with running(command, port, tmp_path, folder) as address:
        lab = LabNotebook(chromium, address, ARTEFACTS)
        lab.page.goto(f"{address}/?token={TOKEN}")
        lab.wait_for_kernel()
        lab.run_all()
        assert lab.errors == []
        assert lab.value("batch.num_tokens") > 0
        lab.outputs.locator(".rdx-plot svg.main-svg").nth(2).wait_for()
        assert lab.value("len(explorer.selection)") > 0
        lab.screenshot(f"lab_{file.stem}")
        lab.close()
    assert (folder / "rounddiag_notebooks" / f"{file.stem}.ipynb").is_file()
