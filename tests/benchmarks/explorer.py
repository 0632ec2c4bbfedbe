"""How fast the explorer answers in a browser, beside plotly's own FigureWidget.

python -m tests.benchmarks.explorer [--clicks 20] [--pages 1]

Times are taken in the page: from the start of a cell, or from the event of a mouse or
key, to the frame after the one in which the answer is there. With 60 frames a second
that is 17 to 33 ms for a handler that takes no time; so for a key there is also the
time from its event until its own frame is handed to the compositor, from a trace.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Locator, sync_playwright

from tests.browser.conftest import ARGUMENTS, ARTEFACTS, ROOT, find_browser
from tests.browser.explorers import write_notebook
from tests.browser.lab import LabNotebook
from tests.browser.server import jupyterlab

# Samples, rounds and generated tokens of each sample.
CASES = {
    "512 samples x 60 rounds": (512, 60, 1200),
    "10,000 tokens a sample": (32, 20, 10_000),
    "32,000 tokens a sample": (22, 30, 32_000),
}
_SETUP = """import sys
sys.path.insert(0, {root!r})
import os
os.chdir({root!r})
import rounddiag as rd
from tests.benchmarks.explorer_cells import batch_of, stock_widgets
rd.explore  # imported, as in a kernel that is warm
batch = batch_of(*{shape})"""
_CELLS = (
    "rd.explore(batch, order='sample', current={'sample': 0, 'round': 0})",
    "rd.explore(batch)",
    "from ipywidgets import VBox\nVBox(stock_widgets(batch))",
)
# From a start that is a moment or an event, until a condition has been painted.
_WATCH = """([condition, event]) => {
  const holds = new Function(`return ${condition}`);
  globalThis.answered = new Promise((done) => {
    const watch = (start) => {
      const look = () => {
        let isThere = false;
        try { isThere = holds(); } catch { /* not yet */ }
        requestAnimationFrame(isThere ? () => done(performance.now() - start) : look);
      };
      look();
    };
    if (!event) return watch(performance.now());
    const once = { capture: true, once: true };
    addEventListener(event, ({ timeStamp }) => watch(timeStamp), once);
  });
}"""
_ACTIVATE = """(index) => {
  jupyterapp.shell.currentWidget.content.activeCellIndex = index;
}"""
_RUN = """(index) => {
  jupyterapp.shell.currentWidget.content.activeCellIndex = index;
  return jupyterapp.commands.execute('notebook:run-cell');
}"""
_PAGE = "document.querySelectorAll('.rdx')[{index}]"
_PAINTED = (
    _PAGE + ".querySelectorAll('.rdx-plot svg.main-svg').length >= 3"
    " && " + _PAGE + ".querySelector('.rdx-text pre span')"
)
_STOCK = ".js-plotly-plot:not(.rdx-plot)"
_TITLE = _PAGE.format(index=0) + ".querySelector('.rdx-title').textContent"
_TOKEN = _PAGE.format(index=0) + ".querySelector('.rdx-focus').textContent"
# The token plot is of the sample before.
_DRAWING = (
    "'drawing' in "
    + _PAGE.format(index=0)
    + ".querySelector('.rdx-figure[aria-label=Tokens]').dataset"
)

# Many rows reach below the pane, which scrolls.
_IN_SIGHT = """area => {
  const { left, top, width, bottom } = area.getBoundingClientRect();
  const pane = area.closest('.rdx-figure')?.getBoundingClientRect().bottom ?? bottom;
  return [left, top, width, Math.min(bottom, pane) - top];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=20)
    parser.add_argument("--pages", type=int, default=1, help="paints of each batch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=ARGUMENTS
        )
        with jupyterlab(Path(folder), Path(folder)) as address:
            for name, shape in CASES.items():
                print(name)
                setup = _SETUP.format(root=str(ROOT), shape=shape)
                write_notebook(Path(folder) / "benchmark.ipynb", setup, *_CELLS)
                times: dict[str, list[float]] = defaultdict(list)
                for _ in range(arguments.pages):
                    lab = LabNotebook(browser, address, ARTEFACTS)
                    lab.open("benchmark.ipynb")
                    measure(lab, min(arguments.clicks, shape[0] - 1), times)
                    lab.close()
                print_times(times)
        browser.close()


def measure(lab: LabNotebook, clicks: int, times: dict[str, list[float]]) -> None:
    """Add what one batch takes in a fresh page."""
    lab.page.evaluate(_RUN, 0)
    assert lab.errors == []
    times["first paint, plotly.js not yet on the page"] += [painted(lab, cell=1)]
    lab.page.wait_for_timeout(8000)  # the first one fetches screenshots, and pauses
    times["first paint, plotly.js there"] += [painted(lab, cell=2)]
    lab.page.wait_for_timeout(8000)
    lab.page.evaluate(_ACTIVATE, 1)  # as the cell of the FigureWidgets is
    answers = [*cell_clicks(lab, clicks)]
    times["click a cell to its tokens"] += answers
    times["the first click in a page"] += answers[:1]
    times["arrow key to the next token"] += token_keys(lab, clicks)
    times["the same, to the commit of its frame"] += key_frames(lab, clicks)
    times["a key typed into a filter"] += typed_keys(lab, clicks)
    times["first paint of two FigureWidgets"] += [stock_painted(lab)]
    answers = [*stock_clicks(lab, clicks)]
    times["the same with FigureWidget, one line"] += answers
    times["the first click in a FigureWidget"] += answers[:1]


