"""What a saved notebook keeps of an explorer, and shows without a kernel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.explorers import (
    IMPORTS,
    explorer,
    saved,
    switch_saving,
    waits_for,
)
from tests.browser.lab import LabNotebook

NAME = "saved.ipynb"
CELLS = [
    IMPORTS.format(root=str(ROOT)),
    "ex = rd.explore(batch)\nex",
]
OPEN_WITHOUT_KERNEL = """async path => {
  const { commands, shell } = jupyterapp;
  await shell.currentWidget.context.save();
  await shell.currentWidget.sessionContext.shutdown();
  shell.currentWidget.close();
  const kernelPreference = { shouldStart: false, canStart: false };
  await commands.execute('docmanager:open', { path, kernelPreference });
}"""
_NO_KERNEL = "Cannot read properties of null (reading 'kernel')"
PICTURE = ".jp-OutputArea-child img[src^='data:image/jpeg']"
SIZE = "one => [one.naturalWidth, one.naturalHeight]"
MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_cells(NAME, *CELLS, own_kernel=True) as opened:
        switch_saving(opened)
        opened.run_all()
        explorer(opened)
        waits_for(opened, "ex._preview._picture is None", value=False)
        yield opened
        switch_saving(opened)


@pytest.fixture(scope="module")
def content(lab: LabNotebook, lab_folder: Path) -> dict[str, Any]:
    return saved(lab, lab_folder / NAME)


def test_it_adds_less_than_300_kb_with_the_state_of_widgets(
    content: dict[str, Any],
) -> None:
    models = content["metadata"]["widgets"].popitem()[1]["state"].values()
    assert {model["model_name"] for model in models} == {"AnyModel", "LayoutModel"}
    text = json.dumps(content)
    assert "Plotly" not in text.replace("globalThis.Plotly", "")
    assert len(text) < MOST_BYTES


def test_it_is_a_picture_without_a_kernel(
    lab: LabNotebook, content: dict[str, Any]
) -> None:
    assert content["cells"][1]["outputs"]
    lab.page.evaluate(OPEN_WITHOUT_KERNEL, NAME)
    picture = lab.page.locator(PICTURE)
    expect(picture).to_be_visible()
    expect(picture).to_have_js_property("complete", value=True)
    assert picture.evaluate(SIZE)[0] > 1000
    expect(lab.page.get_by_role("button", name="No Kernel", exact=True)).to_be_visible()
    assert lab.page.locator(".rdx-main").is_hidden()
    lab.screenshot("explorer_without_kernel")
    # JupyterLab's own widgets ask for the kernel.
    assert {*lab.console_errors} <= {_NO_KERNEL}


def test_it_is_a_picture_in_a_page_by_nbconvert(
    chromium: Browser, lab_folder: Path, content: dict[str, Any]
) -> None:
    from nbconvert import HTMLExporter  # slow, and not in each process that runs tests

    assert content["cells"][1]["outputs"]
    exporter = HTMLExporter()  # type: ignore[no-untyped-call]
    html, _ = exporter.from_filename(str(lab_folder / NAME))
    file = lab_folder / "saved.html"
    file.write_text(html, encoding="utf-8")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.goto(file.as_uri(), wait_until="commit")
    picture = page.locator("img[src^='data:image/jpeg']")
    expect(picture).to_be_visible()
    expect(picture).to_have_js_property("complete", value=True)
    assert picture.evaluate(SIZE)[0] > 1000
    page.screenshot(path=ARTEFACTS / "explorer_nbconvert.png", full_page=True)
    context.close()
