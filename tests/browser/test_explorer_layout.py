"""One screen: every pane is in sight at once, at the sizes that people work at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import combinations

import pytest
from playwright.sync_api import FloatRect, Locator

from tests.browser.conftest import ROOT
from tests.browser.explorers import (
    IMPORTS,
    explorer,
    go_to_evidence,
    waits_for,
    waits_until,
)
from tests.browser.lab import LabNotebook, Theme

CELLS = [IMPORTS.format(root=str(ROOT)), "ex = rd.explore(batch)\nex"]
PANES = ["Rounds", "Samples", "Sample", "Tokens", "Text", "Screenshot", "Token"]
REGIONS = ["Controls", *PANES, "Drawer"]
SIZES = [(1280, 800), (1440, 900), (1920, 1080)]
AREA = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer"
# Text that is cut, without an ellipsis and a title that has all of it.
CUT = """node => [...node.querySelectorAll(
    '.rdx-head *, .rdx-choices *, .rdx-title, .rdx-card *, .rdx-facts-list *,'
    + '.rdx-scores *, .rdx-tabs *, .rdx-list-head *, .rdx-cell')]
  .filter(one => one.children.length === 0 && one.textContent.trim() && one.offsetWidth)
  .filter(one => getComputedStyle(one).display !== 'inline')
  .filter(one => one.scrollWidth > one.clientWidth + 1)
  .filter(one => getComputedStyle(one).textOverflow !== 'ellipsis'
    || !one.closest('[title]'))
  .map(one => `${one.className}: ${one.textContent}`)"""
# Pixels that rounding may take.
SLACK = 1.5


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_cells("layout.ipynb", *CELLS) as opened:
        opened.command("application:toggle-left-area")  # as it is by default
        width, height = SIZES[0]
        opened.page.set_viewport_size({"width": width, "height": height})
        opened.run_all()
        go_to_evidence(opened, explorer(opened))
        yield opened
        assert (opened.console_errors, opened.errors) == ([], [])


def box_of(node: Locator) -> FloatRect:
    box = node.bounding_box()
    assert box is not None
    return box


def is_inside(inner: FloatRect, outer: FloatRect) -> bool:
    return (
        inner["x"] >= outer["x"] - SLACK
        and inner["y"] >= outer["y"] - SLACK
        and inner["x"] + inner["width"] <= outer["x"] + outer["width"] + SLACK
        and inner["y"] + inner["height"] <= outer["y"] + outer["height"] + SLACK
    )


def overlap(one: FloatRect, other: FloatRect) -> bool:
    return all(
        one[at] + one[size] > other[at] + SLACK  # type: ignore[literal-required]
        and other[at] + other[size] > one[at] + SLACK  # type: ignore[literal-required]
        for at, size in (("x", "width"), ("y", "height"))
    )


def misplaced(lab: LabNotebook, names: list[str]) -> list[object]:
    """Return the parts of an explorer out of sight, and the pairs that overlap."""
    area = box_of(lab.page.locator(AREA))
    found = explorer(lab)
    boxes = {name: box_of(found.get_by_label(name, exact=True)) for name in names}
    outside = [name for name in names if not is_inside(boxes[name], area)]
    pairs = combinations(names, 2)
    return [*outside, *(p for p in pairs if overlap(boxes[p[0]], boxes[p[1]]))]


def resize(lab: LabNotebook, width: int, height: int) -> Locator:
    lab.page.set_viewport_size({"width": width, "height": height})
    found = explorer(lab)
    area = lab.page.locator(AREA)
    share = min(max(0.9 * box_of(area)["height"], 520), 1200)
    waits_until(lambda: abs(box_of(found)["height"] - share) < SLACK)
    found.evaluate("node => node.scrollIntoView({ block: 'start' })")
    lab.settle()
    return found


# Of a sample whose text is longer than its pane.
def test_the_current_token_is_in_sight(lab: LabNotebook) -> None:
    found = explorer(lab)
    text, token = found.locator(".rdx-scroller"), found.locator(".rdx-chunk > .rdx-now")
    waits_until(lambda: lab.value("ex.current['round']") == 3)
    token.wait_for()
    assert text.evaluate("node => node.scrollHeight > 2 * node.clientHeight")
    # Out of sight it may have no box yet.
    waits_until(
        lambda: (
            (box := token.bounding_box()) is not None and is_inside(box, box_of(text))
        )
    )


def test_text_stays_where_somebody_scrolled_to(lab: LabNotebook) -> None:
    text = explorer(lab).locator(".rdx-scroller")
    text.hover()
    lab.page.mouse.wheel(0, -10_000)
    waits_until(lambda: text.evaluate("node => node.scrollTop") == 0)
    lab.page.wait_for_timeout(300)  # the first rounds get their heights
    assert text.evaluate("node => node.scrollTop") == 0


LOOKS: list[tuple[int, int, Theme]] = [
    *((*size, "light") for size in SIZES),
    (*SIZES[0], "dark"),
]


@pytest.mark.parametrize(("width", "height", "theme"), LOOKS)
def test_all_regions_are_in_sight_and_none_overlaps_another(
    lab: LabNotebook, width: int, height: int, theme: Theme
) -> None:
    lab.set_theme(theme)
    found = resize(lab, width, height)
    waits_until(lambda: found.get_attribute("data-theme") == theme)
    waits_until(lambda: misplaced(lab, REGIONS) == [])  # once it is laid out
    assert found.evaluate(CUT) == []
    lab.screenshot(f"explorer_screen_{width}_{theme}")
    lab.set_theme("light")


def test_cards_of_few_rounds_use_the_width_that_there_is(lab: LabNotebook) -> None:
    found = resize(lab, *SIZES[2])
    cards = found.locator(".rdx-card")
    room = box_of(found.locator(".rdx-strip-list"))["width"] / cards.count()
    assert room > 100
    for card in cards.all():
        assert box_of(card)["width"] == pytest.approx(min(room, 150), abs=8)


def test_controls_of_an_explorer_of_one_column_stay_on_a_line(lab: LabNotebook) -> None:
    found = resize(lab, 1150, 800)
    line = box_of(found.locator(".rdx-choices"))
    assert 700 < line["width"] < 740
    assert line["height"] < 36
    assert "of 4,143 tokens" in found.locator(".rdx-beyond").inner_text()


def test_a_key_and_a_row_of_the_drawer_move_nothing_out_of_sight(
    lab: LabNotebook,
) -> None:
    found = resize(lab, *SIZES[0])
    top = box_of(found)["y"]
    found.focus()
    lab.page.keyboard.press("j")
    waits_for(lab, "ex.current['sample'] == 35", value=False)
    found.get_by_role("tab", name="Tokens", exact=True).click()
    row = found.locator(".rdx-list-rows button").nth(3)
    row.click()
    place = row.locator(".rdx-cell-count").all_text_contents()
    waits_for(lab, "[str(one) for one in ex.current.values()]", place)
    area = box_of(lab.page.locator(AREA))
    for name in ("Text", "Screenshot", "Token"):
        assert is_inside(box_of(found.get_by_label(name, exact=True)), area)
    assert box_of(found)["y"] == top
    found.get_by_role("tab", name="Tokens", exact=True).click()


def test_the_full_window_covers_the_page_and_escape_brings_it_back(
    lab: LabNotebook,
) -> None:
    found = resize(lab, *SIZES[0])
    before = box_of(found)
    found.focus()
    lab.page.keyboard.press("Shift+F")
    waits_until(lambda: box_of(found)["width"] == SIZES[0][0])
    assert box_of(found)["height"] == SIZES[0][1]
    lab.screenshot("explorer_full_window")
    lab.page.keyboard.press("Escape")
    waits_until(lambda: box_of(found) == before)


def test_the_lower_edge_is_moved_by_keys(lab: LabNotebook) -> None:
    found = resize(lab, *SIZES[0])
    height = box_of(found)["height"]
    found.get_by_role("separator", name="Height of the explorer").focus()
    lab.page.keyboard.press("ArrowDown")
    waits_until(lambda: box_of(found)["height"] == height + 24)
    lab.page.keyboard.press("ArrowUp")
    waits_until(lambda: box_of(found)["height"] == height)


def test_it_has_tabs_where_it_is_narrow(lab: LabNotebook) -> None:
    lab.command("application:toggle-left-area")
    found = resize(lab, 500, 800)
    sights = {
        "Overview": ["Rounds", "Samples"],
        "Sample": ["Sample", "Tokens", "Text"],
        "Screenshot": ["Sample", "Screenshot", "Token"],
        "Text": ["Sample", "Text"],
    }
    for tab, names in sights.items():
        found.get_by_role("tab", name=tab, exact=True).click()
        waits_until(
            lambda names=names: (
                [  # type: ignore[misc]
                    name
                    for name in PANES
                    if found.get_by_label(name, exact=True).is_visible()
                ]
                == [name for name in PANES if name in names]
            )
        )
        waits_until(lambda names=names: misplaced(lab, names) == [])  # type: ignore[misc]
        assert found.evaluate("node => node.scrollWidth <= node.clientWidth")
        lab.screenshot(f"explorer_narrow_{tab.lower()}")
