"""Explorers that were shown and closed leave nothing behind, in kernel and page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from playwright.sync_api import expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import IMPORTS, explorer, waits_until
from tests.browser.lab import LabNotebook

NAME = "memory.ipynb"
NUM_AT_ONCE = 3
NODES_OF_ONE = 1000  # at least
CELLS = [
    IMPORTS.format(root=str(ROOT))
    + f"""
import gc, weakref
from ipywidgets.widgets.widget import _instances
refs = globals().get("refs", [])
def show():
    for _ in range({NUM_AT_ONCE}):
        ex = rd.explore(batch[:3])
        display(ex)
        refs.extend(map(weakref.ref, (ex, ex._view, ex._session)))
def close():
    for ref in refs[::3]:
        if ref() is not None:
            ref().close()
def survivors():
    gc.collect()
    alive = [ref() for ref in refs if ref() is not None]
    return [len(refs), len(alive), len(_instances)]""",
    "show()",
]


class Memory:
    """What a page holds, after everything that can go is gone."""

    def __init__(self, lab: LabNotebook) -> None:
        self.devtools = lab.page.context.new_cdp_session(lab.page)
        self.devtools.send("Performance.enable")

    def counts(self) -> tuple[int, int]:
        """Return how many nodes and listeners there are."""
        for _ in range(3):
            self.devtools.send("HeapProfiler.collectGarbage")
        found = self.devtools.send("Performance.getMetrics")["metrics"]
        sizes = {one["name"]: int(one["value"]) for one in found}
        return sizes["Nodes"], sizes["JSEventListeners"]

    def num_roots(self) -> int:
        """Count explorers in memory, in the page or not."""
        prototype = self._run("HTMLDivElement.prototype")
        objects = self.devtools.send(
            "Runtime.queryObjects", {"prototypeObjectId": prototype["objectId"]}
        )["objects"]
        arguments = {
            "objectId": objects["objectId"],
            "functionDeclaration": "function() { return this.filter(one =>"
            " one.classList.contains('rdx')).length; }",
        }
        found = self.devtools.send("Runtime.callFunctionOn", arguments)
        self.devtools.send("Runtime.releaseObject", {"objectId": objects["objectId"]})
        return int(found["result"]["value"])

    def _run(self, expression: str) -> dict[str, Any]:
        found = self.devtools.send("Runtime.evaluate", {"expression": expression})
        result: dict[str, Any] = found["result"]
        return result


def test_a_dozen_explorers_leave_nothing_behind(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> None:
    with next_cells(NAME, *CELLS) as lab:
        memory = Memory(lab)
        counts = []
        for _ in range(12 // NUM_AT_ONCE):
            lab.run_all()
            for index in range(NUM_AT_ONCE):
                explorer(lab, index)
            lab.value("close()")
            expect(lab.page.locator(".rdx")).to_have_count(0)
            counts.append(memory.counts())
        waits_until(lambda: memory.num_roots() == 0)
        assert lab.value("survivors()") == [36, 0, 0]
        # JupyterLab makes some of its own now and then: what explorers leave would be
        # there each time.
        nodes, listeners = np.diff(counts, axis=0).min(axis=0)
        assert nodes < NODES_OF_ONE / 10
        assert listeners < NUM_AT_ONCE
