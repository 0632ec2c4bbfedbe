"""An explorer that is not loaded yet, and one whose reader needs other colours."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from rounddiag import explore
from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.direct import DirectPage
from tests.browser.lab import ask

_BEFORE = "node => getComputedStyle(node, '::before').content"
_OUTLINE = "node => getComputedStyle(node).outlineStyle"
_BORDER = "node => getComputedStyle(node).borderBottomColor"
# An explorer that Python does not answer yet.
_OPEN_ANOTHER = """() => {
  const answer = new Promise((_, reject) => { globalThis.refuse = reject; });
  const latest = (_, reply) => reply;
  const connect = () => ({ request: () => answer, latest, close: () => {} });
  const other = new page.constructor(connect);
  document.querySelector("main").replaceChildren(other.node);
  other.open();
}"""
# The plot is dimmed by the frame in which a drawing begins, or not.
_DIMMED = """node => {
  node.dataset.drawing = "true";
  const opacity = getComputedStyle(node.querySelector(".rdx-plot")).opacity;
  delete node.dataset.drawing;
  return opacity;
}"""


def test_it_says_that_it_loads_until_python_answers_or_fails(chromium: Browser) -> None:
    opened = DirectPage(chromium, explore(ROOT / "sample_data" / "healthy.parquet"))
    assert opened.node.evaluate(_BEFORE) == "none"
    ask(opened.page, _OPEN_ANOTHER)
    assert opened.node.evaluate(_BEFORE) == '"Loading the explorer…"'
    assert opened.node.evaluate("node => node.offsetHeight") > 0
    ask(opened.page, "() => globalThis.refuse(new Error('no'))")
    expect(opened.node).to_have_attribute("aria-busy", "false")
    assert opened.node.evaluate(_BEFORE) == "none"
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_forced_colours_what_is_chosen_is_told_apart(
    opened: DirectPage, scheme: Literal["light", "dark"]
) -> None:
    opened.page.emulate_media(forced_colors="active", color_scheme=scheme)
    opened.set_theme(scheme)
    segments = opened.find(".rdx-segments label:visible")
    for index in range(segments.count()):
        label = segments.nth(index)
        is_chosen = label.locator("input").is_checked()
        outline = label.locator("span").first.evaluate(_OUTLINE)
        assert (outline == "solid") == is_chosen
    tabs = opened.find("[aria-label='Lists'] [role=tab]:visible")
    lines = {tabs.nth(at).evaluate(_BORDER) for at in range(tabs.count())}
    chosen = opened.find("[aria-label='Lists'] [role=tab][aria-selected='true']")
    assert len(lines) == 2  # its own, and that of all others
    assert chosen.evaluate(_BORDER) != tabs.last.evaluate(_BORDER)
    opened.screenshot(ARTEFACTS / f"explorer_forced_colors_{scheme}.png")
    opened.page.emulate_media(forced_colors="none", color_scheme="light")
    opened.set_theme("light")


def test_where_motion_is_reduced_nothing_moves_and_nothing_flashes(
    opened: DirectPage,
) -> None:
    opened.page.emulate_media(reduced_motion="reduce")
    assert opened.find(".rdx-figure").first.evaluate(_DIMMED) == "1"
    opened.press("j", "n")
    opened.settle()
    names: list[Any] = ask(
        opened.page,
        "() => document.getAnimations().map(one => one.animationName"
        " ?? one.transitionProperty)",
    )
    assert {*names} <= {"opacity", "rdx-late"}
    opened.page.emulate_media(reduced_motion="no-preference")
    expect(opened.node).to_be_visible()
