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
# Labels that are cut or lie on another, panes and lists that are wider than their room.
FAULTS = """() => {
  const seen = selector => [...document.querySelectorAll(selector)].filter(node =>
    node.checkVisibility({visibilityProperty: true}) && node.clientWidth > 0);
  const say = node => `${node.className} ${node.textContent.slice(0, 40)}`;
  const cut = seen('html, .rdx, .rdx-main, .rdx-side, .rdx button, .rdx summary,'
    + ' .rdx label > span, .rdx h3').filter(node =>
      getComputedStyle(node).textOverflow !== 'ellipsis'
      && !node.closest('.rdx-strip, .rdx-sample-facts, pre, .rdx-list-panel')
      && node.scrollWidth > node.clientWidth + 1);
  const all = seen('.rdx :is(.rdx-controls, .rdx-steps, .rdx-tabs, .rdx-sample-line,'
    + ' .rdx-reader-head, figcaption) :is(button, summary, select, h3, output,'
    + ' input:not([type=radio], [type=checkbox]), .rdx-title, .rdx-outcome,'
    + ' .rdx-beyond)')
    .filter(node => !node.closest('.rdx-sample-facts, .rdx-panel'))
    .map(node => [node, node.getBoundingClientRect()]);
  const meet = (one, other, from, to) =>
    Math.min(one[to], other[to]) - Math.max(one[from], other[from]) > 1.5;
  const covered = all.flatMap(([node, box], at) => all.slice(at + 1)
    .filter(([other, its]) => !node.contains(other) && meet(box, its, 'left', 'right')
      && meet(box, its, 'top', 'bottom'))
    .map(([other]) => `${say(node)} / ${say(other)}`));
  return [...cut.map(say), ...covered];
}"""
# What has the focus, and no ring that says so: of a radio it is around its label.
RINGLESS = """() => [...document.querySelectorAll(
  '.rdx :is(button, input, select, summary)')]
  .filter(node => node.checkVisibility() && !node.disabled)
  .filter(node => {
    node.focus({preventScroll: true});
    const parts = [node, node.nextElementSibling].filter(Boolean);
    return node === document.activeElement
      && parts.every(part => getComputedStyle(part).outlineStyle === 'none');
  }).map(node => node.outerHTML.slice(0, 120))"""


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
    "one_sample": lambda: rd.explore(load("image_window")[:1]),
    "many_tokens": lambda: rd.explore(batch_of(256, 20, 1152)),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_is_cut_or_pale(chromium: Browser, situation: str) -> None:
    explorer = SITUATIONS[situation]()
    page = DirectPage(chromium, explorer, size=SIZES[-1])
    offer = page.find("button:text-is('Go to the evidence')")
    if offer.is_visible():  # on a slow machine: the same pictures on every one
        offer.click()
        page.settle()
    for theme in ("light", "dark"):
        page.set_theme(theme)
        assert pale_texts(page.page, ".rdx *")[1] == []
        for width, height in SIZES:
            page.resize(width, height)
            tabs = page.find(".rdx-panes > button:visible").all_inner_texts()
            for pane in [*reversed(tabs)] or [""]:
                if pane:
                    page.find(f".rdx-panes > button:text-is('{pane}')").click()
                    page.settle()
                name = "_".join(filter(None, [situation, str(width), theme, pane]))
                page.screenshot(ARTEFACTS / f"look_{name}.png")
                assert ask(page.page, FAULTS) == [], name
    page.press("Tab")
    assert ask(page.page, RINGLESS) == []
    assert page.complaints == []  # an answer of the network, too: it is off
    page.close()
    explorer.close()