def print_times(times: dict[str, list[float]]) -> None:
    """Print a line for each kind of answer."""
    for name, seconds in times.items():
        middle, high = np.percentile(seconds, [50, 95])
        count = f"n {len(seconds)}"
        print(f"  {name:45} median {middle:6.3f} s, p95 {high:6.3f} s, {count}")


def painted(lab: LabNotebook, cell: int) -> float:
    """Run a cell with an explorer; wait for its figures and its text."""
    lab.page.evaluate(_WATCH, [_PAINTED.format(index=cell - 1), None])
    lab.page.evaluate(_RUN, cell)
    return answered(lab)


def stock_painted(lab: LabNotebook) -> float:
    """Run the cell with two FigureWidgets; wait for both."""
    stock = f"[...document.querySelectorAll('{_STOCK}:has(svg.main-svg)')]"
    drawn = f"{stock}.filter(one => one._fullData?.length).length >= 2"
    lab.page.evaluate(_WATCH, [drawn, None])
    lab.page.evaluate(_RUN, 3)
    return answered(lab)


def answered(lab: LabNotebook) -> float:
    milliseconds: float = lab.page.evaluate("globalThis.answered")
    return milliseconds / 1000


def cell_clicks(lab: LabNotebook, clicks: int) -> Iterator[float]:
    """Click cells of other samples than the one that is shown."""
    heatmap = lab.page.locator(".rdx").first.locator(".rdx-figure").nth(1)
    for number in range(clicks):
        before = lab.page.evaluate(_TITLE)
        there = f"{_TITLE} !== {before!r} && !({_DRAWING})"
        lab.page.evaluate(_WATCH, [there, "pointerup"])
        click(lab, heatmap.locator(".nsewdrag").first, number, clicks)
        yield answered(lab)


def token_keys(lab: LabNotebook, keys: int) -> Iterator[float]:
    """Go from token to token of a round."""
    node = lab.page.locator(".rdx").first
    node.focus()
    for _ in range(keys):
        before = lab.page.evaluate(_TOKEN)
        lab.page.evaluate(_WATCH, [f"{_TOKEN} !== {before!r}", "keydown"])
        lab.page.keyboard.press("ArrowRight")
        yield answered(lab)
        lab.page.wait_for_timeout(100)


def key_frames(lab: LabNotebook, keys: int) -> Iterator[float]:
    """Go from token to token back again; time the frame of each key in a trace."""
    browser = lab.page.context.browser
    assert browser is not None
    devtools = browser.new_browser_cdp_session()
    events: list[dict[str, Any]] = []
    ends: list[bool] = []
    devtools.on("Tracing.dataCollected", lambda part: events.extend(part["value"]))
    devtools.on("Tracing.tracingComplete", lambda _: ends.append(True))
    names = ["devtools.timeline", "disabled-by-default-devtools.timeline"]
    config = {"includedCategories": names}
    start = {"transferMode": "ReportEvents", "traceConfig": config}
    devtools.send("Tracing.start", start)
    for _ in range(keys):
        lab.page.keyboard.press("ArrowLeft")
        lab.page.wait_for_timeout(200)
    devtools.send("Tracing.end")
    while not ends:
        lab.page.wait_for_timeout(100)
    events.sort(key=lambda event: event["ts"])
    pressed: dict[str, Any] | None = None
    for event in events:
        if event.get("args", {}).get("data", {}).get("type") == "keydown":
            pressed = event
        elif pressed and event["name"] == "Commit" and event["tid"] == pressed["tid"]:
            yield (event["ts"] + event["dur"] - pressed["ts"]) / 1e6
            pressed = None


def typed_keys(lab: LabNotebook, keys: int) -> Iterator[float]:
    """Type into the filter by text, until the character is painted."""
    node = lab.page.locator(".rdx").first
    node.get_by_label("Filter by text or any column").click()
    node.get_by_label("text", exact=True).focus()
    value = _PAGE.format(index=0) + ".querySelector('input:focus').value"
    for number in range(keys):
        lab.page.evaluate(_WATCH, [f"{value}.length > {number}", "keydown"])
        lab.page.keyboard.press("a")
        yield answered(lab)
    lab.page.keyboard.press("Escape")


def stock_clicks(lab: LabNotebook, clicks: int) -> Iterator[float]:
    """Click cells of a FigureWidget that sets the line of another."""
    stock = lab.page.locator(_STOCK)
    line = (
        "document.querySelectorAll('.js-plotly-plot:not(.rdx-plot)')[1]._fullData[0].y"
    )
    for number in range(clicks):
        lab.page.evaluate(f"globalThis.before = {line}")
        lab.page.evaluate(_WATCH, [f"{line} !== globalThis.before", "pointerup"])
        click(lab, stock.first.locator(".nsewdrag").first, number, clicks)
        yield answered(lab)


def click(lab: LabNotebook, area: Locator, number: int, clicks: int) -> None:
    """Click somewhere in an area, each time in another row but the first."""
    area.scroll_into_view_if_needed()
    left, top, width, height = area.evaluate(_IN_SIGHT)
    x = left + width * 0.02
    y = top + height * (number + 1.5) / (clicks + 1)
    lab.page.mouse.move(x, y - 2)
    lab.page.mouse.move(x, y)
    lab.page.wait_for_timeout(250)  # plotly notices a hover before a click
    lab.page.mouse.click(x, y)


if __name__ == "__main__":
    main()
