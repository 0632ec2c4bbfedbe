"""Full window, after whatever was resized, opened or gone to before."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.explorers import explorer, waits_until
from tests.browser.test_explorer_layout import box_of
from tests.browser.test_explorer_step import CELLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from playwright.sync_api import Locator

    from tests.browser.lab import LabNotebook

# What must have a size: the token plot, the search, the text, its tokens, the rest.
PANES = (
    *(".rdx-reading .rdx-plot", "[role=search]", ".rdx-scroller", ".rdx-chunk > span"),
    *(".rdx-overview .rdx-plot", ".rdx-focus", ".rdx-drawer"),
)
SIZES = [(1920, 1080), (1440, 900), (1280, 800), (1000, 700)]


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    # A tenth of the tokens: they have no part in the size of a pane.
    cells = [CELLS[0].replace('"tokenizer.json")', '"tokenizer.json", 25)'), *CELLS[1:]]
    with next_cells("window.ipynb", *cells) as opened:
        opened.run_all()
        expect(explorer(opened).get_by_text("diagnosing…")).to_have_count(0)
        yield opened
        assert (opened.console_errors, opened.errors) == ([], [])


def resize(lab: LabNotebook, width: int, height: int) -> None:
    lab.page.set_viewport_size({"width": width, "height": height})
    lab.settle()


def press(lab: LabNotebook, key: str) -> None:
    explorer(lab).focus()
    lab.page.keyboard.press(key)
    lab.settle()


def lost_panes(found: Locator) -> list[str]:
    sizes = {name: found.locator(name).first.bounding_box() for name in PANES}
    return [
        name
        for name, box in sizes.items()
        if box is None or box["width"] < 1 or box["height"] < 1
    ]


# Its middle column had no boxes: containers were nested in the top layer.
def test_full_window_after_two_sizes_has_all_panes(lab: LabNotebook) -> None:
    found = explorer(lab)
    for _ in range(3):
        resize(lab, *SIZES[0])
        resize(lab, *SIZES[1])
        press(lab, "Shift+F")
        waits_until(lambda: box_of(found)["width"] == SIZES[1][0])
        lab.settle()
        assert lost_panes(found) == []
        press(lab, "Escape")


@pytest.mark.parametrize("seed", range(3))
def test_no_sequence_of_actions_loses_a_pane(lab: LabNotebook, seed: int) -> None:
    found, chosen = explorer(lab), random.Random(seed)  # noqa: S311 - not a secret
    flip = "() => { const { dataset } = document.body;"
    flip += " dataset.jpThemeLight = String(dataset.jpThemeLight === 'false'); }"
    actions: list[Callable[[], object]] = [
        lambda: resize(lab, *chosen.choice(SIZES)),
        lambda: press(lab, "Shift+F"),
        lambda: lab.page.evaluate(flip),
        lambda: found.get_by_role("tab", name="Tokens", exact=True).click(),
        lambda: press(lab, chosen.choice("jknp")),
    ]
    press(lab, "Shift+F")  # full window, and then anything
    done = [chosen.randrange(len(actions)) for _ in range(10)]
    for at in done:
        actions[at]()
        lab.settle()
        assert lost_panes(found) == [], f"after {done}"
    lab.page.evaluate("() => { document.body.dataset.jpThemeLight = 'true'; }")
    if found.get_attribute("popover"):
        press(lab, "Escape")
    resize(lab, *SIZES[1])
    expect(found).not_to_have_attribute("popover", "manual")
