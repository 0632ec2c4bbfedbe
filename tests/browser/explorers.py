"""Explorers in a notebook, as a person has them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from nbformat import v4, write
from playwright.sync_api import expect

from tests.browser.lab import KERNEL
from tests.browser.server import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from playwright.sync_api import Locator

    from tests.browser.lab import LabNotebook

IMPORTS = """import sys
sys.path.insert(0, {root!r})
import rounddiag as rd
from IPython.display import display
batch = rd.load({root!r} + "/sample_data/image_window.parquet")"""
_SAVING = "@jupyter-widgets/jupyterlab-manager:saveWidgetState"
# Four times in a row nothing may be under way; it gives up before a test would.
_REST = """async kernel => {
  const frame = () => new Promise(requestAnimationFrame);
  for (let calm = 0, round = 0; calm < 4 && round < 1000; round += 1) {
    await frame().then(frame);
    await eval(kernel).requestExecute({ code: '', silent: true }).done;
    calm = document.querySelector(".rdx[aria-busy='true']") ? 0 : calm + 1;
  }
}"""
_IS_CLEAN = "() => jupyterapp.shell.currentWidget.context.model.dirty === false"


def write_notebook(path: Path, *cells: str) -> None:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    sources = [v4.new_code_cell(code) for code in cells]
    write(v4.new_notebook(cells=sources, metadata=kernel), path)


def explorer(lab: LabNotebook, index: int = 0) -> Locator:
    """Return an explorer of the page, as soon as all of its figures are drawn."""
    found = lab.page.locator(".rdx:not([data-waiting])").nth(index)
    found.scroll_into_view_if_needed()
    drawn = found.locator(".rdx-plot:has(svg.main-svg)")
    expect(drawn).to_have_count(3)
    return found


def press(lab: LabNotebook, node: Locator, keys: Iterable[str]) -> None:
    node.focus()
    for key in keys:
        lab.page.keyboard.press(key)


def rest(lab: LabNotebook) -> None:
    """Wait until the kernel has answered what the page asks, and what that asks."""
    lab.page.evaluate(_REST, KERNEL)
    expect(lab.page.locator(".rdx[aria-busy='true']")).to_have_count(0)


def waits_for(lab: LabNotebook, expression: str, value: Any) -> None:
    """Wait until Python has a value."""
    waits_until(lambda: lab.value(expression) == value)


def waits_until(is_so: Callable[[], bool]) -> None:
    """Wait until something holds, as long as the harness waits for anything."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)


def switch_saving(lab: LabNotebook) -> None:
    """Have JupyterLab save the state of widgets, or no longer."""
    lab.page.evaluate("name => jupyterapp.commands.execute(name)", _SAVING)


def saved(lab: LabNotebook, path: Path) -> dict[str, Any]:
    """Save the notebook, and read what is in its file."""
    lab.command("docmanager:save")
    lab.page.wait_for_function(_IS_CLEAN)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
