"""Explorers in a notebook, as a person has them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.browser.lab import KERNEL, ask
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
# Nothing may be under way for longer than the page waits before it sends a choice. It
# gives up in the end.
_CALM_FRAMES = 6
_REST = """async ([name, calmFrames, wasAsked]) => {
  const kernel = eval(name);
  const isKnown = kernel.rounddiagPending;
  const pending = (kernel.rounddiagPending ??= follow());
  const ask = () => kernel.requestExecute({ code: '', silent: true }).done;
  if (!isKnown || !wasAsked) await ask();
  for (let calm = 0, frame = 0; calm < calmFrames && frame < 20_000; frame += 1) {
    await new Promise(requestAnimationFrame);
    const isBusy = document.querySelector(".rdx[aria-busy='true']");
    calm = pending.size || isBusy ? 0 : calm + 1;
  }
  function follow() {
    const pending = new Set();
    kernel.anyMessage.connect((_, { msg }) => {
      const { kind, id } = msg.content?.data?.content ?? {};
      if (kind === 'request') pending.add(id);
      if (kind === 'reply') pending.delete(id);
    });
    return pending;
  }
}"""
_IS_CLEAN = "() => jupyterapp.shell.currentWidget.context.model.dirty === false"


def write_notebook(path: Path, *cells: str) -> None:
    """Write a notebook of code cells, without nbformat, which is slow to import."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cell: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": []}
    cell["execution_count"] = None
    sources = [{**cell, "id": f"cell-{at}", "source": s} for at, s in enumerate(cells)]
    content = {"cells": sources, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content), encoding="utf-8")


def explorer(lab: LabNotebook, index: int = 0) -> Locator:
    """Return an explorer of the page, as soon as all of its figures are drawn."""
    found = lab.page.locator(".rdx:not([data-waiting])").nth(index)
    found.scroll_into_view_if_needed()
    drawn = found.locator(".rdx-plot:has(svg.main-svg)")
    expect(drawn).to_have_count(3)
    return found


def go_to_evidence(lab: LabNotebook, node: Locator) -> None:
    """Go to the evidence of the diagnosis, where the page has not gone there itself."""
    button = node.get_by_role("button", name="Go to the evidence", exact=True)
    waits_until(
        lambda: lab.value("ex.state['finding']") is not None or button.is_visible()
    )
    if button.is_visible():
        button.click()
    waits_until(lambda: lab.value("ex.state['finding']") is not None)


def press(lab: LabNotebook, node: Locator, keys: Iterable[str]) -> None:
    node.focus()
    for key in keys:
        lab.page.keyboard.press(key)


def rest(lab: LabNotebook, *, was_asked: bool = False) -> None:
    """Wait until the kernel has answered what the page asks, and what that asks.

    After an answer of `lab.value`, what Python sent before it is on the page.
    """
    ask(lab.page, _REST, [KERNEL, _CALM_FRAMES, was_asked])
    expect(lab.page.locator(".rdx[aria-busy='true']")).to_have_count(0)


def waits_for(lab: LabNotebook, expression: str, value: Any) -> None:
    """Wait until Python has a value."""
    waits_until(lambda: lab.value(expression) == value)


def waits_until(is_so: Callable[[], bool]) -> None:
    """Wait until something holds, as long as the harness waits for anything."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.03)


def switch_saving(lab: LabNotebook) -> None:
    """Have JupyterLab save the state of widgets, or no longer."""
    ask(lab.page, "name => jupyterapp.commands.execute(name)", _SAVING)


def saved(lab: LabNotebook, path: Path) -> dict[str, Any]:
    """Save the notebook, and read what is in its file."""
    lab.command("docmanager:save")
    lab.page.wait_for_function(_IS_CLEAN)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
