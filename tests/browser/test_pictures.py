"""Pictures of the explorer in its situations, in both themes and three widths.

They are in `tests/artefacts` to be looked at; here is what a machine sees of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import rounddiag as rd
from tests.benchmarks.explorer_cells import batch_of
from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.contrast import pale_texts
from tests.browser.direct import DirectPage
from tests.browser.lab import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser

    from rounddiag.widgets import Explorer

SIZES = [(700, 900), (1280, 800), (1920, 1080)]
DATA = ROOT / "sample_data"
# Labels of controls that are cut, and panes that are wider than the page.
CUT = """() => [...document.querySelectorAll(
  '.rdx, .rdx-main, .rdx button, .rdx summary, .rdx label > span, .rdx h3')]
  .filter(node => node.checkVisibility() && node.clientWidth > 0
    && getComputedStyle(node).textOverflow !== 'ellipsis'
    && !node.closest('.rdx-strip, .rdx-sample-facts, pre, .rdx-list-panel')
    && node.scrollWidth > node.clientWidth + 1)
  .map(node => `${node.className} ${node.textContent.slice(0, 40)}`)"""


def load(name: str) -> rd.Batch:
    return rd.load(DATA / f"{name}.parquet")


def explore_without_pair(*scores: str) -> Explorer:
    batch = load("image_window")
    lacking = {f"{name}_log_probs": None for name in ("old", "rollout")}
    for name in scores:
        del lacking[f"{name}_log_probs"]
    return rd.explore(replace(batch, **lacking))  # type: ignore[arg-type]


SITUATIONS: dict[str, Callable[[], Explorer]] = {
    "pair": lambda: rd.explore(load("image_window")),
    "one_engine": lambda: explore_without_pair("rollout"),
    "no_engine": explore_without_pair,
    "step_rows": lambda: rd.explore(
        rd.load(DATA / "step_rows.parquet", sample_by="traj_uid")
    ),
    "run": lambda: rd.explore(DATA / "run"),
    "two_batches": lambda: rd.explore([load("image_window"), load("healthy")]),
    "one_sample": lambda: rd.explore(load("image_window")[:1]),
    "many_tokens": lambda: rd.explore(batch_of(256, 20, 1152)),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_is_cut_or_pale(chromium: Browser, situation: str) -> None:
    explorer = SITUATIONS[situation]()
    page = DirectPage(chromium, explorer, size=SIZES[-1])
    for theme in ("light", "dark"):
        page.set_theme(theme)
        assert pale_texts(page.page, ".rdx *")[1] == []
        for width, height in SIZES:
            page.resize(width, height)
            page.screenshot(ARTEFACTS / f"look_{situation}_{width}_{theme}.png")
            assert ask(page.page, CUT) == [], width
    assert page.complaints == []
    page.close()
    explorer.close()
