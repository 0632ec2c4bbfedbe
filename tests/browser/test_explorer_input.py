"""Explorers of batches that are hostile, broken or next to empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import IMPORTS, press
from tests.browser.lab import LabNotebook
from tests.browser.odd_batches import HOSTILE, odd_batches

NAME = "input.ipynb"
CELLS = [
    IMPORTS.format(root=str(ROOT)) + "\n"
    "from tests.browser.odd_batches import odd_batches\n"
    "batches = odd_batches()\n"
    "name = 'hostile'\n"
    "def choose(new):\n    globals()['name'] = new",
    "ex = rd.explore(batches[name])\nex",
]
KINDS = [*odd_batches()]


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_cells(NAME, *CELLS) as opened:
        opened.run_cell(0)
        yield opened


def shown(lab: LabNotebook, kind: str) -> Locator:
    lab.value(f"choose({kind!r})")
    lab.run_cell(1)
    found = lab.page.locator(".rdx:not([data-waiting])")
    num_figures = 2 if kind == "no samples" else 3
    drawn = found.locator(".rdx-plot:has(svg.main-svg)")
    expect(drawn).to_have_count(num_figures)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_it_opens_and_every_key_does_no_harm(lab: LabNotebook, kind: str) -> None:
    found = shown(lab, kind)
    press(lab, found, "jkGgnpw/")
    lab.page.keyboard.type("x(")
    for key in ("Escape", "ArrowRight", "ArrowLeft", "t", "Escape", "f", "Escape"):
        press(lab, found, [key])
    lab.settle()
    expect(found.locator(".rdx-banner")).to_be_hidden()
    lab.screenshot(f"explorer_{kind.replace(' ', '_')}")
    assert lab.value("str(ex.last_error)") == "None"
    assert (lab.console_errors, lab.errors) == ([], [])
    assert lab.strangers == []


def test_a_plot_without_tokens_marks_none_and_takes_a_click(lab: LabNotebook) -> None:
    plot = shown(lab, "no tokens").get_by_label("Tokens", exact=True)
    expect(plot.locator(".rdx-here")).to_be_hidden()
    plot.locator(".rdx-plot").click()
    lab.settle()
    assert lab.console_errors == []


def test_hostile_text_is_text(lab: LabNotebook) -> None:
    found = shown(lab, "hostile")
    for text in HOSTILE[:3]:
        expect(found.locator(".rdx-scroller")).to_contain_text(text)
    words = found.inner_text()
    assert "\u202e" not in words
    assert "\u200b" not in words
    assert "⟨U+202E⟩" in words
    assert found.locator("script, .rdx-scroller img").count() == 0
    assert "taken" not in lab.page.title()


def test_a_broken_picture_says_why(lab: LabNotebook) -> None:
    found = shown(lab, "broken pictures")
    expect(found.locator(".rdx-screens")).to_contain_text("cannot be shown")


def test_many_samples_are_pooled_and_a_row_of_them_can_be_chosen(
    lab: LabNotebook,
) -> None:
    found = shown(lab, "5000 samples")
    heatmap = found.locator(".rdx-figure").nth(1)
    heatmap.scroll_into_view_if_needed()
    lab.settle()
    area = heatmap.locator(".nsewdrag").first.bounding_box()
    assert area is not None
    lab.page.mouse.click(area["x"] + 9, area["y"] + 50)
    expect(found.locator(".rdx-chosen")).to_contain_text("selected")
    assert len(lab.value("ex.state['cells']['samples']")) > 1
