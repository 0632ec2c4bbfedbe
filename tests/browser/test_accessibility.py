"""Nothing in an explorer or a report is a serious barrier, by the rules of axe-core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import rounddiag as rd
from tests.browser.axe import grave_faults
from tests.browser.conftest import ROOT
from tests.browser.direct import DirectPage
from tests.browser.test_report import Opened

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

THEMES = ["light", "dark"]


@pytest.fixture(params=["image_window.parquet", "osworld"], scope="module")
def explored(request: pytest.FixtureRequest, chromium: Browser) -> Any:
    page = DirectPage(chromium, rd.explore(ROOT / "sample_data" / request.param))
    yield page
    page.close()


@pytest.mark.parametrize("theme", THEMES)
def test_an_explorer_has_no_grave_fault(explored: DirectPage, theme: str) -> None:
    explored.set_theme(theme)
    assert grave_faults(explored.page, ".rdx") == []


def test_nor_have_its_lists_panels_and_dialog(explored: DirectPage) -> None:
    for tab in explored.find(".rdx-drawer-bar [role=tab]:visible").all():
        tab.click()
        explored.settle()
        assert grave_faults(explored.page, ".rdx-drawer") == []
    for summary in explored.find(".rdx-dropdown > summary:visible").all():
        summary.evaluate("one => one.click()")
        panel = explored.find(".rdx-panel:popover-open")
        expect(panel).to_have_count(1)
        assert grave_faults(explored.page, ".rdx-panel:popover-open") == []
        summary.evaluate("one => one.click()")
        expect(panel).to_have_count(0)
    explored.press("?")
    expect(explored.find(".rdx-sheet")).to_be_visible()
    assert grave_faults(explored.page, ".rdx-sheet") == []
    explored.page.keyboard.press("Escape")


def test_focus_returns_from_a_panel_and_the_dialog(explored: DirectPage) -> None:
    filters = explored.node.get_by_label("Filter by text or any column")
    filters.focus()
    explored.page.keyboard.press("Enter")
    expect(explored.find(".rdx-panel:popover-open")).to_have_count(1)
    explored.page.keyboard.press("Tab")
    expect(filters).not_to_be_focused()
    explored.page.keyboard.press("Escape")
    expect(explored.find(".rdx-panel:popover-open")).to_have_count(0)
    assert explored.page.evaluate("document.activeElement.closest('.rdx') !== null")
    keys = explored.node.get_by_label("Keys (?)")
    keys.focus()
    explored.page.keyboard.press("Enter")
    expect(explored.find(".rdx-sheet")).to_be_visible()
    explored.page.keyboard.press("Escape")
    expect(keys).to_be_focused()


def test_splitters_say_where_they_are(explored: DirectPage) -> None:
    node = explored.node.get_by_role("separator", name="Height of the explorer")
    before = int(node.get_attribute("aria-valuenow") or "")
    assert before == round(explored.node.bounding_box()["height"])  # type: ignore[index]
    node.focus()
    explored.page.keyboard.press("ArrowUp")
    expect(node).to_have_attribute("aria-valuenow", str(before - 24))
    expect(node).to_have_attribute("aria-valuemin", "520")


@pytest.mark.parametrize("theme", THEMES)
def test_a_report_has_no_grave_fault(
    chromium: Browser, tmp_path: Path, theme: str
) -> None:
    file = tmp_path / "report.html"
    source = ROOT / "sample_data" / "image_window.parquet"
    rd.report(source, file, worst=1, samples=1)
    opened = Opened(chromium, file, scheme=theme)
    assert grave_faults(opened.page, "html") == []
    expect(
        opened.page.get_by_role("main").get_by_role("heading", level=1)
    ).to_contain_text("image_window.parquet")
    opened.context.close()


@pytest.mark.parametrize("theme", THEMES)
def test_a_report_on_a_run_has_no_grave_fault(
    chromium: Browser, tmp_path: Path, theme: Any
) -> None:
    file = tmp_path / "run.html"
    rd.report(ROOT / "sample_data" / "run", file)
    context = chromium.new_context(color_scheme=theme, offline=True)
    page = context.new_page()
    page.goto(file.as_uri())
    expect(page.locator(".plot .main-svg").first).to_be_visible()
    assert grave_faults(page, "html") == []
    context.close()
